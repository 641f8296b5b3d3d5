package rig

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
	"github.com/slicecast/slicecast/xdsserver"
)

// Role is one process of the product: a watcher, a projector, an xDS replica or a reader, with a connection of its own.
// Its settings may be changed while it does not run.
type Role struct {
	Name string
	// Gate holds the whole process still: nothing is heard, read or written.
	Gate   *Gate
	Wire   Wire
	Source *Source  // of a watcher
	URLs   []string // of the bus

	rig   *Rig
	ranks atomic.Pointer[projector.Ranks] // of a projector
	run   func(ctx context.Context, r *Role, b *bus.Bus) error
	stop  func()
}

// Start runs the role, until Stop.
func (r *Role) Start() {
	ctx, cancel := context.WithCancel(r.rig.ctx())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.live(ctx); err != nil && ctx.Err() == nil {
			r.rig.cfg.Violation(fmt.Sprintf("%s ended by itself: %v", r.Name, err))
		}
	})
	r.stop = func() {
		cancel()
		r.Gate.Open()
		done.Wait()
	}
}

func (r *Role) live(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	cfg := r.rig.cfg.Bus
	cfg.Name, cfg.URLs, cfg.Log, cfg.Metrics = r.Name, r.URLs, r.rig.cfg.Log.With("role", r.Name), registry
	b, err := bus.Connect(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer b.Close()
	return r.run(ctx, r, b)
}

// Stop ends the role, as a kill does: nothing is handed over.
func (r *Role) Stop() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// First reports whether a projector knows that it writes first for a cluster.
func (r *Role) First(cluster string) bool {
	rank, known := r.ranks.Load().Of(cluster)
	return known && rank == 0
}

// Restart is Stop and Start.
func (r *Role) Restart() {
	r.Stop()
	r.Start()
}

func (r *Role) wire() Wire {
	w := r.Wire
	w.Gate = r.Gate
	return w
}

func runWatcher(ctx context.Context, r *Role, b *bus.Bus) error {
	e := events{b.Events(), r.wire()}
	cfg := r.rig.cfg.Watcher
	cfg.Cluster, cfg.Source, cfg.Events, cfg.Certifier, cfg.Records = r.Source.API.Cluster, r.Source, e, e, e
	cfg.Registry = registry{b}
	cfg.Log = r.rig.cfg.Log.With("role", r.Name)
	w, err := watcher.New(cfg)
	if err != nil {
		return fmt.Errorf("make watcher: %w", err)
	}
	return w.Run(ctx)
}

func runProjector(ctx context.Context, r *Role, b *bus.Bus) error {
	s := states{b.States(), r.wire()}
	cfg := r.rig.cfg.Projector
	cfg.Events, cfg.States, cfg.Certifier = events{b.Events(), r.wire()}, s, s
	cfg.Log = r.rig.cfg.Log.With("role", r.Name)
	cfg.Ranks = projector.NewRanks(b.ID())
	r.ranks.Store(cfg.Ranks)
	p, err := projector.New(cfg)
	if err != nil {
		return fmt.Errorf("make projector: %w", err)
	}
	return ranked(ctx, b, cfg.Ranks, p.Run)
}

// runReplica runs an xDS replica and the stream of a proxy that comes back whenever it is lost.
func runReplica(client *Client, expected []string) func(context.Context, *Role, *bus.Bus) error {
	return func(ctx context.Context, r *Role, b *bus.Bus) error {
		s, err := xdsserver.New(xdsserver.Config{
			States: states{b.States(), r.wire()}, Records: events{b.Events(), r.wire()},
			Listen: "127.0.0.1:0", Expected: expected, StopTimeout: 1, Log: r.rig.cfg.Log.With("role", r.Name),
		})
		if err != nil {
			return fmt.Errorf("make xDS replica: %w", err)
		}
		sctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var proxy sync.WaitGroup
		defer proxy.Wait()
		proxy.Go(func() {
			select {
			case <-s.Listening():
			case <-sctx.Done():
				return
			}
			for sctx.Err() == nil {
				if err := client.follow(sctx, s.Addr().String()); sctx.Err() == nil {
					r.rig.cfg.Log.Warn("ADS stream lost", "err", err)
				}
			}
		})
		err = s.Run(sctx)
		cancel()
		return err
	}
}

func runReader(reader *Reader) func(context.Context, *Role, *bus.Bus) error {
	return func(ctx context.Context, r *Role, b *bus.Bus) error {
		return states{b.States(), r.wire()}.Follow(ctx, "", reader.handle)
	}
}
