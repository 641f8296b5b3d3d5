package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
	"github.com/slicecast/slicecast/xdsserver"
)

// group is the set of roles of a process: what runs, and what must be ready.
type group struct {
	*errgroup.Group
	bus   *bus.Bus
	alone bool // nobody else can reach the bus
	t     telemetry
	roles []readiness
}

// watch adds the watchers of the clusters.
func (g *group) watch(ctx context.Context, specs []clusterSpec, f watchFlags) error {
	metrics := watcher.NewMetrics(g.t.registry)
	for _, spec := range specs {
		source, err := f.source(spec, g.t)
		if err != nil {
			return err
		}
		w, err := watcher.New(watcher.Config{
			Cluster: spec.name, Region: spec.region, Source: source,
			Events: g.bus.Events(), Certifier: g.bus.Events(), Records: g.bus.Events(), Registry: watchers{g.bus},
			Extent: source.Extent(), ConfirmRemoval: f.confirmRemoval,
			APIStale: f.apiStale, Propagation: g.t.propagation, Metrics: metrics, Log: g.t.log,
		})
		if err != nil {
			return err
		}
		g.Go(func() error { return g.claimed(ctx, spec, w.Run) })
		g.Go(func() error {
			return g.bus.Queries().Serve(ctx, floorQuery(spec.name), func(ctx context.Context, _ []byte) ([]byte, error) {
				v, err := w.Floor(ctx)
				return []byte(v.String()), err
			})
		})
		g.roles = append(g.roles, readiness{"watcher of " + spec.name, func() (bool, string) {
			s := w.Status()
			if s.HeldRemovals > 0 {
				s.Why = fmt.Sprintf("%d slices would go by a change of scope: held until --confirm-removal", s.HeldRemovals)
			}
			return s.Ready, s.Why
		}})
	}
	return nil
}

// claimed runs the watcher of a folder as the only one of its cluster, since a folder has no versions of its own; any
// number of watchers may run for a Kubernetes cluster.
func (g *group) claimed(ctx context.Context, spec clusterSpec, run func(context.Context) error) error {
	if spec.kind != fromDir || g.alone {
		return run(ctx)
	}
	return alone(ctx, g.t.log.With("cluster", spec.name), func(ctx context.Context) (func(), error) {
		return g.bus.Claim(ctx, "watcher.dir-"+spec.name)
	}, run)
}

// claimEvery is how long there is between two tries of a claim.
const claimEvery = time.Second

