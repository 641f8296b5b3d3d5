package watcher_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/watcher"
)

func TestMain(m *testing.M) { bustest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// patience is how long a test waits for what must come; it is no measure of speed.
const patience = 2 * time.Minute

func startBus(t *testing.T) *bus.Embedded {
	t.Helper()
	e, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

func connect(t *testing.T, e *bus.Embedded, name string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{Name: name, Server: e, Log: quiet, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// running runs what returns when its context ends; stop ends it.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// signal wakes all who wait for a change.
type signal struct {
	mu sync.Mutex // guards what its owner says, and ch
	ch chan struct{}
}

func (s *signal) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.ch != nil {
		close(s.ch)
	}
	s.ch = make(chan struct{})
}

func (s *signal) changed() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// until waits until ok holds, which is asked under the lock.
func (s *signal) until(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		done, ch := ok(), s.changed()
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ch:
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatal(what())
		}
	}
}

// cluster is a model of an API server: its slices, and the history of their changes.
type cluster struct {
	signal
	uid     string
	version uint64
	now     map[string]endpoint.Slice
	history []change
	epoch   int // of its history: another one after a restore
}

type change struct {
	slice endpoint.Slice
	gone  bool
}

func newCluster() *cluster {
	return &cluster{uid: "uid-1", version: 1000, now: map[string]endpoint.Slice{}}
}

// set writes a slice of a service with endpoints that are ready; "-" before an address means not ready.
func (c *cluster) set(service, name string, addrs ...string) {
	sl := endpoint.Slice{
		Key: endpoint.Key{Cluster: "east", Namespace: "shop", Service: service}, Name: name, UID: "uid-" + name,
		Translator: watcher.TranslatorVersion, Ports: []endpoint.Port{{Name: "http", Number: 8080}},
	}
	for _, a := range addrs {
		conditions := endpoint.Ready | endpoint.Serving
		if rest, not := strings.CutPrefix(a, "-"); not {
			a, conditions = rest, endpoint.Terminating
		}
		sl.Endpoints = append(sl.Endpoints, endpoint.Endpoint{Addr: netip.MustParseAddr(a), Conditions: conditions, TargetUID: "pod-" + a})
	}
	sl = sl.Canonical()
	c.do(func() {
		c.version++
		sl.Version.Resource = c.version
		c.now[name] = sl
		c.history = append(c.history, change{slice: sl})
	})
}

func (c *cluster) remove(name string) {
	c.do(func() {
		sl := c.now[name]
		c.version++
		sl.Version.Resource = c.version
		delete(c.now, name)
		c.history = append(c.history, change{sl, true})
	})
}

// source is a watcher.Source on the model.
type source struct {
	c      *cluster
	skew   time.Duration // of the clock of its process
	gate   *gate         // nothing is heard while it is closed
	before []endpoint.Slice
	asOf   uint64 // of before, which is its first list; 0: none
}

// gate is open or closed.
type gate struct {
	signal
	closed bool
}

func (g *gate) close(closed bool) { g.do(func() { g.closed = closed }) }

// pass waits until the gate is open.
func (g *gate) pass(ctx context.Context) {
	for g != nil && ctx.Err() == nil {
		g.mu.Lock()
		closed, ch := g.closed, g.changed()
		g.mu.Unlock()
		if !closed {
			return
		}
		select {
		case <-ch:
		case <-ctx.Done():
		}
	}
}

// UID implements watcher.Source.
func (s *source) UID(context.Context) (string, error) { return s.c.uid, nil }

// Floor implements watcher.Source.
func (s *source) Floor(context.Context) (uint64, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.version, nil
}

// Watch implements watcher.Source.
func (s *source) Watch(ctx context.Context, scope watcher.Scope, handle func(watcher.Update)) error {
	for ctx.Err() == nil {
		s.round(ctx, scope, handle)
	}
	return nil
}

// round lists, then watches until the history is another one.
func (s *source) round(ctx context.Context, scope watcher.Scope, handle func(watcher.Update)) {
	stamp := func(sl endpoint.Slice) endpoint.Slice {
		sl.Version.Generation, sl.Observed = scope.Generation, time.Now().Add(s.skew)
		return sl
	}
	handle(watcher.Update{Kind: watcher.Listing})
	s.gate.pass(ctx)
	s.c.mu.Lock()
	list, at, from, epoch := slices.Collect(maps.Values(s.c.now)), s.c.version, len(s.c.history), s.c.epoch
	if s.asOf != 0 {
		list, at, s.asOf = s.before, s.asOf, 0
	}
	s.c.mu.Unlock()
	for i := range list {
		list[i] = stamp(list[i])
	}
	handle(watcher.Update{Kind: watcher.Listed, Slices: list, AsOf: at})
	for ctx.Err() == nil {
		s.gate.pass(ctx)
		s.c.mu.Lock()
		another, ch := s.c.epoch != epoch, s.c.changed()
		var next []change
		if !another {
			next, from = s.c.history[from:], len(s.c.history)
		}
		s.c.mu.Unlock()
		if another {
			return
		}
		for _, c := range next {
			if c.slice.Version.Resource > at {
				s.gate.pass(ctx)
				handle(news(c, stamp))
			}
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-ch:
		case <-ctx.Done():
		}
	}
}

// news is what a source says of a change.
func news(c change, stamp func(endpoint.Slice) endpoint.Slice) watcher.Update {
	u := watcher.Update{Kind: watcher.Removed, Namespace: c.slice.Key.Namespace, Name: c.slice.Name, AsOf: c.slice.Version.Resource}
	if !c.gone {
		u.Kind, u.Slice = watcher.Changed, stamp(c.slice)
	}
	return u
}

// counted is EVENTS that counts its writes and can hold them up.
type counted struct {
	*bus.Events
	gate *gate

	mu        sync.Mutex // guards what follows
	puts      int
	lost      int // compare-and-sets
	withBody  int // sessions that read bodies
	followers int
}

// Put is bus.Events.Put, some time after it was decided.
func (c *counted) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	c.gate.pass(ctx)
	res, err := c.Events.Put(ctx, ev, expect)
	c.mu.Lock()
	defer c.mu.Unlock()
	if res.Saved {
		c.puts++
	} else if err == nil {
		c.lost++
	}
	return res, err
}

