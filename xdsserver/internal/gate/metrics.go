package gate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a question was refused.
const (
	refusedBad  = "bad-request"
	refusedBusy = "busy"
)

type metrics struct {
	waits    prometheus.Gauge
	outcomes *prometheus.CounterVec
	refused  *prometheus.CounterVec
	seconds  prometheus.Histogram
	restarts prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		waits: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slicecast_drain_waits", Help: "Drain waits that are open now.",
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicecast_drain_outcomes_total", Help: "Drain waits that have ended, by reason of the answer.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicecast_drain_refused_total", Help: "Drain questions that were refused, by cause.",
		}, []string{"cause"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicecast_drain_restarts_total", Help: "Times that a drain wait asked all replicas anew because they were other ones.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "slicecast_drain_seconds", Help: "From the drain question to its answer.",
			Buckets: []float64{
				.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60,
			},
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
		}),
	}
	for _, c := range []prometheus.Collector{m.waits, m.outcomes, m.refused, m.seconds, m.restarts} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, reason := range []Reason{
		Acknowledged, NoService, NotLeaving, AlwaysReady, LastEndpoint, SharedAddress, Unacknowledged, Unknown, Cancelled,
	} {
		m.outcomes.WithLabelValues(string(reason))
	}
	for _, cause := range []string{refusedBad, refusedBusy} {
		m.refused.WithLabelValues(cause)
	}
	return m, nil
}

func (m *metrics) refuse(cause string) { m.refused.WithLabelValues(cause).Inc() }

func (m *metrics) observe(a Answer, took time.Duration) {
	m.outcomes.WithLabelValues(string(a.Reason)).Inc()
	m.seconds.Observe(took.Seconds())
}
