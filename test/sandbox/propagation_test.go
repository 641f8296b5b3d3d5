package sandbox

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestPropagationIsReadFromTheMetricsTextAndQuantilesAreWithinTheirBucket(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "slicecast_propagation_seconds", Buckets: []float64{0.001, 0.002, 0.004, 0.1}, NativeHistogramBucketFactor: 1.1,
	}, []string{"stage"})
	registry.MustRegister(h)
	scrape := func() Propagation {
		t.Helper()
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		p, err := parsePropagation(w.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	h.WithLabelValues("ack").Observe(50)
	before := scrape()
	for i := range 100 {
		h.WithLabelValues("ack").Observe(0.0015)
		if i < 2 {
			h.WithLabelValues("ack").Observe(0.003)
		}
	}
	ack := scrape().Since(before)["ack"]
	if ack.Count() != 102 {
		t.Fatalf("%d observations, want 102", ack.Count())
	}
	for _, tc := range []struct {
		q           float64
		least, most time.Duration
	}{{0.5, time.Millisecond, 2 * time.Millisecond}, {0.99, 2 * time.Millisecond, 4 * time.Millisecond}, {1, 4 * time.Millisecond, 4 * time.Millisecond}} {
		if got := ack.Quantile(tc.q); got < tc.least || got > tc.most {
			t.Errorf("quantile %v is %v, want %v to %v", tc.q, got, tc.least, tc.most)
		}
	}
	if got := before["ack"].Quantile(0.5); got != 100*time.Millisecond {
		t.Errorf("above the last bound: %v, want that bound", got)
	}
}
