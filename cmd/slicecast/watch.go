package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/watcher"
)

// watchFlags are those of the watcher.
type watchFlags struct {
	clusters       []string
	namespaces     []string
	selector       string
	confirmRemoval bool
	apiStale       time.Duration
}

func (f *watchFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.clusters, "cluster", nil, "NAME=SOURCE[,region=R] (repeatable); SOURCE is kubeconfig:PATH[#CONTEXT], incluster or dir:PATH (default: the current kubeconfig context as cluster local)")
	fs.StringSliceVar(&f.namespaces, "namespaces", nil, "publish these namespaces only; nothing else has to be readable (default: all)")
	fs.StringVar(&f.selector, "selector", "", "publish EndpointSlices with these labels only")
	fs.BoolVar(&f.confirmRemoval, "confirm-removal", false, "a change of --namespaces, --selector or folder that would remove more than 20 % of a cluster's slices is meant")
	fs.DurationVar(&f.apiStale, "api-stale", time.Hour, "write nothing when the API server was not heard for so long")
}

// source is a Source that says what of its cluster it gives.
type source interface {
	watcher.Source
	Extent() string
}

// source makes the source of a cluster.
func (f *watchFlags) source(spec clusterSpec, t telemetry) (source, error) {
	log := t.log.With("cluster", spec.name)
	if spec.kind == fromDir {
		d, err := watcher.NewDir(watcher.DirConfig{Path: spec.path, Namespaces: f.namespaces, Selector: f.selector, Log: log})
		if err != nil {
			return nil, usagef("cluster %s: %w", spec.name, err)
		}
		return d, nil
	}
	config, err := restConfig(spec)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "slicecast/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", spec.name, err)
	}
	k, err := watcher.NewKube(watcher.KubeConfig{
		Client: client, Identity: watcher.CAIdentity(config), Namespaces: f.namespaces, Selector: f.selector, Log: log,
	})
	if err != nil {
		return nil, usagef("cluster %s: %w", spec.name, err)
	}
	return k, nil
}

// watchers is the registry of the watchers of clusters: who is alive on the bus in the role of a cluster.
type watchers struct{ b *bus.Bus }

func watcherRole(cluster string) string { return "watcher-" + cluster }

// Announce implements watcher.Registry.
func (w watchers) Announce(ctx context.Context, cluster string, info []byte) error {
	return w.b.Announce(ctx, watcherRole(cluster), info)
}

// Update implements watcher.Registry.
func (w watchers) Update(cluster string, info []byte) error {
	return w.b.Update(watcherRole(cluster), info)
}

// Members implements watcher.Registry.
func (w watchers) Members(ctx context.Context, cluster string, handle func([]watcher.Member)) error {
	return w.b.Members(ctx, watcherRole(cluster), func(all []bus.Member) {
		members := make([]watcher.Member, 0, len(all))
		for _, m := range all {
			members = append(members, watcher.Member{ID: m.ID, Info: m.Info})
		}
		handle(members)
	})
}
