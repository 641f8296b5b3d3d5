package watcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Events is what a watcher needs of the EVENTS stream.
type Events interface {
	// Follow hands the notices of a cluster to handle, session after session, until ctx ends.
	Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error
	// Put writes an event where the last message of its subject has sequence expect, 0 for none.
	Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error)
	// Get reads what the subject of a slice holds.
	Get(ctx context.Context, key endpoint.Key, slice string) (ledger.Notice, error)
}

// Certifier writes checkpoints by compare-and-set.
type Certifier interface {
	Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error)
}

// Records reads and writes the record of a cluster.
type Records interface {
	// Record gives the zero Record and 0 when there is none.
	Record(ctx context.Context, cluster string) (ledger.Record, uint64, error)
	PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error)
}

// Config is what a Watcher needs. Zero fields take the default in their comment; those without one are required.
type Config struct {
	Cluster   string // name of the cluster, a DNS label
	Region    string // region of its endpoints, written into its record; "" leaves the record's as it is
	Source    Source
	Events    Events
	Certifier Certifier
	Records   Records
	Registry  Registry // who else watches the cluster; nil: nobody can say

	// Extent is what of the cluster the Source gives, in one line that is equal on all watchers that give the same;
	// "all". ConfirmRemoval lets another Extent than the one in force remove as much as it does, see guard.go.
	Extent         string
	ConfirmRemoval bool

	APIStale        time.Duration // nothing is written when the source was not heard for so long; 1 h
	WriteTimeout    time.Duration // of one write to the bus; 5 s
	Parallel        int           // writes on their way at once; 128
	CheckpointEvery time.Duration // least time between checkpoints under change; 1 s
	CheckpointQuiet time.Duration // least time between checkpoints while only the as-of moves; 5 s

	Propagation prometheus.ObserverVec // by label "stage"; nil: not measured
	Metrics     *Metrics               // shared by the watchers of a process; nil: not measured
	Log         *slog.Logger           // nil: discarded

	translator uint32 // of the Source; TranslatorVersion but in tests
}

func (c *Config) fill() error {
	if !endpoint.IsLabel(c.Cluster) {
		return fmt.Errorf("cluster name %q is not a DNS label", clip(c.Cluster))
	}
	if c.Source == nil || c.Events == nil || c.Certifier == nil || c.Records == nil {
		return errors.New("watcher of " + c.Cluster + " needs Source, Events, Certifier and Records")
	}
	c.APIStale = orDefault(c.APIStale, time.Hour)
	c.WriteTimeout = orDefault(c.WriteTimeout, 5*time.Second)
	c.CheckpointEvery = orDefault(c.CheckpointEvery, time.Second)
	c.CheckpointQuiet = orDefault(c.CheckpointQuiet, 5*time.Second)
	c.Parallel = orDefault(c.Parallel, 128)
	if c.Extent == "" {
		c.Extent = extentAll
	}
	if c.translator == 0 {
		c.translator = TranslatorVersion
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("cluster", c.Cluster)
	return nil
}

func orDefault[T time.Duration | int](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Watcher keeps one cluster's slices on the bus.
type Watcher struct {
	cfg    Config
	self   string       // names this watcher among the registered ones
	inbox  chan message // to the goroutine that owns the loop
	status atomic.Pointer[Status]
}

// message is work for the goroutine that owns the loop. ctx is that of Run.
type message func(ctx context.Context, l *loop)

// errNotReady says that a watcher cannot answer yet.
var errNotReady = errors.New("the watcher is not ready")

// New checks cfg and makes a Watcher; it starts nothing.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	w := &Watcher{cfg: cfg, self: rand.Text(), inbox: make(chan message, 256)}
	w.status.Store(&Status{Cluster: cfg.Cluster, Why: "not started"})
	cfg.Metrics.add(w)
	return w, nil
}

// Run watches until ctx ends, then returns nil after all its goroutines have ended. An error is one that no retry
// can mend.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	l := newLoop(w, g)
	g.Go(func() error { return l.run(ctx) })
	g.Go(func() error { return w.follow(ctx) })
	g.Go(func() error { return w.identify(ctx) })
	w.register(ctx, g)
	if err := g.Wait(); err != nil {
		return fmt.Errorf("watch cluster %s: %w", w.cfg.Cluster, err)
	}
	return nil
}

// Ready reports whether the cluster is heard, its slices are listed, the view of the bus is complete and the record
// on the bus is this cluster's.
func (w *Watcher) Ready() bool { return w.status.Load().Ready }

// Status gives a snapshot of what the watcher is at.
func (w *Watcher) Status() Status { return *w.status.Load() }

// Floor gives the version of the cluster by a consistent read that begins after the call, and has a checkpoint
// written as soon as the watcher's cache and the bus have reached it.
func (w *Watcher) Floor(ctx context.Context) (endpoint.Version, error) {
	at, err := w.cfg.Source.Floor(ctx)
	if err != nil {
		return endpoint.Version{}, fmt.Errorf("floor of cluster %s: %w", w.cfg.Cluster, err)
	}
	type answer struct {
		floor endpoint.Version
		err   error
	}
	reply := make(chan answer, 1)
	w.send(ctx, func(_ context.Context, l *loop) {
		floor, err := l.ask(at)
		reply <- answer{floor, err}
	})
	select {
	case a := <-reply:
		return a.floor, a.err
	case <-ctx.Done():
		return endpoint.Version{}, fmt.Errorf("floor of cluster %s: %w", w.cfg.Cluster, ctx.Err())
	}
}

// send hands m to the loop, or gives up when ctx ends.
func (w *Watcher) send(ctx context.Context, m message) {
	select {
	case w.inbox <- m:
	case <-ctx.Done():
	}
}

// follow keeps the session on the cluster's subjects open; the loop may end a session whose view proved wrong.
func (w *Watcher) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		sctx, cancel := context.WithCancel(ctx)
		w.send(ctx, func(_ context.Context, l *loop) { l.endSession = cancel })
		err := w.cfg.Events.Follow(sctx, w.cfg.Cluster, true, func(n ledger.Notice) error {
			w.send(sctx, func(ctx context.Context, l *loop) { l.notice(ctx, n) })
			return nil
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("follow events: %w", err)
		}
	}
	return nil
}

// identify reads the identity of the cluster, until it is known.
func (w *Watcher) identify(ctx context.Context) error {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		uid, err := w.cfg.Source.UID(ctx)
		if err == nil {
			w.send(ctx, func(ctx context.Context, l *loop) { l.identified(ctx, uid) })
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		w.send(ctx, func(_ context.Context, l *loop) { l.lost(err) })
		timer := time.NewTimer(backoff(attempt, 500*time.Millisecond, 15*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}
