package xdsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// States is the STATE stream of the bus.
type States interface {
	// Follow runs sessions until ctx ends and calls handle, from one goroutine, with what they say. cluster "" means
	// all clusters. A handle that returns ledger.ErrResync ends the session; any other error ends Follow with it.
	Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error
	// Last gives the last sequence of the stream, from its leader.
	Last(ctx context.Context) (uint64, error)
}

// Records are the clusters' records on the bus.
type Records interface {
	// FollowRecords is Follow for the records of all clusters.
	FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error
}

// Config is what a Server needs.
type Config struct {
	States  States  // required
	Records Records // required

	Listen          string        // host:port of the xDS listener, required; port 0 takes a free one
	Expected        []string      // clusters that must be in sync before anybody is served, beside those on the bus
	StartTimeout    time.Duration // after it, serve with the last stored state of clusters that are not; default 30 s
	FailoverDefault string        // where the label slicecast.io/failover is unset: any (default), region or none
	MaxViews        int           // above it new clients share a View without node, then without zone; default 1,000
	SlowLimit       time.Duration // longest time without an acknowledgement, or in a send; default 30 s
	FirstAnswerWait time.Duration // longest wait of a first answer for what the bus holds; default 2 s
	ProxyLostAfter  time.Duration // how long what an ended stream held is remembered; default 10 s
	StopTimeout     time.Duration // longest graceful stop; default 5 s
	DrainSpread     time.Duration // over which the streams of a stopping replica end; default 2 s, at most StopTimeout
	MaxStreamAge    time.Duration // a connection is asked to end after so long, give or take a tenth, so that clients spread over the replicas; 0: never
	StreamsPerSec   int           // most streams that begin in a second, the others wait; default 500
	Loads           int           // most streams that take their first load at a time, the others wait; default 32

	TLS    TLSFiles       // of the listener; zero: plaintext
	Access func() *Access // what clients may see, asked for at the start of each stream; nil: everything

	Replica Registration // of this replica among others; zero: it is alone

	Propagation prometheus.ObserverVec // label "stage": push, ack and total are observed; may be nil
	Metrics     prometheus.Registerer  // may be nil
	Log         *slog.Logger           // may be nil
}

// Server is one xDS replica.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	store   *Store
	hub     *Hub
	asker   *lastAsker
	admit   *admission
	codec   codec
	tls     *liveTLS      // nil: plaintext
	looking chan struct{} // of capacity 1: somebody looks at all clients
	crowd   *crowd        // this replica among others

	synced    chan struct{} // of capacity 1: a notice may have made it ready
	listening chan struct{} // closed when it listens
	stopping  chan struct{} // closed when streams must end
	workers   sync.WaitGroup
	addr      atomic.Pointer[net.Addr]
	why       atomic.Pointer[string] // why it is not ready, nil when it is
}

// New fills the defaults of cfg and checks it. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, 30*time.Second)
	cfg.FailoverDefault = cmp.Or(cfg.FailoverDefault, failoverAny)
	cfg.MaxViews = cmp.Or(cfg.MaxViews, 1000)
	cfg.SlowLimit = cmp.Or(cfg.SlowLimit, 30*time.Second)
	cfg.FirstAnswerWait = cmp.Or(cfg.FirstAnswerWait, 2*time.Second)
	cfg.ProxyLostAfter = cmp.Or(cfg.ProxyLostAfter, 10*time.Second)
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, 5*time.Second)
	cfg.DrainSpread = min(cmp.Or(cfg.DrainSpread, 2*time.Second), cfg.StopTimeout)
	cfg.StreamsPerSec = cmp.Or(cfg.StreamsPerSec, 500)
	cfg.Loads = cmp.Or(cfg.Loads, 32)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.valid(); err != nil {
		return nil, fmt.Errorf("xDS server: %w", err)
	}
	m, err := newMetrics(cfg.Metrics, cfg.Propagation)
	if err != nil {
		return nil, err
	}
	var live *liveTLS
	if !cfg.TLS.IsZero() {
		if live, err = newLiveTLS(cfg.TLS, cfg.Log, m.reloads); err != nil {
			return nil, fmt.Errorf("xDS server: %w", err)
		}
	}
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	mu := &sync.Mutex{}
	s := &Server{
		cfg: cfg, log: cfg.Log, metrics: m, codec: c, tls: live, store: newStore(mu, cfg.Expected, cfg.FailoverDefault),
		asker:   newLastAsker(cfg.States.Last, cfg.FirstAnswerWait),
		admit:   newAdmission(cfg.StreamsPerSec, cfg.Loads, m.delayed),
		looking: make(chan struct{}, 1),
		synced:  make(chan struct{}, 1), listening: make(chan struct{}), stopping: make(chan struct{}),
	}
	s.hub = newHub(mu, s.store, m, cfg.MaxViews, cfg.ProxyLostAfter)
	s.crowd = newCrowd(s)
	s.notReady("it has not heard the bus")
	return s, nil
}