// alone runs run once claim is given, and gives it back afterwards. While another process has it, it waits: that one may
// be an earlier life of this one, whose claim lapses soon. A bus that cannot say is one that comes back.
func alone(ctx context.Context, log *slog.Logger, claim func(context.Context) (func(), error), run func(context.Context) error) error {
	said := ""
	for {
		release, err := claim(ctx)
		if err == nil {
			defer release()
			return run(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); text != said {
			said = text
			if errors.Is(err, bus.ErrClaimed) {
				log.Warn("a folder has a single writer, waiting until it ends", "err", err)
			} else {
				log.Warn("the bus does not say who writes the folder's cluster, trying again", "err", err)
			}
		}
		timer := time.NewTimer(claimEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// project adds the projector of all clusters.
func (g *group) project(ctx context.Context) error {
	p, err := projector.New(projector.Config{
		Events: g.bus.Events(), States: g.bus.States(), Certifier: g.bus.States(), Ranks: g.ranks(ctx),
		Propagation: g.t.propagation, Registerer: g.t.registry, Log: g.t.log,
	})
	if err != nil {
		return err
	}
	g.Go(func() error { return p.Run(ctx) })
	g.roles = append(g.roles, readiness{"projector", g.onBus})
	return nil
}

// ranks tells the projectors on the bus of this one, and this one of them. Where nobody else can reach the bus there is
// no other.
func (g *group) ranks(ctx context.Context) *projector.Ranks {
	if g.alone {
		return nil
	}
	const role = "projector"
	ranks := projector.NewRanks(g.bus.ID())
	g.Go(func() error { return g.bus.Announce(ctx, role, nil) })
	g.Go(func() error {
		return g.bus.Members(ctx, role, func(members []bus.Member) {
			live := make([]string, len(members))
			for i, m := range members {
				live[i] = m.ID
			}
			ranks.Set(live)
		})
	})
	return ranks
}

func (g *group) onBus() (bool, string) {
	if g.bus.Connected() {
		return true, ""
	}
	return false, "no connection to the bus"
}

// serve adds the xDS server and its drain gate.
func (g *group) serve(ctx context.Context, f xdsFlags, expected []string) error {
	access, err := f.access.access(f.listen, g.t.log)
	if err != nil {
		return err
	}
	replica, err := g.registration()
	if err != nil {
		return err
	}
	s, err := xdsserver.New(xdsserver.Config{
		Replica: replica,
		States:  g.bus.States(), Records: g.bus.Events(), Expected: expected,
		StartTimeout: f.startTimeout, Listen: f.listen, FailoverDefault: f.failover, MaxViews: f.maxViews,
		ProxyLostAfter: f.proxyLostAfter, MaxStreamAge: f.maxStreamAge, StreamsPerSec: f.streamsPerSecond,
		TLS: f.access.files, Access: access, Propagation: g.t.propagation, Metrics: g.t.registry, Log: g.t.log,
	})
	if err != nil {
		return err
	}
	gate, err := xdsserver.NewGate(s.Hub(), xdsserver.GateConfig{
		Name: replicaName("xds"), Floor: g.floor, LeavingWithin: f.leavingWithin, FallbackWait: f.fallbackWait,
		Peers: s.GatePeers(g.askPeer), ProxyLostAfter: f.proxyLostAfter, Log: g.t.log, Registerer: g.t.registry,
	})
	if err != nil {
		return err
	}
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error { return g.bus.Queries().Serve(ctx, "drain", gate.Query) })
	g.answerPeers(ctx, s, gate)
	g.roles = append(g.roles, readiness{"xds", s.Ready})
	if f.drainListen == "" {
		return nil
	}
	l, err := listen(ctx, "drain-listen", f.drainListen)
	if err != nil {
		return err
	}
	g.Go(func() error { return serveHTTP(ctx, l, gate.Handler(), g.t.log) })
	return nil
}

func floorQuery(cluster string) string { return "floor." + cluster }

// floor asks a watcher of the cluster for the API server's version, by a consistent read made after the call.
func (g *group) floor(ctx context.Context, cluster string) (endpoint.Version, error) {
	answer, err := g.bus.Queries().Ask(ctx, floorQuery(cluster), nil)
	if err != nil {
		return endpoint.Version{}, err
	}
	return endpoint.ParseVersion(string(answer))
}

// xdsFlags are those of the xDS server.
type xdsFlags struct {
	listen, drainListen string
	expected            []string
	startTimeout        time.Duration
	failover            string
	maxViews            int
	leavingWithin       time.Duration
	fallbackWait        time.Duration
	proxyLostAfter      time.Duration
	access              accessFlags
	maxStreamAge        time.Duration
	streamsPerSecond    int
}

func (f *xdsFlags) add(fs *pflag.FlagSet, drainListen string) {
	fs.StringVar(&f.listen, "xds-listen", "127.0.0.1:18000", "HOST:PORT of the xDS server")
	fs.StringVar(&f.drainListen, "drain-listen", drainListen, "HOST:PORT of the drain gate; empty: off")
	fs.StringArrayVar(&f.expected, "expect-cluster", nil, "cluster that must be in sync before the xDS server listens (repeatable; those on the bus always must)")
	fs.DurationVar(&f.startTimeout, "start-timeout", 30*time.Second, "listen after so long with the last stored state of clusters that are not in sync")
	fs.StringVar(&f.failover, "failover-default", "any", "any, region or none: where a client may go when its own cluster has no endpoint")
	fs.IntVar(&f.maxViews, "max-views", 1000, "most classes of clients before node, then zone, are no longer told apart")
	fs.DurationVar(&f.leavingWithin, "leaving-within", 2*time.Second, "drain gate: how long a pod may stay ready and not terminating")
	fs.DurationVar(&f.fallbackWait, "fallback-wait", 10*time.Second, "drain gate: how long the last endpoint waits for a successor")
	f.access.add(fs)
	fs.DurationVar(&f.maxStreamAge, "max-stream-age", time.Hour, "ask a client to connect again after so long, give or take a tenth, so that clients spread over the replicas; 0: never")
	fs.IntVar(&f.streamsPerSecond, "streams-per-second", 500, "most xDS streams that begin in a second, the others wait")
	fs.DurationVar(&f.proxyLostAfter, "proxy-lost-after", 10*time.Second, "drain gate: how long a proxy whose stream ended is waited for")
}

// probe fails early, with the flag's name, when an address cannot be listened on.
func probe(ctx context.Context, flag, address string) error {
	if address == "" {
		return nil
	}
	l, err := listen(ctx, flag, address)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}
