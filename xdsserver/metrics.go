package xdsserver

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the room counts. Every label value is known beforehand.
type metrics struct {
	streams      *prometheus.GaugeVec
	pushes       *prometheus.CounterVec
	resources    *prometheus.CounterVec
	bytes        *prometheus.CounterVec
	acks         *prometheus.CounterVec
	nacks        *prometheus.CounterVec
	slow         *prometheus.CounterVec
	stalls       prometheus.Counter
	views        prometheus.Gauge
	fallback     prometheus.Gauge
	ignored      [labels]prometheus.Gauge // by label
	empty        prometheus.Counter
	unknownNames prometheus.Counter
	hiddenNames  prometheus.Counter
	reloads      *prometheus.CounterVec
	delayed      *prometheus.CounterVec
	refused      prometheus.Counter
	refusals     *prometheus.CounterVec
	late         prometheus.Counter
	disagreed    prometheus.Counter
	statuses     *prometheus.CounterVec
	peerMetrics

	push, ack, total prometheus.Observer
}

// The causes for which a slow stream is ended.
const (
	slowAck  = "ack"
	slowSend = "send"
)

func newMetrics(reg prometheus.Registerer, propagation prometheus.ObserverVec) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "slicecast_xds_" + name, Help: help})
	}
	counters := func(label, name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicecast_xds_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slicecast_xds_streams", Help: "Open streams by service (ads, cds, eds, lds, rds) and protocol (delta, sotw).",
		}, []string{"type", "protocol"}),
		pushes:       counters("type", "pushes_total", "Responses sent."),
		resources:    counters("type", "resources_total", "Resources in responses sent, removed ones included."),
		bytes:        counters("type", "push_bytes_total", "Bytes of responses sent."),
		acks:         counters("type", "acks_total", "Responses that clients acknowledged."),
		nacks:        counters("type", "nacks_total", "Responses that clients rejected."),
		slow:         counters("cause", "slow_streams_total", "Streams ended because an acknowledgement (ack) or a send (send) took too long."),
		stalls:       counter("window_stalls_total", "Times that a stream had something to send and its window was full."),
		views:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "slicecast_xds_views", Help: "Views that have a stream."}),
		fallback:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "slicecast_xds_fallback", Help: "Assignments in which serving and terminating endpoints serve because none is ready."}),
		empty:        counter("empty_assignments_total", "Assignments without endpoints in responses sent."),
		unknownNames: counter("unknown_names_total", "Subscriptions to names that resolve to no known service."),
		hiddenNames:  counter("hidden_names_total", "Subscriptions to names of services that the client may not see; they look as if they were not there."),
		reloads:      counters("outcome", "tls_reloads_total", "Times that the TLS files changed and were taken (done) or could not be used (failed)."),
		delayed:      counters("cause", "delayed_streams_total", "Streams that waited before they began, because too many did in that second (rate), or too many were in their first load (load)."),
		refused:      counter("refused_types_total", "Requests for types that are not served."),
		refusals:     counters("cause", "refused_streams_total", "Streams ended because of what they asked: a node that is too long (node), a name that is too long (name), too many names (names)."),
		late:         counter("late_first_answers_total", "First answers given before all that the bus held was applied, because it took too long."),
		statuses:     counters("outcome", "client_status_requests_total", "Questions for the state of clients, over CSDS or the bus: answered (done), not allowed or not understood (refused), too large for one answer (large)."),
		peerMetrics:  newPeerMetrics(counter, counters),
		disagreed:    counter("resyncs_total", "Sessions opened again because checkpoints disagreed with the view."),
	}
	ignored := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "slicecast_xds_ignored_policies", Help: "Services, one per cluster, whose label slicecast.io/<label> has a value that means nothing.",
	}, []string{"label"})
	for l := range labels {
		m.ignored[l] = ignored.WithLabelValues(l.short())
	}
	all := []prometheus.Collector{
		m.streams, m.pushes, m.resources, m.bytes, m.acks, m.nacks, m.slow, m.stalls, m.views, m.fallback, m.empty, m.unknownNames,
		m.hiddenNames, m.reloads, m.delayed, m.refused, m.refusals, m.late, m.disagreed, m.statuses, ignored,
	}
	all = append(all, m.peerMetrics.all()...)
	m.zero()
	if propagation == nil {
		propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "unused"}, []string{"stage"})
	}
	m.push, m.ack, m.total = propagation.WithLabelValues("push"), propagation.WithLabelValues("ack"), propagation.WithLabelValues("total")
	if reg == nil {
		return m, nil
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the xDS server: %w", err)
		}
	}
	return m, nil
}

// zero makes every label value known.
func (m *metrics) zero() {
	for _, service := range append([]string{"ads"}, kindTexts[:]...) {
		m.streams.WithLabelValues(service, "delta")
		m.streams.WithLabelValues(service, "sotw")
	}
	for _, cause := range refusedCauses() {
		m.refusals.WithLabelValues(cause)
	}
	for k := range kinds {
		for _, v := range [...]*prometheus.CounterVec{m.pushes, m.resources, m.bytes, m.acks, m.nacks} {
			v.WithLabelValues(k.String())
		}
	}
	m.delayed.WithLabelValues(delayRate)
	m.delayed.WithLabelValues(delayLoad)
	m.reloads.WithLabelValues("done")
	m.reloads.WithLabelValues("failed")
	for _, outcome := range [...]string{statusDone, statusRefused, statusLarge} {
		m.statuses.WithLabelValues(outcome)
	}
	m.peerMetrics.zero()
	m.slow.WithLabelValues(slowAck)
	m.slow.WithLabelValues(slowSend)
}

// count counts a response that is about to be sent.
func (m *metrics) count(r *response) {
	kind := r.kind.String()
	m.pushes.WithLabelValues(kind).Inc()
	m.resources.WithLabelValues(kind).Add(float64(len(r.items)))
	m.bytes.WithLabelValues(kind).Add(float64(r.frame.size))
	for _, it := range r.items {
		if it.resource != nil && it.resource.empty {
			m.empty.Inc()
		}
	}
}

// sent observes how long changes took from their State to the transport.
func (m *metrics) sent(r *response, now time.Time) {
	for _, c := range r.causes {
		m.push.Observe(now.Sub(c.received).Seconds())
	}
}

// answered counts the client's answer to a response.
func (m *metrics) answered(r *response, nack bool, now time.Time) {
	if nack {
		m.nacks.WithLabelValues(r.kind.String()).Inc()
		return
	}
	m.acks.WithLabelValues(r.kind.String()).Inc()
	for range r.causes {
		m.ack.Observe(now.Sub(r.at).Seconds())
	}
}
