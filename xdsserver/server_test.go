package xdsserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// notListening fails if the server listens although everything it was told has been handled.
func (b *bench) notListening(why string) {
	b.t.Helper()
	select {
	case <-b.server.Listening():
		b.t.Fatal("it listens although " + why)
	case <-time.After(20 * time.Millisecond):
	}
	if ok, text := b.server.Ready(); ok || !strings.Contains(text, why) {
		b.t.Errorf("ready %t, %q, want %q", ok, text, why)
	}
}

func TestItListensOnlyOnceInSyncWithEveryExpectedCluster(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Expected = []string{"edge"} })
	b.bus.store(stateNotice(cartAt(7, "10.0.0.1")), false)
	b.bus.store(b.bus.checkpointOf("prod", 7), false)
	b.start()
	b.notListening("not in sync with edge")
	b.put(stateOf(sliceOf("edge", "e", 3, ep("10.1.0.1 rs-"))))
	b.notListening("not in sync with edge")
	b.bus.store(b.bus.checkpointOf("edge", 3), true)
	b.dial()
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w2 10.0.0.1:8080 10.1.0.1:8080"})
	if ok, why := b.server.Ready(); !ok {
		t.Errorf("not ready: %s", why)
	}
}

func TestAnEmptyBusIsNoState(t *testing.T) {
	b := newBench(t).start()
	b.notListening("no cluster is known")
	b.put(cartAt(7, "10.0.0.1"))
	b.notListening("not in sync with prod")
	b.bus.store(b.bus.checkpointOf("prod", 7), true)
	b.dial()
}

func TestAfterTheStartTimeoutItServesWhatIsStored(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Expected, c.StartTimeout = []string{"edge"}, 50*time.Millisecond })
	b.bus.store(stateNotice(cartAt(7, "10.0.0.1")), false)
	b.start()
	b.dial()
	c := b.deltaClient()
	// Nothing is known of edge, so what nobody knows may be there.
	c.subscribe("eds", nil, "nobody.shop", "cart.shop.edge:http", "cart.shop.prod:grpc", cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080", "cart.shop.prod:grpc": ""})
	c.subscribe("cds", nil, "nobody.shop", cart)
	if g := c.ack(c.recv()); !slices.Equal(g.names, []string{cart}) || len(g.removed) > 0 {
		t.Fatalf("got %+v, want the known cluster alone", g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	b.bus.store(b.bus.checkpointOf("edge", 1), true)
	c.expectParts(map[string]string{"nobody.shop": "", "cart.shop.edge:http": ""}, "nobody.shop")
}

// expectParts receives delta responses until these assignments and removed clusters have come.
func (c *client) expectParts(want map[string]string, removed ...string) {
	c.t.Helper()
	for len(want) > 0 || len(removed) > 0 {
		g := c.ack(c.recv())
		for name, text := range g.res {
			if w, wanted := want[name]; !wanted || w != text {
				c.t.Fatalf("got %s %q, want %v", name, text, want)
			}
			delete(want, name)
		}
		for _, name := range g.removed {
			if !slices.Contains(removed, name) {
				c.t.Fatalf("%s is removed, want %v", name, removed)
			}
			removed = slices.DeleteFunc(removed, func(s string) bool { return s == name })
		}
	}
}

func TestTheFirstAnswerWaitsForAllThatTheBusHolds(t *testing.T) {
	b := newBench(t, func(c *Config) { c.FirstAnswerWait = time.Hour }).with(cartAt(7, "10.0.0.1"))
	b.bus.mu.Lock()
	b.bus.hidden = 1
	b.bus.mu.Unlock()
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		b.server.store.mu.Lock()
		waiting = len(b.server.store.behind)
		b.server.store.mu.Unlock()
	}
	b.put(cartAt(8, "10.0.0.2"))
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})
}

func TestWhileTheBusIsLostWhatIsThereIsServed(t *testing.T) {
	b := newBench(t, func(c *Config) { c.FirstAnswerWait = 30 * time.Millisecond }).with(cartAt(7, "10.0.0.1"))
	b.bus.mu.Lock()
	b.bus.lastErr = errors.New("no leader")
	b.bus.mu.Unlock()
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	b.bus.mu.Lock()
	b.bus.lastErr, b.bus.hidden = nil, 1
	b.bus.mu.Unlock()
	d := b.sotwClient()
	d.ask("eds", cart)
	d.want("eds", map[string]string{cart: "p0 / w1 10.0.0.1:8080"}, cart)
	if n := counter(t, b.server.metrics.late); n != 2 {
		t.Errorf("%v late answers were counted, want 2", n)
	}
}

func TestARolledBackStreamTakesNothingFromClients(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	c.ack(c.recv())
	c.subscribe("eds", nil, cart, api)
	c.ack(c.recv())
	b.bus.mu.Lock()
	clear(b.bus.states)
	clear(b.bus.checks)
	b.bus.mu.Unlock()
	b.bus.reopen <- struct{}{}
	b.put(otherAt("api", 9, "10.0.0.8"))
	c.expect(map[string]string{api: "p0 / w1 10.0.0.8:8080"})
	c.fence()
	// A checkpoint says what is really gone.
	b.bus.store(b.bus.checkpointOf("prod", 9), true)
	c.expectParts(map[string]string{cart: ""}, cart)
}

