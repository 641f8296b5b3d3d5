package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a projector on a fake bus until the test ends. cfg may change its Config.
func start(t *testing.T, f *fake, cfg func(*Config)) *Projector {
	t.Helper()
	c := Config{Events: fakeEvents{f}, States: f, Certifier: f}
	if cfg != nil {
		cfg(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait() // What the stream holds by now is the snapshot; what comes later is live.
	return p
}

// lines gives the slices that the bus holds of key.
func (f *fake) lines(key endpoint.Key) string {
	n := f.stored(key)
	if n.State == nil {
		return "nothing"
	}
	var all []string
	for _, s := range n.State.Slices {
		all = append(all, endpointtest.FormatSlice(s))
	}
	return strings.Join(all, "; ")
}

func (f *fake) wants(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := f.lines(cart); got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
}

func TestEventsBecomeStatesAndCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.tell(t, set(a10))
		f.complete(t, "prod", "10")
		start(t, f, nil)
		f.wants(t, a10)
		f.tell(t, set(a11))
		f.wants(t, a11)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		cp := f.states.get(ledger.Notice{Kind: ledger.Certified, Cluster: "prod"}).Checkpoint
		count, sum := ledger.OfState(*f.stored(cart).State)
		if cp.Complete != versionOf(t, "10") || cp.Count != count || cp.Sum != sum {
			t.Errorf("got checkpoint %+v, want one of 10 with the sum of what is stored", cp)
		}
	})
}

func TestAClusterThatAppearsLaterIsProjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		start(t, f, nil)
		synctest.Wait()
		f.tell(t, "set edge/shop/cart cart-a rv=3 -")
		f.complete(t, "edge", "3")
		synctest.Wait()
		if got := f.lines(endpoint.Key{Cluster: "edge", Namespace: "shop", Service: "cart"}); got != "cart-a rv=3 -" {
			t.Errorf("stored %q", got)
		}
	})
}

func TestOnlyTheClusterOfTheConfigIsProjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		start(t, f, func(c *Config) { c.Cluster = "edge" })
		f.tell(t, set(a10))
		f.complete(t, "prod", "10")
		f.wants(t, "nothing")
	})
}

func TestAWriteThatFailsIsTriedAgainWithTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.putFails = 4
		f.complete(t, "prod", "1")
		start(t, f, nil)
		f.tell(t, set(a10))
		f.wants(t, "nothing")
		f.tell(t, set(a11))
		f.wants(t, "nothing")
		time.Sleep(5 * time.Second)
		f.wants(t, a11)
		if seq := f.stored(cart).Seq; seq != 2 { // The checkpoint of the empty cluster was first.
			t.Errorf("stored at sequence %d, want only one write to have come through", seq)
		}
	})
}

func TestAWriteThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.block = make(chan struct{})
		f.complete(t, "prod", "1")
		start(t, f, nil)
		f.tell(t, set(a10))
		synctest.Wait()
		f.mu.Lock()
		f.block = nil
		f.mu.Unlock()
		time.Sleep(6 * time.Second)
		f.wants(t, a10)
	})
}

func TestWritesAreBoundedAndCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.block = make(chan struct{})
		f.complete(t, "prod", "1")
		f.complete(t, "edge", "1")
		start(t, f, func(c *Config) { c.Parallel = 3; c.WriteTimeout = time.Hour })
		version := 10
		for range 5 { // Each service changes five times while nothing gets through.
			for i := range 10 {
				version++
				f.tell(t, fmt.Sprintf("set prod/shop/s%d a rv=%d -", i, version), fmt.Sprintf("set edge/shop/s%d a rv=%d -", i, version))
			}
		}
		synctest.Wait()
		f.mu.Lock()
		flying, block := f.flying, f.block
		f.block = nil
		f.mu.Unlock()
		if flying != 3 {
			t.Errorf("got %d writes on their way, want 3", flying)
		}
		close(block)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.mostAtAll != 3 {
			t.Errorf("got up to %d writes on their way, want 3", f.mostAtAll)
		}
		states := 0
		for _, n := range f.states.log {
			if n.Kind == ledger.Changed {
				states++
			}
		}
		// The three that hung wrote an old state first; every other service wrote the newest one, once.
		if states != 20+3 {
			t.Errorf("got %d writes, want 23", states)
		}
		for i := range 10 {
			want := fmt.Sprintf("a rv=%d -", version-9+i)
			if got := f.lines(endpoint.Key{Cluster: "edge", Namespace: "shop", Service: fmt.Sprint("s", i)}); got != want {
				t.Errorf("service %d: stored %q, want %q", i, got, want)
			}
		}
	})
}

func TestCheckpointsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		start(t, f, nil)
		for v := 10; v < 60; v++ {
			f.tell(t, fmt.Sprintf("set prod/shop/cart cart-a rv=%d -", v))
			f.complete(t, "prod", fmt.Sprint(v))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(f.certified); n < 5 || n > 7 {
			t.Errorf("got %d checkpoints in 5 s of change and 10 s of quiet, want one per second of change", n)
		}
		for i := 1; i < len(f.certified); i++ {
			if d := f.certified[i].Sub(f.certified[i-1]); d < time.Second {
				t.Errorf("two checkpoints within %s", d)
			}
		}
		if cp := f.states.get(ledger.Notice{Kind: ledger.Certified, Cluster: "prod"}).Checkpoint; cp.Complete != versionOf(t, "59") {
			t.Errorf("last checkpoint is of %s, want 59", cp.Complete)
		}
	})
}

