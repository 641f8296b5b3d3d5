package gate

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// served is a gate over a fake behind real HTTP.
func served(t *testing.T, change func(*Config)) (*fake, *prometheus.Registry, string) {
	t.Helper()
	f, reg := newFake(), prometheus.NewRegistry()
	cfg := Config{
		Name: "r1", Replica: f, Clusters: func() []string { return []string{"prod"} },
		Floor: func(context.Context, string) (endpoint.Version, error) { return version(100), nil },
		Log:   slog.New(slog.DiscardHandler), Registerer: reg,
	}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewUnstartedServer(g.Handler())
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Start()
	t.Cleanup(func() { cancel(); s.Close(); http.DefaultClient.CloseIdleConnections() })
	return f, reg, s.URL
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	r, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestTheAnswerIsTheJSONOfTheContract(t *testing.T) {
	f, _, base := served(t, nil)
	leaving := at(cart, 7, "-st", false)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.do(func() {
		f.show(leaving)
		s := f.connect("envoy-1", podAddr)
		s.Since, s.Address = since, "192.0.2.1:5000"
	})
	code, body := get(t, base+"/v1/drain?cluster=prod&namespace=shop&pod=cart-1&uid=u1&ip=10.0.0.1,fd00::1&timeout=20ms")
	var waited struct {
		WaitedMS map[string]int64 `json:"waited_ms"`
	}
	if err := json.Unmarshal([]byte(body), &waited); err != nil {
		t.Fatal(err)
	}
	ms := waited.WaitedMS["acknowledged"]
	if ms < 20 {
		t.Errorf("got %d ms waited, want at least the timeout", ms)
	}
	got := strings.Replace(body, `"acknowledged":`+jsonOf(t, ms), `"acknowledged":20`, 1)
	want := `{"drained":false,"reason":"unacknowledged",` +
		`"proxies":[{"node":"envoy-1","address":"192.0.2.1:5000","replica":"r1","since":"2026-01-02T03:04:05Z"}],` +
		`"missing":[{"node":"envoy-1","address":"192.0.2.1:5000","replica":"r1","since":"2026-01-02T03:04:05Z"}],` +
		`"services":[{"namespace":"shop","service":"cart","port":"http","number":8080}],` +
		`"waited_ms":{"seen":0,"acknowledged":20},"mode":"removed"}` + "\n"
	if diff := cmp.Diff(want, got); code != http.StatusOK || diff != "" {
		t.Errorf("status %d, answer (-want +got):\n%s", code, diff)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestListsOfAnAnswerAreNeverNull(t *testing.T) {
	_, _, base := served(t, nil)
	code, body := get(t, base+"/v1/drain?uid=u1")
	want := `{"drained":true,"reason":"no-service","proxies":[],"missing":[],"services":[],"waited_ms":`
	if code != http.StatusOK || !strings.HasPrefix(body, want) {
		t.Errorf("got %d %s, want %s...", code, body, want)
	}
}

func TestABadParameterGetsOneLineThatNamesIt(t *testing.T) {
	_, _, base := served(t, nil)
	for query, want := range map[string]string{
		"":                                 "parameter uid or ip is missing: nothing tells which pod is meant",
		"uid=u1&timeout=soon":              `parameter timeout: "soon" is not a duration such as 15s`,
		"uid=u1&timeout=-1s":               "parameter timeout: -1s is not above 0",
		"uid=u1&timeout=20m":               "parameter timeout: 20m0s is not between 0 and 10m0s",
		"uid=u1&ignore-silent=-1s":         "parameter ignore-silent: -1s is below 0",
		"uid=u1&cluster=No":                `parameter cluster: "No" is not a DNS label`,
		"uid=u1&namespace=a.b":             `parameter namespace: "a.b" is not a DNS label`,
		"uid=u1&pod=a/b":                   `parameter pod: "a/b" is not a pod name`,
		"uid=a%0Ab":                        `parameter uid: "a\nb" is not a uid`,
		"ip=localhost":                     `parameter ip: "localhost" is not an address`,
		"uid=u1&uuid=u2":                   `unknown parameter "uuid"`,
		"uid=u1&uid=u2":                    "parameter uid is given 2 times",
		"uid=u1&ip=10.0.0.1%zz":            `query: invalid URL escape "%zz"`,
		"ip=" + strings.Repeat("::1,", 17): "parameter ip: more than 16 addresses",
	} {
		code, body := get(t, base+"/v1/drain?"+query)
		if code != http.StatusBadRequest || body != want+"\n" {
			t.Errorf("%q: got %d %q, want 400 %q", query, code, body, want)
		}
	}
}

func TestTheClusterMayBeLeftOutOnlyWhileTheBusKnowsOne(t *testing.T) {
	f, _, base := served(t, func(c *Config) { c.Clusters = func() []string { return []string{"east", "west"} } })
	f.show(at(cart, 7, "-st", false))
	if code, body := get(t, base+"/v1/drain?uid=u1"); code != http.StatusBadRequest || !strings.Contains(body, "parameter cluster") {
		t.Errorf("got %d %q, want 400 that names cluster", code, body)
	}
	if code, body := get(t, base+"/v1/drain?uid=u1&cluster=east"); code != http.StatusOK || !strings.Contains(body, `"drained":true`) {
		t.Errorf("got %d %q, want drained", code, body)
	}
}

func TestAClusterThatIsNotKnownYetIsWaitedFor(t *testing.T) {
	var names []string
	f, _, base := served(t, func(c *Config) { c.Clusters = func() []string { return names } })
	code, body := get(t, base+"/v1/drain?uid=u1&timeout=20ms")
	if code != http.StatusOK || !strings.Contains(body, `"reason":"unknown"`) {
		t.Errorf("got %d %q, want unknown", code, body)
	}
	f.do(func() { names = []string{"prod"} })
	if code, body := get(t, base+"/v1/drain?uid=u1"); code != http.StatusOK || !strings.Contains(body, `"drained":true`) {
		t.Errorf("got %d %q, want drained", code, body)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	_, _, base := served(t, nil)
	for _, path := range []string{"/", "/metrics", "/v1/", "/v1/drain/x", "/v1/services"} {
		if code, _ := get(t, base+path); code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, code)
		}
	}
	r, err := http.Post(base+"/v1/drain?uid=u1", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d, want 405", r.StatusCode)
	}
}

func TestWaitsAreLimitedPerPodAndInAll(t *testing.T) {
	f, reg, base := served(t, func(c *Config) { c.MaxWaits = 3; c.MaxWaitsPerPod = 2 })
	f.show(at(cart, 7, "-st", false))
	s := f.connect("envoy-1", podAddr)
	done := make(chan int, 3)
	open := func(uid string, waits int) {
		t.Helper()
		go func() {
			code, _ := getQuietly(base + "/v1/drain?uid=" + uid)
			done <- code
		}()
		for waitsOf(t, reg) != waits {
			time.Sleep(time.Millisecond)
		}
	}
	open("u1", 1)
	open("u1", 2)
	if code, _ := get(t, base+"/v1/drain?uid=u1"); code != http.StatusTooManyRequests {
		t.Errorf("third wait of one pod: got %d, want 429", code)
	}
	open("u2", 3)
	if code, _ := get(t, base+"/v1/drain?uid=u3"); code != http.StatusTooManyRequests {
		t.Errorf("fourth wait in all: got %d, want 429", code)
	}
	f.do(func() { s.acked = nil })
	for range 3 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("got %d, want 200", code)
		}
	}
	if code, _ := get(t, base+"/v1/drain?uid=u1"); code != http.StatusOK {
		t.Errorf("after the others: got %d, want 200", code)
	}
}

