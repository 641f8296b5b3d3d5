package watcher_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
)

// least is how many endpoints every service of the churn has at every moment.
const least = 3

// churn changes services as a cluster under rollouts does: an endpoint comes before another goes, and one that moves
// between two slices is in both for a moment.
type churn struct {
	c      *cluster
	rng    *rand.Rand
	next   int
	places map[string]map[string][]string // service, slice, addresses
}

func newChurn(c *cluster, services int) *churn {
	ch := &churn{c: c, rng: rand.New(rand.NewPCG(1, 2)), places: map[string]map[string][]string{}}
	for i := range services {
		s := fmt.Sprintf("svc-%d", i)
		ch.places[s] = map[string][]string{}
		ch.put(s, s+"-a", ch.addr(), ch.addr(), ch.addr())
	}
	return ch
}

func (ch *churn) addr() string {
	ch.next++
	return fmt.Sprintf("10.%d.%d.%d", ch.next>>16, ch.next>>8&255, ch.next&255)
}

func (ch *churn) put(service, slice string, addrs ...string) {
	ch.places[service][slice] = addrs
	ch.c.set(service, slice, addrs...)
}

// change does one step of a rollout, and names the slice that it changed last.
func (ch *churn) change() (slice string) {
	services := slices.Sorted(maps.Keys(ch.places))
	s := services[ch.rng.IntN(len(services))]
	at := ch.places[s]
	names := slices.Sorted(maps.Keys(at))
	from := names[ch.rng.IntN(len(names))]
	to := fmt.Sprintf("%s-%c", s, 'a'+rune(ch.rng.IntN(3)))
	switch ch.rng.IntN(3) {
	case 0: // a pod is replaced
		if len(at[from]) == 0 {
			return from
		}
		ch.put(s, to, append(slices.Clone(at[to]), ch.addr())...)
		ch.put(s, from, at[from][1:]...)
		return from
	case 1: // a pod is moved
		if to == from || len(at[from]) == 0 {
			return from
		}
		ch.put(s, to, append(slices.Clone(at[to]), at[from][0])...)
		ch.put(s, from, at[from][1:]...)
		return from
	default: // a slice goes once others have what it had
		if to == from {
			return from
		}
		ch.put(s, to, append(slices.Clone(at[to]), at[from]...)...)
		delete(at, from)
		ch.c.remove(from)
		return from
	}
}

// run makes changes, and waits now and then until the bus has the last one.
func (ch *churn) run(t *testing.T, v *view, changes int) {
	t.Helper()
	for i := range changes {
		name := ch.change()
		if i%5 != 4 {
			continue
		}
		ch.c.mu.Lock()
		want, there := ch.c.now[name]
		ch.c.mu.Unlock()
		v.until(t, func() string { return fmt.Sprintf("%s did not come: %+v", name, v.entries[name]) }, func() bool {
			n := v.entries[name]
			return there && !n.Gone && n.Version.Resource >= want.Version.Resource || !there && n.Gone
		})
	}
}

// services is a reader of States: what a proxy may use at every moment.
type services struct {
	signal
	usable map[string][]string // by service
	fewest int
}

func readServices(t *testing.T, b *bus.Bus) *services {
	t.Helper()
	s := &services{usable: map[string][]string{}, fewest: least}
	running(t, func(ctx context.Context) error {
		return b.States().Follow(ctx, "east", func(n ledger.Notice) error {
			s.do(func() {
				if n.Kind == ledger.Changed {
					u := usable(n.State.Slices)
					s.usable[n.Key.Service] = u
					s.fewest = min(s.fewest, len(u))
				}
			})
			return nil
		})
	})
	return s
}