func TestDisagreeingCheckpointsAreReadAgain(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	for range 2 {
		n := b.bus.checkpointOf("prod", 9)
		n.Checkpoint.Count++
		b.bus.store(n, true)
	}
	b.put(cartAt(10, "10.0.0.2"))
	b.bus.mu.Lock()
	defer b.bus.mu.Unlock()
	if b.bus.session != 2 {
		t.Errorf("%d sessions, want 2", b.bus.session)
	}
}

func TestLatencyIsObservedForLiveChangesOnly(t *testing.T) {
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "propagation"}, []string{"stage"})
	b := newBench(t, func(c *Config) { c.Propagation = stages }).with(cartAt(7, "10.0.0.1"))
	count := func(stage string) uint64 {
		return samples(t, stages.WithLabelValues(stage).(prometheus.Histogram))
	}
	c, d := b.deltaClient(), b.deltaClient()
	for _, one := range []*client{c, d} {
		one.subscribe("eds", nil, cart)
		one.ack(one.recv())
		one.fence()
	}
	settled(b, 2)
	if push, ack, total := count("push"), count("ack"), count("total"); push+ack+total != 0 {
		t.Errorf("a first answer was observed: %d, %d, %d", push, ack, total)
	}
	b.put(cartAt(8, "10.0.0.2"))
	c.ack(c.recv())
	late := d.recv()
	for count("ack") < 1 {
		time.Sleep(time.Millisecond)
	}
	if n := count("total"); n != 0 {
		t.Errorf("the total was observed before the last client: %d", n)
	}
	d.ack(late)
	settled(b, 2)
	if push, ack, total := count("push"), count("ack"), count("total"); push != 2 || ack != 2 || total != 1 {
		t.Errorf("push %d, ack %d, total %d, want 2, 2, 1", push, ack, total)
	}
}

func TestMetricsHaveTheirNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *Config) { c.Metrics = reg }).with(stateOf(sliceOf("prod", "a", 7, ep("10.0.0.1 -st"))))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart, "nobody.shop")
	c.ack(c.recv())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), "slicecast_xds_"))
	}
	want := []string{
		"acks_total", "client_status_requests_total", "current", "delayed_streams_total", "empty_assignments_total", "fallback", "handed_over_streams_total",
		"hidden_names_total", "ignored_policies", "late_first_answers_total", "list_bad_entries_total", "list_pending", "list_writes_total", "nacks_total",
		"peers", "push_bytes_total", "pushes_total", "refused_streams_total", "refused_types_total", "resources_total", "resyncs_total", "slow_streams_total",
		"streams", "tls_reloads_total", "turned_away_streams_total", "unknown_names_total", "vanished_streams", "views", "window_stalls_total",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	m := b.server.metrics
	for what, got := range map[string]float64{
		"fallback": counter(t, m.fallback), "empty": counter(t, m.empty), "unknown": counter(t, m.unknownNames), "views": counter(t, m.views),
		"streams": counter(t, m.streams.WithLabelValues("ads", "delta")),
	} {
		if got != 1 {
			t.Errorf("%s is %v, want 1", what, got)
		}
	}
	if _, err := New(Config{States: b.bus, Records: b.bus, Listen: "127.0.0.1:0", Metrics: reg}); err == nil {
		t.Error("the same names were registered twice")
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	bus := newFakeBus(t)
	good := func() Config { return Config{States: bus, Records: bus, Listen: "127.0.0.1:0"} }
	for name, change := range map[string]func(*Config){
		"the bus is missing": func(c *Config) { c.States = nil },
		"not any, region or": func(c *Config) { c.FailoverDefault = "far" },
		"are not enough":     func(c *Config) { c.MaxViews = -1 },
		"is negative":        func(c *Config) { c.SlowLimit = -1 },
		"listen address":     func(c *Config) { c.Listen = "nowhere" },
	} {
		cfg := good()
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestAnAddressThatIsTakenEndsRun(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	if b.server.Store() == nil || b.server.Hub() == nil {
		t.Fatal("it has neither memory nor hub")
	}
	other := newBench(t, func(c *Config) { c.Listen = b.server.Addr().String() })
	other.bus.store(stateNotice(cartAt(7, "10.0.0.1")), false)
	other.bus.store(other.bus.checkpointOf("prod", 7), false)
	if other.server.Addr() != nil {
		t.Error("it has an address before it listens")
	}
	if err := other.server.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestAFailingReaderEndsRun(t *testing.T) {
	b := newBench(t)
	broken := errors.New("broken")
	b.server.cfg.States = brokenStates{broken}
	if err := b.server.Run(context.Background()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type brokenStates struct{ err error }

func (b brokenStates) Follow(context.Context, string, func(ledger.Notice) error) error { return b.err }
func (b brokenStates) Last(context.Context) (uint64, error)                            { return 0, b.err }
