package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
)

// Config is what a Rig is made of.
type Config struct {
	URLs     []string // of the bus
	Clusters []string // names; default east and west
	Seed     uint64   // of the changes
	Rate     int      // changes a second over all clusters; default 100

	// Violation is told of each moment at which a reader held too little, and of each role that ended by itself.
	// It may be called by many goroutines. Required.
	Violation func(text string)
	Log       *slog.Logger // nil: discarded

	// What is not about a role alone; the rest is filled in.
	Bus       bus.Config
	Watcher   watcher.Config
	Projector projector.Config
}

// Fast gives settings with short times, so that a fault and its repair take seconds.
func Fast(cfg Config) Config {
	cfg.Bus.RetryMin, cfg.Bus.RetryMax = 20*time.Millisecond, time.Second
	cfg.Bus.CheckEvery, cfg.Bus.Heartbeat = 200*time.Millisecond, 500*time.Millisecond
	cfg.Watcher.WriteTimeout = 2 * time.Second
	cfg.Watcher.CheckpointEvery, cfg.Watcher.CheckpointQuiet = 100*time.Millisecond, 500*time.Millisecond
	cfg.Projector.WriteTimeout, cfg.Projector.RetryMax = 2*time.Second, time.Second
	cfg.Projector.CheckpointEvery = 100 * time.Millisecond
	return cfg
}

// Rig is the whole path on one bus.
type Rig struct {
	cfg        Config
	APIs       []*API
	Watchers   [][]*Role // by cluster
	Projectors []*Role
	Replicas   []*Role
	Readers    []*Role

	plain   *Reader
	clients []*Client
	life    func() context.Context
	end     func()
	group   sync.WaitGroup

	// mu guards all below.
	mu      sync.Mutex
	moved   chan struct{}     // closed when a reader heard something, or a change was made
	quiet   map[string]uint64 // version of each API server at the last quiet moment
	lenient map[string]uint64 // versions that readers may be taken back to
	paused  bool
	changes int
}

// New starts everything, with changes going on. Close ends it.
func New(ctx context.Context, cfg Config) (*Rig, error) {
	if cfg.Violation == nil || len(cfg.URLs) == 0 {
		return nil, errors.New("rig: no Violation or no URLs")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Clusters) == 0 {
		cfg.Clusters = []string{"east", "west"}
	}
	if cfg.Rate == 0 {
		cfg.Rate = 100
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Rig{
		cfg: cfg, life: func() context.Context { return ctx }, end: cancel,
		moved: make(chan struct{}), quiet: map[string]uint64{}, lenient: map[string]uint64{},
	}
	rnd := rand.New(rand.NewPCG(cfg.Seed, 1))
	var keys []endpoint.Key
	for _, name := range cfg.Clusters {
		a := NewAPI(name)
		a.Fill(rnd)
		r.APIs = append(r.APIs, a)
		keys = append(keys, a.services()...)
		var two []*Role
		for i := range 2 {
			w := r.role(fmt.Sprintf("watcher/%s/%d", name, i), runWatcher)
			w.Source = &Source{API: a, Gate: w.Gate, Again: make(chan struct{}, 1)}
			two = append(two, w)
		}
		r.Watchers = append(r.Watchers, two)
	}
	for i := range 2 {
		r.Projectors = append(r.Projectors, r.role(fmt.Sprint("projector/", i), runProjector))
		name := fmt.Sprint("xds/", i)
		client := newClient(keys, func(key endpoint.Key, s shown) { r.checkClient(name, key, s) }, r.stir)
		r.clients = append(r.clients, client)
		r.Replicas = append(r.Replicas, r.role(name, runReplica(client, cfg.Clusters)))
	}
	r.plain = newReader(func(key endpoint.Key, since uint64, s shown) { r.judge("plain reader", key, since, s) }, r.stir)
	r.Readers = append(r.Readers, r.role("reader", runReader(r.plain)))
	for _, role := range r.All() {
		role.Start()
	}
	r.group.Go(func() { r.churn(ctx, rnd) })
	return r, nil
}

func (r *Rig) ctx() context.Context { return r.life() }

func (r *Rig) role(name string, run func(context.Context, *Role, *bus.Bus) error) *Role {
	return &Role{Name: name, Gate: &Gate{}, URLs: r.cfg.URLs, rig: r, run: run}
}

// All lists the roles.
func (r *Rig) All() (all []*Role) {
	for _, two := range r.Watchers {
		all = append(all, two...)
	}
	all = append(all, r.Projectors...)
	all = append(all, r.Replicas...)
	return append(all, r.Readers...)
}

// Close ends everything.
func (r *Rig) Close() {
	r.end()
	for _, role := range r.All() {
		role.Stop()
	}
	r.group.Wait()
}

// API gives the API server of a cluster.
func (r *Rig) API(cluster string) *API {
	for _, a := range r.APIs {
		if a.Cluster == cluster {
			return a
		}
	}
	return nil
}

// stir wakes who waits for readers.
func (r *Rig) stir() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.moved)
	r.moved = make(chan struct{})
}

