package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/test/bus/rig"
	"github.com/slicecast/slicecast/xdsserver"
)

const (
	writers          = 256 // that load at once
	slicesPerService = 2
)

// read measures how long those who start take to know all that there is.
func read(ctx context.Context, o options, dir string) (rows []row, err error) {
	for _, n := range o.slices {
		more, err := readBack(ctx, o, n, filepath.Join(dir, fmt.Sprint("read-", n)))
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func readBack(ctx context.Context, o options, n int, dir string) ([]row, error) {
	s, err := rig.NewServer(dir) // reading does not depend on how writes are synced
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := connect(ctx, bus.Config{URLs: s.URLs()})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	started := time.Now()
	if err := load(ctx, b, n); err != nil {
		return nil, fmt.Errorf("load %d slices: %w", n, err)
	}
	rows := []row{{fmt.Sprintf("%d slices of %d endpoints, and their states: written by %d at once", n, perSlice, writers), short(time.Since(started))}}
	for _, m := range []struct {
		what string
		once func(context.Context, *bus.Bus) error
	}{
		{"watcher reads back (headers only)", func(ctx context.Context, b *bus.Bus) error {
			return snapshot(ctx, func(ctx context.Context, handle func(ledger.Notice) error) error {
				return b.Events().Follow(ctx, "east", true, handle)
			})
		}},
		{"projector reads all events", func(ctx context.Context, b *bus.Bus) error {
			return snapshot(ctx, func(ctx context.Context, handle func(ledger.Notice) error) error {
				return b.Events().Follow(ctx, "", false, handle)
			})
		}},
		{"reader of all states catches up", func(ctx context.Context, b *bus.Bus) error {
			return snapshot(ctx, func(ctx context.Context, handle func(ledger.Notice) error) error {
				return b.States().Follow(ctx, "", handle)
			})
		}},
		{"xDS replica starts, in sync and listening", listening},
	} {
		var took []time.Duration
		for range o.runs {
			started := time.Now()
			if err := m.once(ctx, b); err != nil {
				return nil, fmt.Errorf("%s: %w", m.what, err)
			}
			took = append(took, time.Since(started))
		}
		rows = append(rows, row{fmt.Sprintf("%d slices: %s", n, m.what), several(took)})
	}
	return rows, nil
}

// snapshot follows until all is read.
func snapshot(ctx context.Context, follow func(context.Context, func(ledger.Notice) error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return follow(ctx, func(n ledger.Notice) error {
		if n.Kind == ledger.Complete {
			cancel()
		}
		return nil
	})
}

func listening(ctx context.Context, b *bus.Bus) error {
	s, err := xdsserver.New(xdsserver.Config{
		States: b.States(), Records: b.Events(), Listen: "127.0.0.1:0", Expected: []string{"east"},
		StartTimeout: 10 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("make xDS replica: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Listening():
		cancel()
		return <-ended
	case err := <-ended:
		return fmt.Errorf("xDS replica ended: %w", err)
	}
}

// load writes n slices, the states of their services, the record and the checkpoints.
func load(ctx context.Context, b *bus.Bus, n int) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n / slicesPerService {
		group.Go(func() error { return loadService(gctx, b, i) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	states := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: uint64(n)}}
	for i := range n / slicesPerService {
		count, sum := ledger.OfState(stateOf(i))
		states.Count, states.Sum = states.Count+count, states.Sum.Add(sum)
	}
	var err error
	if states.AsOf, err = b.States().Last(ctx); err != nil {
		return fmt.Errorf("last state: %w", err)
	}
	if _, err := b.States().Certify(ctx, "east", states, 0); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if _, err := b.Events().PutRecord(ctx, "east", ledger.Record{UID: "bench", Generation: 1}, 0); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

func loadService(ctx context.Context, b *bus.Bus, i int) error {
	st := stateOf(i)
	for _, s := range st.Slices {
		if _, err := b.Events().Put(ctx, endpoint.Event{Slice: s}, 0); err != nil {
			return err
		}
	}
	_, err := b.States().Put(ctx, st, 0)
	return err
}

func stateOf(i int) endpoint.State {
	st := endpoint.State{Key: service(i)}
	for j := range slicesPerService {
		n := i*slicesPerService + j
		st.Slices = append(st.Slices, sliceOf(st.Key, n, uint64(n+1)))
	}
	return st
}