func TestAViewThatDisagreesTwiceOpensANewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		start(t, f, nil)
		synctest.Wait()
		for v := range 2 {
			n := ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Checkpoint: ledger.Checkpoint{Complete: versionOf(t, fmt.Sprint(v+2)), AsOf: f.events.seq, Count: 5}}
			f.events.put(n, f.events.get(n).Seq)
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		f.tell(t, set(a10))
		f.complete(t, "prod", "10")
		f.wants(t, a10)
		f.events.mu.Lock()
		defer f.events.mu.Unlock()
		if f.events.sessions != 2 {
			t.Errorf("got %d sessions of events, want 2", f.events.sessions)
		}
	})
}

func TestPropagationIsTakenFromLiveChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.tell(t, set(b20))
		f.complete(t, "prod", "20")
		time.Sleep(time.Hour)
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "propagation", Buckets: []float64{60}}, []string{"stage"})
		reg := prometheus.NewRegistry()
		reg.MustRegister(h)
		start(t, f, func(c *Config) { c.Propagation = h })
		f.wants(t, b20)
		if n := testutil.CollectAndCount(h); n != 0 {
			t.Errorf("the snapshot gave %d series", n)
		}
		f.tell(t, set("cart-a rv=21 -"))
		synctest.Wait()
		got, err := reg.Gather()
		if err != nil || len(got) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		m := got[0].GetMetric()[0]
		if m.GetLabel()[0].GetValue() != "project" || m.GetHistogram().GetSampleCount() != 1 || m.GetHistogram().GetSampleSum() > 60 {
			t.Errorf("got %v, want one observation of stage project, without the hour before", m)
		}
	})
}

func TestMetricsTellWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.putFails = 1
		f.complete(t, "prod", "1")
		reg := prometheus.NewRegistry()
		start(t, f, func(c *Config) { c.Registerer = reg })
		f.tell(t, set(a10), "set prod/shop/open s rv=12 peers=t@11 -")
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, tt := range []struct {
			name, label string
			want        float64
		}{
			{"slicecast_projector_keys", "prod", 2},
			{"slicecast_projector_open_keys", "prod", 1},
			{"slicecast_projector_writes_total", "error", 1},
			{"slicecast_projector_writes_total", "saved", 1},
			{"slicecast_projector_writes_total", "conflict", 0},
			{"slicecast_projector_checkpoints_total", "match", 2}, // One of each stream.
			{"slicecast_projector_checkpoints_total", "mismatch", 0},
			{"slicecast_projector_writes_in_flight", "", 0},
			{"slicecast_projector_resyncs_total", "prod", 0},
		} {
			if got := total(t, reg, tt.name, tt.label); got != tt.want {
				t.Errorf("%s %s: got %v, want %v", tt.name, tt.label, got, tt.want)
			}
		}
		if got := total(t, reg, "slicecast_projector_floor_timestamp_seconds", "prod"); got == 0 {
			t.Error("the floor has no age")
		}
	})
}

// total sums the series of a metric that have a label of that value; all of them for "".
func total(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := label == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == label
			}
			if family.GetName() == name && has {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	if !found {
		t.Errorf("no series %s of %q", name, label)
	}
	return sum
}

func TestAStreamThatCannotBeFollowedEndsRun(t *testing.T) {
	for _, side := range []string{"events", "states"} {
		f := newFake()
		broken := errors.New("permission denied")
		if side == "events" {
			f.events.broken = broken
		} else {
			f.states.broken = broken
		}
		p, err := New(Config{Events: fakeEvents{f}, States: f, Certifier: f, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), side) {
			t.Errorf("got %v, want %q of %s", err, broken, side)
		}
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	f := newFake()
	good := Config{Events: fakeEvents{f}, States: f, Certifier: f}
	taken := prometheus.NewRegistry()
	if _, err := NewMetrics(taken); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want   string
		change func(*Config)
	}{
		{"needed", func(c *Config) { c.Events = nil }},
		{"needed", func(c *Config) { c.States = nil }},
		{"needed", func(c *Config) { c.Certifier = nil }},
		{"DNS label", func(c *Config) { c.Cluster = "a.b" }},
		{"Parallel", func(c *Config) { c.Parallel = -1 }},
		{"WriteTimeout", func(c *Config) { c.WriteTimeout = -1 }},
		{"RetryMax", func(c *Config) { c.RetryMax = time.Millisecond }},
		{"register", func(c *Config) { c.Registerer = taken }},
	} {
		c := good
		tt.change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want an error with %q", err, tt.want)
		}
	}
	if p, err := New(good); err != nil || p.cfg.Parallel != 128 || p.cfg.RetryMax != 5*time.Second {
		t.Errorf("got %+v, %v, want the defaults", p, err)
	}
}