// churn makes changes, until ctx ends.
func (r *Rig) churn(ctx context.Context, rnd *rand.Rand) {
	tick := time.NewTicker(time.Second / time.Duration(r.cfg.Rate))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		if !r.paused {
			r.APIs[rnd.IntN(len(r.APIs))].Change(rnd)
			r.changes++
		}
		r.mu.Unlock()
	}
}

// Changes waits until n more changes were made.
func (r *Rig) Changes(ctx context.Context, n int) error {
	r.mu.Lock()
	until := r.changes + n
	r.mu.Unlock()
	return r.await(ctx, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changes < until {
			return fmt.Sprintf("%d changes are still to be made", until-r.changes)
		}
		return ""
	})
}

// Pause stops the changes, and goes on with them.
func (r *Rig) Pause(stop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = stop
}

// await waits until missing gives nothing any more.
func (r *Rig) await(ctx context.Context, missing func() string) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		r.mu.Lock()
		moved := r.moved
		r.mu.Unlock()
		what := missing()
		if what == "" {
			return nil
		}
		select {
		case <-moved:
		case <-again.C:
		case <-ctx.Done():
			return errors.New(what)
		}
	}
}

// stays is how long readers must go on to hold what the API servers have.
const stays = 300 * time.Millisecond

// Settle pauses the changes and waits until every reader holds exactly what the API servers have, and goes on to. The
// error says what differs when ctx ends.
func (r *Rig) Settle(ctx context.Context) error {
	r.Pause(true)
	defer r.Pause(false)
	for {
		if err := r.await(ctx, r.Differences); err != nil {
			return fmt.Errorf("no quiet: %w", err)
		}
		hold, cancel := context.WithTimeout(ctx, stays)
		err := r.await(hold, func() string {
			if r.Differences() == "" {
				return "none"
			}
			return ""
		})
		cancel()
		if err != nil { // it stayed so
			break
		}
	}
	if ctx.Err() != nil {
		return errors.New("no time was left to see whether it stays quiet")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.APIs {
		r.quiet[a.Cluster] = a.Now()
	}
	clear(r.lenient)
	return nil
}

// Differences says what readers hold otherwise than the API servers have it, "" when nothing.
func (r *Rig) Differences() string {
	var all []string
	add := func(who, what string) {
		if what != "" {
			all = append(all, who+" "+what)
		}
	}
	for _, a := range r.APIs {
		add("plain reader", r.plain.differs(a))
		for i, c := range r.clients {
			add(fmt.Sprint("xds/", i), c.differs(a))
		}
	}
	return strings.Join(all, "\n")
}

// Lenient lets readers be taken back to a version of a cluster, until the next quiet moment.
func (r *Rig) Lenient(cluster string, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lenient[cluster] = version
}

// checkClient judges what a client was given, once there was a quiet moment.
func (r *Rig) checkClient(name string, key endpoint.Key, s shown) {
	r.mu.Lock()
	since := r.quiet[key.Cluster]
	r.mu.Unlock()
	if since > 0 {
		r.judge(name, key, since, s)
	}
}

// judge reports a reader that holds less than in any state since a version.
func (r *Rig) judge(name string, key endpoint.Key, since uint64, s shown) {
	r.mu.Lock()
	if v, ok := r.lenient[key.Cluster]; ok {
		since = min(since, v)
	}
	r.mu.Unlock()
	if missing, ok := r.API(key.Cluster).excuse(key, since, s.holds()); !ok {
		r.cfg.Violation(fmt.Sprintf("%s holds %v of %s and lacks at least %s (complete as of %d, the API server is at %d)",
			name, s, key, missing, since, r.API(key.Cluster).Now()))
	}
}