// usable lists the addresses that are ready, once each.
func usable(all []endpoint.Slice) []string {
	found := map[string]bool{}
	for _, sl := range all {
		for _, e := range sl.Endpoints {
			if ready, _ := e.Conditions.Usable(); ready {
				found[e.Addr.String()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// equal waits until every service has what the cluster has of it.
func (s *services) equal(t *testing.T, ch *churn) {
	t.Helper()
	want := map[string][]string{}
	for name, at := range ch.places {
		all := map[string]bool{}
		for _, addrs := range at {
			for _, a := range addrs {
				all[a] = true
			}
		}
		want[name] = slices.Sorted(maps.Keys(all))
	}
	s.until(t, func() string { return fmt.Sprintf("services %v, want %v", s.usable, want) }, func() bool {
		return maps.EqualFunc(s.usable, want, slices.Equal)
	})
}

// TestTwoHotWatchersLoseNothing runs two watchers of a cluster, of which one stalls between deciding and writing for as
// long as hundreds of changes take, comes back, and goes on from where it was; then dies, and comes back with a list that
// is older than what was known. The clock of one process is 10 minutes off. At no moment has a service fewer endpoints
// than the cluster ever gave it, no slice goes back, and in the end all is what the cluster says.
func TestTwoHotWatchersLoseNothing(t *testing.T) {
	e, c := startBus(t), newCluster()
	ch := newChurn(c, 8)
	v := read(t, connect(t, e, "reader"))
	states := readServices(t, connect(t, e, "states"))
	pb := connect(t, e, "projector")
	p, err := projector.New(projector.Config{Events: pb.Events(), States: pb.States(), Certifier: pb.States()})
	if err != nil {
		t.Fatal(err)
	}
	running(t, p.Run)

	one, _, stopOne := watch(t, connect(t, e, "one"), &source{c: c})
	hears, writes := &gate{}, &gate{}
	stalled := func(cfg *watcher.Config) {
		cfg.Events.(*counted).gate = writes
		cfg.WriteTimeout = time.Hour
	}
	two, ev, stopTwo := watch(t, connect(t, e, "two"), &source{c: c, skew: -10 * time.Minute, gate: hears}, stalled)
	v.equal(t, "start", c)
	ch.run(t, v, 100)

	// Two stalls with writes that it has decided on, and hears nothing.
	writes.close(true)
	ch.run(t, v, 20)
	hears.close(true)
	ch.run(t, v, 300)
	v.equal(t, "while one is stalled", c)
	puts, lost := ev.counts()
	writes.close(false) // what it decided long ago is sent now
	ch.run(t, v, 50)
	hears.close(false)
	ch.run(t, v, 100)
	v.equal(t, "after it has come back", c)
	if _, now := ev.counts(); now == lost {
		t.Errorf("the stalled watcher has lost no compare-and-set (%d puts): the test shows nothing", puts)
	}

	// The death of one costs nothing.
	stopOne()
	ch.run(t, v, 100)
	v.equal(t, "one is dead", c)
	if v.record.Generation != 1 {
		t.Fatalf("generation %d without a reason", v.record.Generation)
	}
	for name, w := range map[string]*watcher.Watcher{"one": one, "two": two} {
		if s := w.Status(); s.Generation != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}

	// It comes back, and its first list is an old one: that is what a restored etcd looks like.
	c.mu.Lock()
	old, asOf := slices.Collect(maps.Values(c.now)), c.version
	c.mu.Unlock()
	ch.run(t, v, 100)
	v.equal(t, "before the old list", c)
	_, _, stopOne = watch(t, connect(t, e, "one again"), &source{c: c, before: old, asOf: asOf, skew: 10 * time.Minute})
	v.until(t, func() string { return fmt.Sprintf("record %+v", v.record) }, func() bool { return v.record.Generation == 2 })
	ch.run(t, v, 100)
	v.equal(t, "after the old list", c)
	stopTwo()
	ch.run(t, v, 50)
	v.equal(t, "end", c)
	states.equal(t, ch)
	stopOne()
	states.mu.Lock()
	defer states.mu.Unlock()
	if states.fewest < least || v.back != 0 || v.record.Generation != 2 {
		t.Errorf("a service had %d endpoints, the cluster never gave it fewer than %d; %d slices went back; record %+v", states.fewest, least, v.back, v.record)
	}
}
