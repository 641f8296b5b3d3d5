package watcher_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/watcher"
)

// TestARestartPublishesOnlyWhatChanged restarts the watcher of 10,000 slices after 150 of them have changed.
func TestARestartPublishesOnlyWhatChanged(t *testing.T) {
	const all, of = 10_000, 50
	e, c := startBus(t), newCluster()
	name := func(i int) (service, slice string) { return fmt.Sprintf("svc-%d", i/4), fmt.Sprintf("slice-%05d", i) }
	for i := range all {
		service, slice := name(i)
		c.set(service, slice, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "10.255.0.1")
	}
	first := connect(t, e, "first")
	v := read(t, connect(t, e, "reader"))
	_, ev, stop := watch(t, first, &source{c: c})
	v.equal(t, "start", c)
	if puts, _ := ev.counts(); puts != all {
		t.Errorf("%d publishes at first, want %d", puts, all)
	}
	stop()

	for i := range of {
		service, slice := name(i * 7)
		c.set(service, slice, "10.254.0.1")
		service, slice = name(all + i)
		c.set(service, slice, "10.254.0.2")
		_, slice = name(i*7 + 3)
		c.remove(slice)
	}
	v.mu.Lock()
	before := v.news
	v.mu.Unlock()
	metrics := watcher.NewMetrics(prometheus.NewRegistry())
	_, ev, stop = watch(t, connect(t, e, "second"), &source{c: c}, func(cfg *watcher.Config) { cfg.Metrics = metrics })
	v.equal(t, "after the restart", c)
	stop()
	puts, lost := ev.counts()
	v.mu.Lock()
	defer v.mu.Unlock()
	if puts != 3*of || lost != 0 || v.news-before != 3*of {
		t.Errorf("%d publishes, %d lost, %d messages: want %d, 0 and %d", puts, lost, v.news-before, 3*of, 3*of)
	}
	if ev.withBody != 0 || ev.followers != 1 {
		t.Errorf("read back in %d sessions, %d of them with bodies", ev.followers, ev.withBody)
	}
	if v.record.Generation != 1 || v.record.Scope != "all" || v.back != 0 {
		t.Errorf("record %+v, %d messages went back", v.record, v.back)
	}
}
