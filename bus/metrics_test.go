package bus_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// samples are all counters and gauges as name{values}, and the counts of histograms.
func samples(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			default:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

func TestMetricsTellWhatHappenedAndGrowNoLabels(t *testing.T) {
	s := startServer(t)
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{s.url}, Metrics: reg})
	before := samples(t, reg)
	f := followAll(t, b)
	f.write(t, 2)
	if r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-0", 99, 1), 0); err != nil || r.Saved {
		t.Fatalf("put: %+v, %v", r, err)
	}
	f.settled(t)
	must(t, b.Reconnect())
	f.r.Wait(t, "a second session", func(s [][]ledger.Notice) bool { return len(s) >= 2 })
	f.settled(t)
	got := samples(t, reg)
	want := map[string]float64{
		"slicecast_bus_connected{}": 1, "slicecast_bus_reconnects_total{}": 1, "slicecast_bus_conflicts_total{event}": 1,
		"slicecast_bus_sessions_total{start,SLICECAST_EVENTS}": 1, "slicecast_bus_sessions_total{lost,SLICECAST_EVENTS}": 1,
		"slicecast_bus_snapshot_seconds{SLICECAST_EVENTS}": 2,
	}
	for name, v := range got {
		if _, known := before[name]; !known {
			t.Errorf("%s was not there at the start", name)
		}
		// A copy for history may be on its way at the moment of the loss, or not.
		if v != want[name] && name != "slicecast_bus_history_dropped_total{}" {
			t.Errorf("%s is %v, want %v", name, v, want[name])
		}
	}
	var names []string
	for name := range before {
		name, _, _ = strings.Cut(name, "{")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	all := []string{
		"async_errors_total", "bad_messages_total", "claims_lost_total", "conflicts_total", "connect_errors_total", "connected", "history_dropped_total", "newer_messages_total",
		"publish_errors_total", "reconnects_total", "sessions_total", "snapshot_seconds",
	}
	for i := range all {
		all[i] = "slicecast_bus_" + all[i]
	}
	if !slices.Equal(names, all) {
		t.Errorf("metrics are %v, want %v", names, all)
	}
}
