package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicecast/slicecast/bus"
)

// runRoles opens the status listener, lets build add the roles, and runs them until the command's context ends or one
// fails. open makes the connection to the bus, and what closes it after all roles have ended.
func runRoles(cmd *cobra.Command, httpListen string, open func(telemetry) (*bus.Bus, func(), error), build func(context.Context, *group) error) error {
	log, err := newLogger(cmd)
	if err != nil {
		return err
	}
	t := newTelemetry(log)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if err := probe(ctx, "http-listen", httpListen); err != nil {
		return err
	}
	conn, closeBus, err := open(t)
	if err != nil {
		return err
	}
	defer closeBus()
	eg, ctx := errgroup.WithContext(ctx)
	g := &group{Group: eg, bus: conn, t: t}
	err = build(ctx, g)
	if err == nil {
		err = g.status(ctx, httpListen)
	}
	if err != nil {
		cancel()
		return errors.Join(err, g.Wait())
	}
	log.Info("slicecast runs", "version", version)
	err = g.Wait()
	log.Info("slicecast ends")
	return err
}

// status adds the status listener; it comes last because it speaks of all roles.
func (g *group) status(ctx context.Context, address string) error {
	serve, err := g.t.serveStatus(ctx, address, g.roles)
	if err != nil {
		return err
	}
	g.Go(serve)
	return nil
}

// restConfig gives the client configuration of a Kubernetes cluster.
func restConfig(spec clusterSpec) (*rest.Config, error) {
	if spec.kind == fromInCluster {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cluster %s: incluster: %w", spec.name, err)
		}
		return config, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = spec.path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: spec.context}).ClientConfig()
	if err != nil {
		where := spec.path
		if where == "" {
			where = "the default kubeconfig"
		}
		return nil, fmt.Errorf("cluster %s: %s: %w", spec.name, where, err)
	}
	return config, nil
}
