package xdsserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slicecast/slicecast/internal/endpoint"
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

func TestHealthIsTakenBackBeforeStreamsEnd(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	watch, err := healthv1.NewHealthClient(b.conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("health %v, %v", r, err)
	}
	ads, err := healthv1.NewHealthClient(b.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService"})
	if err != nil || ads.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("health of ADS %v, %v", ads, err)
	}
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	b.stop()
	if r, err := watch.Recv(); err != nil || r.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while stopping %v, %v", r, err)
	}
	if err := c.end(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	cancel()
	if err := <-b.done; err != nil {
		t.Error(err)
	}
	b.done <- nil
	if ok, _ := b.server.Ready(); ok {
		t.Error("it is ready after its end")
	}
}

func TestServicesOfOneTypeServeThatTypeAlone(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	eds, cds := endpointservice.NewEndpointDiscoveryServiceClient(b.conn), clusterservice.NewClusterDiscoveryServiceClient(b.conn)
	s1, err1 := eds.StreamEndpoints(ctx)
	s2, err2 := cds.StreamClusters(ctx)
	d1, err3 := eds.DeltaEndpoints(ctx)
	d2, err4 := cds.DeltaClusters(ctx)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	// The type may be left out; another one is refused.
	err1 = s1.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeCluster})
	err2 = s1.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{cart}})
	err3 = s2.Send(&discoveryv3.DiscoveryRequest{})
	err4 = d1.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{cart}})
	if err := errors.Join(err1, err2, err3, err4, d2.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCluster})); err != nil {
		t.Fatal(err)
	}
	r1, err1 := s1.Recv()
	r2, err2 := s2.Recv()
	r3, err3 := d1.Recv()
	r4, err4 := d2.Recv()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if r1.TypeUrl != typeAssignment || r3.TypeUrl != typeAssignment || r2.TypeUrl != typeCluster || r4.TypeUrl != typeCluster {
		t.Errorf("types %s, %s, %s, %s", r1.TypeUrl, r2.TypeUrl, r3.TypeUrl, r4.TypeUrl)
	}
	if len(r1.Resources) != 1 || len(r2.Resources) != 1 || len(r3.Resources) != 1 || len(r4.Resources) != 1 {
		t.Errorf("%d, %d, %d, %d resources, want one each", len(r1.Resources), len(r2.Resources), len(r3.Resources), len(r4.Resources))
	}
}

func TestAClientThatDoesNotReadIsEnded(t *testing.T) {
	var states []endpoint.State
	var names []string
	for i := range 80 {
		st := bigService(1000).States[0]
		for j, sl := range st.Slices {
			st.Slices[j] = ofService(sl, "shop", fmt.Sprint("big-", i))
		}
		st.Key = st.Slices[0].Key
		states, names = append(states, st), append(names, fmt.Sprintf("big-%d.shop:http", i))
	}
	b := newBench(t, func(c *Config) { c.SlowLimit = 200 * time.Millisecond }).with(states...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeAssignment, ResourceNamesSubscribe: names}); err != nil {
		t.Fatal(err)
	}
	opened(b, 1)
	opened(b, 0)
	if n := counter(t, b.server.metrics.slow.WithLabelValues(slowSend)); n != 1 {
		t.Errorf("%v blocked sends were counted, want 1", n)
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
		"peers", "push_bytes_total", "pushes_total", "refused_types_total", "resources_total", "resyncs_total", "slow_streams_total",
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
