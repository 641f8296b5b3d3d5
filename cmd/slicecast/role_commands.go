package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicecast/slicecast/bus"
)

const defaultHTTPListen = "127.0.0.1:18080"

func addHTTPListen(fs *pflag.FlagSet, address *string) {
	fs.StringVar(address, "http-listen", defaultHTTPListen, "HOST:PORT of /metrics, /healthz and /readyz")
}

func standaloneCommand() *cobra.Command {
	var (
		w        watchFlags
		x        xdsFlags
		embedded embeddedFlags
		address  string
	)
	cmd := &cobra.Command{
		Use:   "standalone",
		Short: "Run all roles in one process on an embedded NATS server",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			specs, err := parseClusters(w.clusters)
			if err != nil {
				return err
			}
			for flag, address := range map[string]string{"xds-listen": x.listen, "drain-listen": x.drainListen, "bus-listen": embedded.listen} {
				if err := probe(cmd.Context(), flag, address); err != nil {
					return err
				}
			}
			return runRoles(cmd, address, func(t telemetry) (*bus.Bus, func(), error) {
				return openEmbedded(cmd, embedded, xdsTTL(x.proxyLostAfter), t)
			}, func(ctx context.Context, g *group) error {
				g.alone = embedded.listen == ""
				return addStandalone(ctx, g, specs, w, x)
			})
		},
	}
	f := cmd.Flags()
	w.add(f)
	x.add(f, "127.0.0.1:18081")
	embedded.add(f)
	addHTTPListen(f, &address)
	return cmd
}

func addStandalone(ctx context.Context, g *group, specs []clusterSpec, w watchFlags, x xdsFlags) error {
	expected := x.expected
	for _, spec := range specs {
		expected = append(expected, spec.name)
	}
	if err := g.watch(ctx, specs, w); err != nil {
		return err
	}
	if err := g.project(ctx); err != nil {
		return err
	}
	return g.serve(ctx, x, expected)
}

func openEmbedded(cmd *cobra.Command, e embeddedFlags, ttl time.Duration, t telemetry) (*bus.Bus, func(), error) {
	server, err := e.start(t.log)
	if err != nil {
		return nil, nil, err
	}
	conn, err := bus.Connect(cmd.Context(), bus.Config{Name: replicaName("standalone"), Server: server, Proxies: true, ClaimTTL: ttl, Log: t.log, Metrics: t.registry})
	if err != nil {
		server.Shutdown()
		return nil, nil, err
	}
	if url := server.URL(); url != "" {
		t.log.Info("bus listens", "url", url)
	}
	return conn, func() { conn.Close(); server.Shutdown() }, nil
}

// roleCommand makes the command of one role on an external NATS.
func roleCommand(role, short string, add func(*pflag.FlagSet), tune func(*bus.Config), build func(context.Context, *group) error) *cobra.Command {
	var (
		flags   busFlags
		address string
	)
	cmd := &cobra.Command{
		Use: role, Short: short, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRoles(cmd, address, func(t telemetry) (*bus.Bus, func(), error) {
				cfg, err := flags.config(replicaName(role), t)
				if err != nil {
					return nil, nil, err
				}
				tune(&cfg)
				conn, err := bus.Connect(cmd.Context(), cfg)
				if err != nil {
					return nil, nil, err
				}
				return conn, conn.Close, nil
			}, build)
		},
	}
	f := cmd.Flags()
	add(f)
	flags.add(f)
	f.IntVar(&flags.replicas, "nats-replicas", 0, "replicas of streams that are made (default 3 when NATS is clustered, else 1)")
	addHTTPListen(f, &address)
	return cmd
}

func watcherCommand() *cobra.Command {
	var w watchFlags
	return roleCommand("watcher", "Publish the EndpointSlices of clusters on the bus", w.add, func(*bus.Config) {}, func(ctx context.Context, g *group) error {
		specs, err := parseClusters(w.clusters)
		if err != nil {
			return err
		}
		return g.watch(ctx, specs, w)
	})
}

func projectorCommand() *cobra.Command {
	return roleCommand("projector", "Fold the events of the bus into states", func(*pflag.FlagSet) {}, func(*bus.Config) {},
		func(ctx context.Context, g *group) error { return g.project(ctx) })
}

func xdsCommand() *cobra.Command {
	var x xdsFlags
	return roleCommand("xds", "Serve the states of the bus to Envoy and gRPC clients",
		func(f *pflag.FlagSet) { x.add(f, "") },
		func(cfg *bus.Config) { cfg.Proxies, cfg.ClaimTTL = true, xdsTTL(x.proxyLostAfter) },
		func(ctx context.Context, g *group) error { return g.serve(ctx, x, x.expected) })
}
