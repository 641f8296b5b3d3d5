package watcher

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Status is a snapshot of a watcher.
type Status struct {
	Cluster        string
	Ready          bool
	Why            string // why it is not ready; empty when it is
	UID            string // identity of the cluster, empty while unknown
	Generation     uint64 // of the cluster's record, 0 while unknown
	AsOf           endpoint.Version
	Slices         int       // published slices in the cache
	Dirty          int       // slices whose last state is not on the bus yet
	OldestDirty    time.Time // since when the oldest of them is; zero when there is none
	Inflight       int       // writes on their way
	Connected      bool      // the source can be heard
	Heard          time.Time // when the source was last heard
	Checkpoint     endpoint.Version
	CheckpointTime time.Time // when the last checkpoint in the view was written; zero when there is none
	HeldRemovals   int       // slices that another extent would remove, and that wait for Config.ConfirmRemoval
}

// Metrics are the metrics of all watchers of a process, by cluster.
type Metrics struct {
	events      *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
	disagree    *prometheus.CounterVec
	failures    *prometheus.CounterVec
	skipped     *prometheus.CounterVec
	checkpoints *prometheus.CounterVec
	raises      *prometheus.CounterVec

	mu       sync.Mutex // guards watchers
	watchers []*Watcher
}

const metricPrefix = "slicecast_watcher_"

var (
	descDirty      = desc("dirty_slices", "Slices whose last state is not on the bus yet.")
	descOldest     = desc("oldest_dirty_seconds", "Age of the oldest state that is not on the bus yet; 0 when there is none.")
	descInflight   = desc("inflight_writes", "Writes to the bus that are on their way.")
	descSlices     = desc("slices", "Slices that are published.")
	descAsOf       = desc("as_of", "The resourceVersion that the cache is complete as of.")
	descGeneration = desc("generation", "The generation of the cluster's record.")
	descConnected  = desc("api_connected", "1 when the API server (or the folder) can be heard.")
	descReady      = desc("ready", "1 when the watcher publishes the cluster.")
	descHeld       = desc("held_removals", "Slices that a change of scope would remove, and that wait for a confirmation.")
	descAge        = desc("checkpoint_age_seconds", "Age of the cluster's last checkpoint; absent when there is none.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, []string{"cluster"}, nil)
}

// NewMetrics registers the metrics of the watchers of a process.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, append([]string{"cluster"}, labels...))
		reg.MustRegister(v)
		return v
	}
	m := &Metrics{
		events:      vec("events_total", "Events that the bus accepted, by operation.", "operation"),
		conflicts:   vec("conflicts_total", "Writes that lost a compare-and-set, by what was written.", "kind"),
		disagree:    vec("disagreements_total", "Slices that the bus holds with other content at the same version."),
		failures:    vec("write_failures_total", "Writes to the bus that failed or timed out."),
		skipped:     vec("skipped_total", "What the translation of EndpointSlices left out, by reason.", "reason"),
		checkpoints: vec("checkpoints_total", "Checkpoints that the bus accepted."),
		raises:      vec("generation_raises_total", "Raises of the generation on proof that the cluster's history went back."),
	}
	reg.MustRegister(m)
	return m
}

// add makes a watcher visible and its counters exist.
func (m *Metrics) add(w *Watcher) {
	c := w.cfg.Cluster
	for _, op := range [...]string{"put", "tombstone"} {
		m.events.WithLabelValues(c, op)
	}
	for _, kind := range [...]string{"slice", "checkpoint", "record"} {
		m.conflicts.WithLabelValues(c, kind)
	}
	for r := range reasons {
		m.skipped.WithLabelValues(c, r.String())
	}
	for _, v := range [...]*prometheus.CounterVec{m.disagree, m.failures, m.checkpoints, m.raises} {
		v.WithLabelValues(c)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, w)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{descDirty, descOldest, descInflight, descSlices, descAsOf, descGeneration, descConnected, descReady, descHeld, descAge} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watchers {
		s := w.Status()
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Cluster)
		}
		gauge(descDirty, float64(s.Dirty))
		gauge(descOldest, age(s.OldestDirty))
		gauge(descInflight, float64(s.Inflight))
		gauge(descSlices, float64(s.Slices))
		gauge(descAsOf, float64(s.AsOf.Resource))
		gauge(descGeneration, float64(s.Generation))
		gauge(descConnected, bit(s.Connected))
		gauge(descReady, bit(s.Ready))
		gauge(descHeld, float64(s.HeldRemovals))
		if !s.CheckpointTime.IsZero() {
			gauge(descAge, age(s.CheckpointTime))
		}
	}
}

// age gives the seconds since t, 0 when t is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Seconds())
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
