package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/test/bus/rig"
)

const (
	changesPerSecond = 200
	window           = 2 * time.Second  // before and after a death
	lapse            = 20 * time.Second // until nobody reckons with a dead projector any more
)

// output is when states of the cluster came to a reader.
type output struct {
	mu    sync.Mutex
	times []time.Time
}

func (o *output) handle(n ledger.Notice) error {
	if n.Kind == ledger.Changed {
		o.mu.Lock()
		o.times = append(o.times, time.Now())
		o.mu.Unlock()
	}
	return nil
}

// gap is the longest time without a state between two moments.
func (o *output) gap(from, to time.Time) (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := from
	for _, t := range o.times {
		if t.After(to) {
			break
		}
		if t.After(from) {
			longest, last = max(longest, t.Sub(last)), t
		}
	}
	return max(longest, to.Sub(last))
}

// stage is a rig whose roles can be killed, and its output.
type stage struct {
	*rig.Rig
	out     output
	proxies map[*rig.Role]*rig.Proxy
	violent atomic.Pointer[string]
}

// kill measures the longest gap in the output of a cluster, with nothing dying, a watcher, and the projector that writes.
func kill(ctx context.Context, o options, dir string) ([]row, error) {
	s, err := rig.NewServer(filepath.Join(dir, "kill"), func(o *server.Options) { o.SyncAlways = true })
	if err != nil {
		return nil, err
	}
	defer s.Close()
	st := &stage{proxies: map[*rig.Role]*rig.Proxy{}}
	st.Rig, err = rig.New(ctx, rig.Config{
		URLs: s.URLs(), Clusters: []string{"east"}, Rate: changesPerSecond, Seed: 1,
		Violation: func(text string) { st.violent.Store(&text) },
	})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	defer st.closeProxies()
	if err := st.behindProxies(s); err != nil {
		return nil, err
	}
	b, err := connect(ctx, bus.Config{URLs: s.URLs()})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	followed, cancel := context.WithCancel(ctx)
	var follow sync.WaitGroup
	defer follow.Wait()
	defer cancel()
	follow.Go(func() { _ = b.States().Follow(followed, "east", st.out.handle) })
	if err := wait(ctx, lapse); err != nil { // what was announced before the proxies
		return nil, err
	}
	if err := st.Settle(ctx); err != nil {
		return nil, err
	}
	return st.deaths(ctx, o)
}

func (st *stage) deaths(ctx context.Context, o options) (rows []row, err error) {
	for _, m := range []struct {
		what   string
		victim func() (*rig.Role, error)
	}{
		{"nothing dies", func() (*rig.Role, error) { return nil, nil }},
		{"a watcher dies", func() (*rig.Role, error) { return st.Watchers[0][0], nil }},
		{"the other watcher dies", func() (*rig.Role, error) { return st.Watchers[0][1], nil }},
		{"the projector that writes dies", func() (*rig.Role, error) { return st.projector(true) }},
		{"the projector that hedges dies", func() (*rig.Role, error) { return st.projector(false) }},
	} {
		var gaps []time.Duration
		for range o.runs {
			gap, err := st.death(ctx, m.victim)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.what, err)
			}
			gaps = append(gaps, gap)
		}
		rows = append(rows, row{fmt.Sprintf("longest gap in the output under %d changes/s, %s", changesPerSecond, m.what), several(gaps)})
	}
	if text := st.violent.Load(); text != nil {
		return nil, errors.New(*text)
	}
	return rows, nil
}

// projector gives the one that is the first for the cluster, or the other one.
func (st *stage) projector(first bool) (*rig.Role, error) {
	a, b := st.Projectors[0], st.Projectors[1]
	switch {
	case a.First("east") == b.First("east"):
		return nil, errors.New("the projectors do not know each other")
	case a.First("east") == first:
		return a, nil
	default:
		return b, nil
	}
}

// death kills a role amid the changes, measures, and brings it back.
func (st *stage) death(ctx context.Context, victim func() (*rig.Role, error)) (time.Duration, error) {
	v, err := victim()
	if err != nil {
		return 0, err
	}
	from := time.Now().Add(window)
	if err := wait(ctx, window); err != nil {
		return 0, err
	}
	if v != nil {
		st.proxies[v].Cut() // it can tell nobody
		v.Stop()
	}
	if err := wait(ctx, window); err != nil {
		return 0, err
	}
	gap := st.out.gap(from, time.Now())
	if v != nil {
		st.proxies[v].Heal()
		v.Start()
		// What the dead one had announced lapses, and the new one is known.
		if err := wait(ctx, lapse); err != nil {
			return 0, err
		}
	}
	return gap, st.Settle(ctx)
}

// behindProxies gives each watcher and projector a proxy, so that it can be cut off before it is stopped.
func (st *stage) behindProxies(s *rig.Server) error {
	for _, role := range append(st.Watchers[0], st.Projectors...) {
		p, err := rig.NewProxy(s.URL()[len("nats://"):])
		if err != nil {
			return err
		}
		st.proxies[role] = p
		role.Stop()
		role.URLs = []string{"nats://" + p.Addr()}
		role.Start()
	}
	return nil
}

func (st *stage) closeProxies() {
	for _, p := range st.proxies {
		p.Close()
	}
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
