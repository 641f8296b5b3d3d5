package xdsserver

import "github.com/prometheus/client_golang/prometheus"

// peerMetrics are what is counted of a replica among others.
type peerMetrics struct {
	peers       prometheus.Gauge
	current     prometheus.Gauge
	handedOver  prometheus.Counter
	turnedAway  *prometheus.CounterVec
	vanished    prometheus.Gauge
	listed      *prometheus.CounterVec
	listPending prometheus.Gauge
	badListed   prometheus.Counter
}

func newPeerMetrics(counter func(name, help string) prometheus.Counter, counters func(label, name, help string) *prometheus.CounterVec) peerMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "slicecast_xds_" + name, Help: help})
	}
	return peerMetrics{
		peers:       gauge("peers", "Other xDS replicas that are registered."),
		current:     gauge("current", "1 while what is served is what the bus holds."),
		handedOver:  counter("handed_over_streams_total", "Streams ended because this replica did not hear the bus and others did."),
		turnedAway:  counters("cause", "turned_away_streams_total", "Streams refused while another replica could take them, because this one did not hear the bus (cut_off) or was behind it (behind)."),
		vanished:    gauge("vanished_streams", "Streams of replicas that have vanished, whose proxies were not heard of again and do not count as lost yet."),
		listed:      counters("outcome", "list_writes_total", "Entries of the list of proxies written (done), or not taken by the bus and tried again (failed)."),
		listPending: gauge("list_pending", "Streams of which the list of proxies does not say the newest yet."),
		badListed:   counter("list_bad_entries_total", "Entries of the list of proxies that could not be read."),
	}
}

func (m *peerMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.peers, m.current, m.handedOver, m.turnedAway, m.vanished, m.listed, m.listPending, m.badListed}
}

// zero makes every label value known.
func (m *peerMetrics) zero() {
	m.listed.WithLabelValues("done")
	m.listed.WithLabelValues("failed")
	m.turnedAway.WithLabelValues(awayCutOff)
	m.turnedAway.WithLabelValues(awayBehind)
}
