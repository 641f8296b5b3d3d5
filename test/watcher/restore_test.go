package watcher_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/projector"
)

// backup is the content of a cluster at one moment.
type backup struct {
	version uint64
	now     map[string]endpoint.Slice
	places  map[string]map[string][]string
}

func (ch *churn) backup() backup {
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	b := backup{ch.c.version, maps.Clone(ch.c.now), map[string]map[string][]string{}}
	for s, at := range ch.places {
		b.places[s] = maps.Clone(at)
	}
	return b
}

// restore brings a backup back, as a restored etcd does. Since then other writes of the cluster have moved its version on.
func (ch *churn) restore(b backup, others uint64) {
	ch.c.do(func() {
		ch.c.version, ch.c.now, ch.c.history = b.version+others, maps.Clone(b.now), nil
		ch.c.epoch++
	})
	ch.places = map[string]map[string][]string{}
	for s, at := range b.places {
		ch.places[s] = maps.Clone(at)
	}
}

// TestARestoredEtcdIsHealedWithoutTakingAnEndpointThatIsThere restores a cluster to what it was some writes, or many, ago,
// with its versions behind what was known or past it already, while two watchers run.
func TestARestoredEtcdIsHealedWithoutTakingAnEndpointThatIsThere(t *testing.T) {
	for _, tt := range []struct {
		since  int
		others uint64
	}{{200, 0}, {3, 0}, {3, 500}, {1, 1}, {30, 10_000}} {
		t.Run(fmt.Sprintf("%d changes ago, %d other writes", tt.since, tt.others), func(t *testing.T) {
			e, c := startBus(t), newCluster()
			ch := newChurn(c, 6)
			v := read(t, connect(t, e, "reader"))
			states := readServices(t, connect(t, e, "states"))
			pb := connect(t, e, "projector")
			p, err := projector.New(projector.Config{Events: pb.Events(), States: pb.States(), Certifier: pb.States()})
			if err != nil {
				t.Fatal(err)
			}
			running(t, p.Run)
			for _, name := range []string{"one", "two"} {
				watch(t, connect(t, e, name), &source{c: c})
			}
			v.equal(t, "start", c)
			ch.run(t, v, 50)
			old := ch.backup()
			ch.run(t, v, tt.since)
			v.equal(t, "before", c)
			ch.restore(old, tt.others)
			v.equal(t, "restored", c)
			states.equal(t, ch)
			ch.run(t, v, 50)
			v.equal(t, "end", c)
			states.equal(t, ch)
			states.mu.Lock()
			defer states.mu.Unlock()
			if states.fewest < least {
				t.Errorf("a service had %d endpoints, the cluster never gave it fewer than %d", states.fewest, least)
			}
			if tt.others == 0 && v.record.Generation < 2 {
				t.Errorf("record %+v", v.record)
			}
		})
	}
}