// Follow is bus.Events.Follow.
func (c *counted) Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error {
	c.mu.Lock()
	c.followers++
	if !headersOnly {
		c.withBody++
	}
	c.mu.Unlock()
	return c.Events.Follow(ctx, cluster, headersOnly, handle)
}

func (c *counted) counts() (puts, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.puts, c.lost
}

// watch runs a watcher of cluster east.
func watch(t *testing.T, b *bus.Bus, s watcher.Source, change ...func(*watcher.Config)) (w *watcher.Watcher, ev *counted, stop func()) {
	t.Helper()
	ev = &counted{Events: b.Events()}
	cfg := watcher.Config{Cluster: "east", Source: s, Events: ev, Certifier: b.Events(), Records: b.Events(), Registry: registry{b}}
	for _, c := range change {
		c(&cfg)
	}
	w, err := watcher.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w, ev, running(t, w.Run)
}

// registry is the one on the bus.
type registry struct{ *bus.Bus }

// Members implements watcher.Registry.
func (r registry) Members(ctx context.Context, cluster string, handle func([]watcher.Member)) error {
	return r.Bus.Members(ctx, cluster, func(all []bus.Member) {
		var members []watcher.Member
		for _, m := range all {
			members = append(members, watcher.Member{ID: m.ID, Info: m.Info})
		}
		handle(members)
	})
}

// view is a reader of a cluster's events.
type view struct {
	signal
	t       *testing.T
	led     *ledger.Ledger
	entries map[string]ledger.Notice // by slice
	cp      ledger.Checkpoint
	record  ledger.Record
	news    int // messages of slices
	back    int // of them that were older than the one before
}

// read follows the events of cluster east until the test ends.
func read(t *testing.T, b *bus.Bus) *view {
	t.Helper()
	v := &view{t: t, led: ledger.New()}
	running(t, func(ctx context.Context) error { return b.Events().Follow(ctx, "east", false, v.handle) })
	return v
}

func (v *view) handle(n ledger.Notice) error {
	v.do(func() {
		id := n.Key.String() + "/" + n.Slice
		switch n.Kind {
		case ledger.Opened:
			v.led, v.entries = ledger.New(), map[string]ledger.Notice{}
		case ledger.Changed:
			v.news++
			if v.entries[n.Slice].Version.After(n.Version) {
				v.back++
			}
			v.entries[n.Slice] = n
			if n.Gone {
				v.led.Put(id, n.Seq, 0, ledger.Sum{})
			} else {
				v.led.Put(id, n.Seq, 1, ledger.Digest(n.Key, n.Slice, n.Version, n.Hash))
			}
		case ledger.Certified:
			v.cp = n.Checkpoint
			v.led.Advance(n.Seq)
		case ledger.Recorded:
			v.record = n.Record
			v.led.Advance(n.Seq)
		case ledger.Complete:
			v.led.Complete(n.Seq)
		}
	})
	return nil
}

// difference says how what the bus holds differs from the cluster; "" when it does not, and a checkpoint says so.
func (v *view) difference(c *cluster) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	// This first: it costs nothing, and is the last to come.
	if v.cp.Complete.Resource < c.version || v.led.Judge(v.cp) != ledger.Agrees {
		return fmt.Sprintf("checkpoint %+v, verdict %d, cluster at %d", v.cp, v.led.Judge(v.cp), c.version)
	}
	live := 0
	for _, n := range v.entries {
		if !n.Gone {
			live++
		}
	}
	for name, sl := range c.now {
		if n, ok := v.entries[name]; !ok || n.Gone || n.Version.Resource != sl.Version.Resource || n.Hash != sl.Hash() {
			return fmt.Sprintf("%s is %d in the cluster, %s (gone %v) on the bus", name, sl.Version.Resource, n.Version, n.Gone)
		}
	}
	if live != len(c.now) {
		return fmt.Sprintf("%d slices on the bus, %d in the cluster", live, len(c.now))
	}
	return ""
}

// equal waits until the bus holds what the cluster holds, and a checkpoint says so.
func (v *view) equal(t *testing.T, what string, c *cluster) {
	t.Helper()
	v.until(t, func() string { return what + ": " + v.difference(c) }, func() bool { return v.difference(c) == "" })
}