func (c *Config) valid() error {
	switch {
	case c.States == nil || c.Records == nil:
		return errors.New("the bus is missing")
	case c.FailoverDefault != failoverAny && c.FailoverDefault != failoverRegion && c.FailoverDefault != failoverNone:
		return fmt.Errorf("failover default %q is not any, region or none", c.FailoverDefault)
	case c.MaxViews < 1:
		return fmt.Errorf("%d views are not enough", c.MaxViews)
	case c.StreamsPerSec < 1 || c.Loads < 1:
		return errors.New("no stream could begin")
	}
	for _, d := range [...]time.Duration{c.StartTimeout, c.SlowLimit, c.FirstAnswerWait, c.ProxyLostAfter, c.StopTimeout, c.DrainSpread, c.MaxStreamAge} {
		if d < 0 {
			return fmt.Errorf("duration %s is negative", d)
		}
	}
	if err := c.TLS.valid(); err != nil {
		return err
	}
	if err := c.Replica.valid(c.ProxyLostAfter); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen address: %w", err)
	}
	return nil
}

// Hub gives what the drain gate looks at.
func (s *Server) Hub() *Hub { return s.hub }

// Store gives the memory.
func (s *Server) Store() *Store { return s.store }

// Ready reports whether it serves, and if not, what it waits for.
func (s *Server) Ready() (ok bool, why string) {
	if text := s.why.Load(); text != nil {
		return false, *text
	}
	return true, ""
}

// Listening gives a channel that is closed when the server listens; Addr gives its address from then on.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Addr gives the address that the server listens on, nil before it does.
func (s *Server) Addr() net.Addr {
	if a := s.addr.Load(); a != nil {
		return *a
	}
	return nil
}

// Run follows the bus and serves, until ctx ends or a part fails. Before it returns, streams are ended, health first,
// and served until then.
func (s *Server) Run(ctx context.Context) error {
	follow, unfollow := context.WithCancel(context.WithoutCancel(ctx))
	defer unfollow()
	g, follow := errgroup.WithContext(follow)
	g.Go(func() error { return s.cfg.States.Follow(follow, "", s.notice) })
	g.Go(func() error { return s.cfg.Records.FollowRecords(follow, s.record) })
	g.Go(func() error {
		s.asker.run(follow)
		return nil
	})
	g.Go(func() error {
		defer unfollow()
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(follow, cancel)()
		return s.serveWhenReady(both)
	})
	s.crowd.run(follow, g)
	err := g.Wait()
	s.notReady("it has stopped")
	return err
}

func (s *Server) notReady(why string) { s.why.Store(&why) }

// notice takes a notice of the STATE stream.
func (s *Server) notice(n ledger.Notice) error {
	s.store.mu.Lock()
	err := s.store.notice(n)
	due, count := s.store.ignored.take()
	s.store.mu.Unlock()
	s.poke()
	s.report(due, count)
	if errors.Is(err, ledger.ErrResync) {
		s.metrics.disagreed.Inc()
		s.log.Warn("state disagrees with its checkpoints, reading it again", "seq", n.Seq)
	}
	return err
}

// report tells of the values of policy labels that mean nothing.
func (s *Server) report(due []ignoredPolicy, count [labels]int) {
	for l, n := range count {
		s.metrics.ignored[l].Set(float64(n))
	}
	for _, p := range due {
		s.log.Warn("the value of a policy label means nothing and is ignored", "key", p.key.String(), "label", p.label.String(),
			"value", clip(p.value), "accepted", strings.Join(p.label.values(), ", "))
	}
}

// record takes a notice of the clusters' records.
func (s *Server) record(n ledger.Notice) error {
	s.store.mu.Lock()
	s.store.record(n)
	s.store.mu.Unlock()
	s.poke()
	return nil
}

func (s *Server) poke() {
	select {
	case s.synced <- struct{}{}:
	default:
	}
}

// awaitReady returns true when everything expected is in sync, or when the start timeout has passed and the bus was
// read; false when ctx ends.
func (s *Server) awaitReady(ctx context.Context) bool {
	timeout := time.NewTimer(s.cfg.StartTimeout)
	defer timeout.Stop()
	late := false
	for {
		s.store.mu.Lock()
		waiting, read := s.store.waiting()
		s.store.mu.Unlock()
		switch {
		case read && len(waiting) == 0:
			return true
		case read && late:
			s.log.Warn("serving without being in sync", "clusters", strings.Join(waiting, ","))
			return true
		case !read:
			s.notReady("it has not read the bus, or no cluster is known")
		default:
			s.notReady("not in sync with " + strings.Join(waiting, ", "))
		}
		select {
		case <-s.synced:
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			return false
		}
	}
}