func waitsOf(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "slicecast_drain_waits" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("no gauge of waits")
	return 0
}

func getQuietly(address string) (int, error) {
	r, err := http.Get(address)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode, r.Body.Close()
}

func TestAReplicaThatEndsSendsItsWaitsAway(t *testing.T) {
	f := newFake()
	f.show(at(cart, 7, "-st", false))
	f.connect("envoy-1", podAddr)
	g, err := New(Config{
		Replica: f, Clusters: func() []string { return []string{"prod"} },
		Floor: func(context.Context, string) (endpoint.Version, error) { return version(100), nil },
		Log:   slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/drain?uid=u1", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d, want 503", w.Code)
	}
}

func TestTheQueryOnTheBusAsksAndAnswersTheSame(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", false))
		body, err := b.gate.Query(b.t.Context(), []byte(`{"cluster":"prod","uid":"u1","ip":"10.0.0.1","timeout":"3s"}`))
		if err != nil {
			t.Fatal(err)
		}
		var a Answer
		if err := json.Unmarshal(body, &a); err != nil || !a.Drained || a.Reason != Acknowledged {
			t.Errorf("got %s (%v), want drained", body, err)
		}
		for _, bad := range []string{"", "[]", `{"timeout":"soon"}`, `{}`} {
			if _, err := b.gate.Query(b.t.Context(), []byte(bad)); err == nil {
				t.Errorf("%q: got no error", bad)
			}
		}
	})
}

func TestOutcomesAreCountedByReason(t *testing.T) {
	withGate(t, func(b *bench) {
		b.ask().says(true, NoService, 0)
		_, _ = b.gate.Query(b.t.Context(), nil)
		const want = `
# HELP slicecast_drain_outcomes_total Drain waits that have ended, by reason of the answer.
# TYPE slicecast_drain_outcomes_total counter
slicecast_drain_outcomes_total{reason="acknowledged"} 0
slicecast_drain_outcomes_total{reason="always-ready"} 0
slicecast_drain_outcomes_total{reason="cancelled"} 0
slicecast_drain_outcomes_total{reason="last-endpoint"} 0
slicecast_drain_outcomes_total{reason="no-service"} 1
slicecast_drain_outcomes_total{reason="not-leaving"} 0
slicecast_drain_outcomes_total{reason="shared-address"} 0
slicecast_drain_outcomes_total{reason="unacknowledged"} 0
slicecast_drain_outcomes_total{reason="unknown"} 0
# HELP slicecast_drain_refused_total Drain questions that were refused, by cause.
# TYPE slicecast_drain_refused_total counter
slicecast_drain_refused_total{cause="bad-request"} 1
slicecast_drain_refused_total{cause="busy"} 0
# HELP slicecast_drain_waits Drain waits that are open now.
# TYPE slicecast_drain_waits gauge
slicecast_drain_waits 0
`
		if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want),
			"slicecast_drain_outcomes_total", "slicecast_drain_refused_total", "slicecast_drain_waits"); err != nil {
			t.Error(err)
		}
	})
}

func FuzzRequestsAreReadOrRefused(f *testing.F) {
	f.Add("cluster=prod&namespace=shop&pod=cart-1&uid=u1&ip=10.0.0.1,fd00::1&timeout=15s&ignore-silent=1m&fallback-wait=0")
	f.Add("ip=::ffff:10.0.0.1")
	f.Fuzz(func(t *testing.T, query string) {
		r, err := requestOf(query)
		if err != nil {
			return
		}
		p, err := r.pod()
		if err != nil {
			return
		}
		if p.UID == "" && len(p.Addrs) == 0 {
			t.Errorf("%q names no pod: %+v", query, p)
		}
		for _, a := range p.Addrs {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("%q: address %q is not plain", query, a)
			}
		}
	})
}
