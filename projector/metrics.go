package projector

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of a Projector. The label "cluster" has one value per cluster on the bus.
type Metrics struct {
	folds, writes, verdicts, certified, resyncs, hedges *prometheus.CounterVec
	keys, open, floor, rank                             *prometheus.GaugeVec
	flying                                              prometheus.Gauge
}

// NewMetrics makes the metrics and registers them, unless reg is nil.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Namespace: "slicecast", Subsystem: "projector", Name: name, Help: help}
		return prometheus.NewCounterVec(opts, append([]string{"cluster"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		opts := prometheus.GaugeOpts{Namespace: "slicecast", Subsystem: "projector", Name: name, Help: help}
		return prometheus.NewGaugeVec(opts, []string{"cluster"})
	}
	m := &Metrics{
		folds:     counter("folds_total", "Services folded."),
		writes:    counter("writes_total", "Writes of a State by outcome: saved, conflict (another replica was first), error.", "outcome"),
		verdicts:  counter("checkpoints_total", "Checkpoints read, by stream and verdict on the own view: match, mismatch, passed (too late to tell).", "stream", "verdict"),
		certified: counter("checkpoint_writes_total", "Checkpoints of the STATE stream written, by outcome: saved, conflict, error.", "outcome"),
		resyncs:   counter("resyncs_total", "Sessions given up because the view disagreed with its checkpoints, by stream.", "stream"),
		hedges:    counter("hedges_total", "Writes that waited for replicas of a lower rank: spared (one of them was first), and of those that were sent then, saved, conflict (it was first after all) or error.", "outcome"),
		rank:      gauge("rank", "How many replicas are to write before this one; -1 while it does not know them and comes after those who do."),
		keys:      gauge("keys", "Services known."),
		open:      gauge("open_keys", "Services not folded because an event names a slice that has not been seen yet."),
		floor:     gauge("floor_timestamp_seconds", "When the checkpoint was written up to which memory is complete; its age is the age of the floor. 0 before the first match."),
		flying:    prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "slicecast", Subsystem: "projector", Name: "writes_in_flight", Help: "Writes of States on their way."}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.folds, m.writes, m.verdicts, m.certified, m.resyncs, m.hedges, m.rank, m.keys, m.open, m.floor, m.flying} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// gauges are the metrics of one cluster, owned by the owner's goroutine.
type gauges struct {
	folds             prometheus.Counter
	writes, certified outcomes
	hedges            outcomes // of writes by a rank above 0
	hedgeSpared       prometheus.Counter
	verdicts          [sides]struct{ match, mismatch, passed prometheus.Counter }
	resyncs           [sides]prometheus.Counter
	keys, open, floor prometheus.Gauge
	rank              prometheus.Gauge
	seen              tally // what has been added to the counters already
}

// outcomes count what became of writes.
type outcomes struct{ saved, conflict, failed prometheus.Counter }

// cluster gives the metrics of one cluster, with every label value at 0.
func (m *Metrics) cluster(name string) gauges {
	g := gauges{
		folds:     m.folds.WithLabelValues(name),
		writes:    outcomesOf(m.writes, name),
		certified: outcomesOf(m.certified, name),
		hedges:    outcomesOf(m.hedges, name),
		rank:      m.rank.WithLabelValues(name),
		keys:      m.keys.WithLabelValues(name),
		open:      m.open.WithLabelValues(name),
		floor:     m.floor.WithLabelValues(name),
	}
	g.hedgeSpared = m.hedges.WithLabelValues(name, "spared")
	for s := range sides {
		g.verdicts[s].match = m.verdicts.WithLabelValues(name, s.String(), "match")
		g.verdicts[s].mismatch = m.verdicts.WithLabelValues(name, s.String(), "mismatch")
		g.verdicts[s].passed = m.verdicts.WithLabelValues(name, s.String(), "passed")
		g.resyncs[s] = m.resyncs.WithLabelValues(name, s.String())
	}
	return g
}

func outcomesOf(vec *prometheus.CounterVec, cluster string) outcomes {
	return outcomes{
		saved:    vec.WithLabelValues(cluster, "saved"),
		conflict: vec.WithLabelValues(cluster, "conflict"),
		failed:   vec.WithLabelValues(cluster, "error"),
	}
}

// set brings the metrics up to what the machine says.
func (g *gauges) set(m *machine) {
	g.folds.Add(float64(m.tally.folds - g.seen.folds))
	for s, now := range [sides]verdicts{m.tally.eventVerdicts, m.tally.stateVerdicts} {
		before := [sides]verdicts{g.seen.eventVerdicts, g.seen.stateVerdicts}[s]
		g.verdicts[s].match.Add(float64(now.agree - before.agree))
		g.verdicts[s].mismatch.Add(float64(now.disagree - before.disagree))
		g.verdicts[s].passed.Add(float64(now.passed - before.passed))
		if side(s) == eventsSide && now.agree > before.agree && !m.events.checkpoint.Written.IsZero() {
			g.floor.Set(float64(m.events.checkpoint.Written.UnixMilli()) / 1000)
		}
	}
	g.seen = m.tally
	g.keys.Set(float64(len(m.services)))
	g.open.Set(float64(m.counts[open]))
}

func (o *outcomes) count(out outcome) {
	switch {
	case out.err != nil:
		o.failed.Inc()
	case out.result.Saved:
		o.saved.Inc()
	default:
		o.conflict.Inc()
	}
}

func (g *gauges) wrote(out outcome) {
	g.writes.count(out)
	if out.write.rank > 0 {
		g.hedges.count(out)
	}
}

func (g *gauges) checkpoint(out outcome) { g.certified.count(out) }

// spared counts a write that waited and has become needless.
func (g *gauges) spared(yes bool) {
	if yes {
		g.hedgeSpared.Inc()
	}
}

// ranked shows the rank of this replica.
func (g *gauges) ranked(rank int, known bool) {
	if !known {
		rank = -1
	}
	g.rank.Set(float64(rank))
}
