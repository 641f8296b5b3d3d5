package cases

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/xdsserver"
)

// past is what the API server went through: the slices of a service after each of its writes.
type past struct {
	states   [][]endpoint.Slice // sorted by name
	versions []endpoint.Version
	pending  []endpoint.Event // of all steps, not yet on the bus
}

func pastOf(steps []step) *past {
	p := &past{}
	w := newWorld()
	for _, s := range steps {
		w.apply(s)
		p.versions = append(p.versions, endpoint.Version{Generation: 1, Resource: w.versions["prod"]})
		p.states = append(p.states, slices.SortedFunc(maps.Values(w.live), func(a, b endpoint.Slice) int { return strings.Compare(a.Name, b.Name) }))
	}
	p.pending = w.events
	return p
}

// next takes an event that may come next: those of one slice keep their order, or are replaced by a newer one.
func (p *past) next(r endpointtest.Random) endpoint.Event {
	slice := p.pending[r.IntN(len(p.pending))].Slice.Name
	i := slices.IndexFunc(p.pending, func(e endpoint.Event) bool { return e.Slice.Name == slice })
	for r.UintN(4) == 0 {
		j := slices.IndexFunc(p.pending[i+1:], func(e endpoint.Event) bool { return e.Slice.Name == slice })
		if j < 0 {
			break
		}
		p.pending = slices.Delete(p.pending, i, i+1)
		i += j
	}
	e := p.pending[i]
	p.pending = slices.Delete(p.pending, i, i+1)
	return e
}

// fewest gives the smallest number of usable endpoints since the write number from, counted from 0.
func (p *past) fewest(from int) int {
	fewest := -1
	for _, st := range p.states[from:] {
		if n := len(usable(st, "http", xdsserver.AnyFamily)); fewest < 0 || n < fewest {
			fewest = n
		}
	}
	return fewest
}

// alwaysSome gives the number of the first write after which the service always has an endpoint, and -1 where that is
// in the last half of the history.
func (p *past) alwaysSome() int {
	for i := range len(p.states) / 2 {
		if p.fewest(i) > 0 {
			return i
		}
	}
	return -1
}

// A State that comes of events in whatever order never offers less than every state that the API server went through
// since the view was complete: so it is never empty between two states that are not.
func TestNoViewEverSeesFewerEndpointsThanTheAPIServerHad(t *testing.T) {
	checked := 0
	eachSeed(t, func(t *testing.T, r endpointtest.Random) {
		synctest.Test(t, func(t *testing.T) { checked += checkPast(t, r, pastOf(fleetSteps(r, 30))) })
	})
	if checked < *histories {
		t.Errorf("only %d States had to offer something: the histories prove nothing", checked)
	}
}

// checkPast puts the first third of a history in order, certifies it, then the rest in any order, and looks at every
// State that the projector writes. It returns how many had to offer something.
func checkPast(t *testing.T, r endpointtest.Random, p *past) (checked int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWriter(ctx, t, map[string]string{"prod": ""})
	w.certify("prod")
	pr, err := projector.New(projector.Config{Events: w.fake.Events(), States: w.fake.States(), Certifier: w.fake.States()})
	if err != nil {
		t.Fatal(err)
	}
	from := -1 // number of the write that the view is complete as of
	var last endpoint.State
	look := func(n ledger.Notice) error {
		if n.Kind != ledger.Changed || from < 0 {
			return nil
		}
		last = *n.State
		name := xdsserver.Name{Service: "cart", Namespace: "shop", Port: "http"}
		states := map[endpoint.Key]endpoint.State{n.Key: last}
		checkViews(t, []xdsserver.Name{name}, states)
		fewest := p.fewest(from)
		if got := len(usable(last.Slices, "http", xdsserver.AnyFamily)); got < fewest {
			t.Errorf("a State offers %d endpoints, every state of the API server %d or more: %v", got, fewest, formatStates(states))
		}
		if fewest > 0 {
			checked++
		}
		return nil
	}
	done := make(chan error, 2)
	go func() { done <- pr.Run(ctx) }()
	go func() { done <- w.fake.States().Follow(ctx, "prod", look) }()
	synctest.Wait()
	third := len(p.pending) / 3
	for _, e := range p.pending[:third] {
		w.put(e)
	}
	p.pending = p.pending[third:]
	w.certify("prod")
	synctest.Wait()
	from = slices.IndexFunc(p.versions, func(v endpoint.Version) bool { return v == w.newest["prod"] })
	for len(p.pending) > 0 {
		w.put(p.next(r))
		synctest.Wait()
	}
	if want := (endpoint.State{Slices: p.states[len(p.states)-1]}); !last.SameSlices(want) {
		t.Errorf("in the end: got %v, want %v", last.Slices, want.Slices)
	}
	cancel()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	return checked
}
