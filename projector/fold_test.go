package projector

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

var same = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}

// written gives the writes of a random API server to one of its services.
func written(seed uint64) (endpoint.Key, []endpoint.Event, endpointtest.Random) {
	r := endpointtest.NewRandom(seed)
	api := endpointtest.NewAPI("prod")
	for range 10 + r.IntN(30) {
		api.Change(r)
	}
	return api.Keys()[1], api.Writes, r
}

func TestFoldDependsOnNeitherOrderNorRepetition(t *testing.T) {
	for seed := range uint64(500) {
		key, events, r := written(seed)
		want := Fold(key, endpoint.Version{}, events...)
		if err := want.Valid(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		mixed := append(slices.Clone(events), events[r.IntN(len(events)):]...) // Redelivered from some earlier point on.
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if diff := cmp.Diff(want, Fold(key, endpoint.Version{}, mixed...), same); diff != "" {
			t.Fatalf("seed %d: (-want +got)\n%s", seed, diff)
		}
	}
}

func TestFoldOfPartsIsJoinedToTheFoldOfAll(t *testing.T) {
	for seed := range uint64(500) {
		key, events, r := written(seed)
		cut := r.IntN(len(events) + 1)
		floor := events[r.IntN(len(events))].Slice.Version
		want := Fold(key, endpoint.Version{}, events...)
		if diff := cmp.Diff(want, Fold(key, endpoint.Version{}, events[:cut]...).Join(Fold(key, endpoint.Version{}, events[cut:]...)), same); diff != "" {
			t.Fatalf("seed %d: (-want +got)\n%s", seed, diff)
		}
		// All up to a floor, known from a complete view, and the later events: the same live slices.
		known := slices.DeleteFunc(slices.Clone(events), func(e endpoint.Event) bool { return e.Slice.Version.After(floor) })
		later := slices.DeleteFunc(slices.Clone(events), func(e endpoint.Event) bool { return !e.Slice.Version.After(floor) })
		got := Fold(key, floor, known...).Join(Fold(key, endpoint.Version{}, later...))
		if err := got.Valid(); err != nil || !got.SameSlices(want) || got.Floor != floor {
			t.Fatalf("seed %d: %v, got %v\nwant %v", seed, err, endpointtest.FormatState(got), endpointtest.FormatState(want))
		}
	}
}

func TestFoldLeavesItsInputAlone(t *testing.T) {
	for seed := range uint64(100) {
		key, events, _ := written(seed)
		before := endpointtest.Trace{Stages: []endpointtest.Stage{{Steps: steps(events)}}}.String()
		st := Fold(key, events[0].Slice.Version, events...)
		for i := range st.Slices {
			st.Slices[i].Name = "changed"
		}
		if after := (endpointtest.Trace{Stages: []endpointtest.Stage{{Steps: steps(events)}}}).String(); after != before {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, after, before)
		}
	}
}

func steps(events []endpoint.Event) []endpointtest.Step {
	all := make([]endpointtest.Step, len(events))
	for i := range events {
		all[i] = endpointtest.Step{Event: &events[i]}
	}
	return all
}

func TestSlicesOfOtherNamesCommute(t *testing.T) {
	for seed := range uint64(500) {
		key, events, r := written(seed)
		want := matched(t)
		for _, e := range events {
			want.event(e)
		}
		// Any order that keeps that of each slice.
		got := matched(t)
		queues := map[string][]endpoint.Event{}
		var names []string
		for _, e := range events {
			name := e.Slice.Key.String() + e.Slice.Name
			if queues[name] == nil {
				names = append(names, name)
			}
			queues[name] = append(queues[name], e)
		}
		for len(names) > 0 {
			i := r.IntN(len(names))
			name := names[i]
			got.event(queues[name][0])
			if queues[name] = queues[name][1:]; len(queues[name]) == 0 {
				names = slices.Delete(names, i, i+1)
			}
		}
		for _, b := range []*bench{want, got} {
			b.settle()
		}
		if diff := cmp.Diff(want.states[key].state, got.states[key].state, same); diff != "" {
			t.Fatalf("seed %d: (-in order +in another)\n%s", seed, diff)
		}
	}
}

func TestTwoProjectorsWithOtherBatchesHoldEqualStates(t *testing.T) {
	for seed := range uint64(500) {
		_, events, r := written(seed)
		all, some := matched(t), matched(t)
		for i, e := range events {
			all.event(e)
			some.event(e)
			if r.UintN(3) == 0 {
				some.settle()
			}
			if r.UintN(5) == 0 { // Redelivered from some earlier point on, as a new session does.
				for _, again := range events[r.IntN(i+1) : i+1] {
					some.event(again)
				}
			}
		}
		last := events[len(events)-1].Slice.Version.String()
		for _, b := range []*bench{all, some} {
			b.certify(last)
			b.settle()
		}
		for key := range some.states {
			a, b := all.states[key].state, some.states[key].state
			a.Key = key // One of them may have no message of a service that came and went.
			if !a.SameSlices(b) {
				t.Fatalf("seed %d: %v\nagainst %v", seed, endpointtest.FormatState(a), endpointtest.FormatState(b))
			}
			for i := range a.Slices {
				if string(a.Slices[i].Content()) != string(b.Slices[i].Content()) {
					t.Fatalf("seed %d: %s: other bytes", seed, a.Slices[i].Name)
				}
			}
		}
	}
}

func TestACheckpointAndAReplayFromBeforeItGiveTheLiveState(t *testing.T) {
	for seed := range uint64(300) {
		_, events, r := written(seed)
		live, late := matched(t), newBench(t)
		for _, e := range events {
			live.event(e)
		}
		live.settle()
		// The late one has a snapshot: the last event of each slice, in stream order, then the checkpoint.
		from := r.IntN(len(events))
		last := map[string]int{}
		for i, e := range events {
			last[e.Slice.Key.String()+e.Slice.Name] = i
		}
		for i, e := range events {
			if i >= from || last[e.Slice.Key.String()+e.Slice.Name] == i {
				late.event(e)
			}
		}
		late.certify(events[len(events)-1].Slice.Version.String())
		late.settle()
		for key := range live.states {
			a, b := live.states[key].state, late.states[key].state
			b.Key = key
			if !a.SameSlices(b) {
				t.Fatalf("seed %d: %v\nagainst %v", seed, endpointtest.FormatState(a), endpointtest.FormatState(b))
			}
		}
	}
}

// current is the newest event of each slice of key.
func current(key endpoint.Key, events []endpoint.Event) map[string]endpoint.Event {
	newest := map[string]endpoint.Event{}
	for _, e := range events {
		if e.Slice.Key == key && e.Slice.Version.After(newest[e.Slice.Name].Slice.Version) {
			newest[e.Slice.Name] = e
		}
	}
	return newest
}

// closedAnew is the rule of closed Keys, worked out from the current slices alone.
func closedAnew(now map[string]endpoint.Event, floor endpoint.Version) bool {
	for _, e := range now {
		if e.Gone && !e.Slice.Version.After(floor) {
			continue // Nothing is left of it.
		}
		for _, p := range e.Peers {
			if p.Version.After(floor) && p.Version.After(now[p.Name].Slice.Version) {
				return false
			}
		}
	}
	return true
}

func TestWhatAServiceKeepsIsAtEveryStepTheFoldOfItsCurrentSlicesAnew(t *testing.T) {
	open := 0
	for seed := range uint64(200) {
		key, events, r := written(seed)
		for i := range events {
			if e := &events[i]; r.UintN(2) == 0 { // A peer that is there, was there, or is to come.
				if o := events[r.IntN(len(events))].Slice; o.Key == e.Slice.Key && o.Name != e.Slice.Name {
					e.Peers = []endpoint.Ref{{Name: o.Name, Version: o.Version}}
				}
			}
		}
		s, floor := newService(key), endpoint.Version{}
		for i := range events {
			for _, e := range []endpoint.Event{events[i], events[r.IntN(i+1)]} { // Each, and one again.
				if e.Slice.Key == key {
					s.learn(&e, floor)
				}
			}
			now := current(key, events[:i+1])
			switch r.UintN(12) {
			case 0: // A new session, which has read all there is.
				s.forget()
				for _, e := range now {
					s.learn(&e, floor)
				}
			case 1: // A checkpoint, of a view that is up to date.
				for _, e := range now {
					s.learn(&e, floor)
				}
				s.match(floor, events[i].Slice.Version)
				floor = events[i].Slice.Version
			}
			if diff := cmp.Diff(Fold(key, floor, events[:i+1]...), s.fold(floor), same); diff != "" {
				t.Fatalf("seed %d, event %d: (-anew +kept)\n%s", seed, i, diff)
			}
			want := closedAnew(now, floor)
			if got := s.closed(floor); got != want {
				t.Fatalf("seed %d, event %d: closed: got %v, want %v", seed, i, got, want)
			}
			if !want {
				open++
			}
		}
	}
	if open < 100 {
		t.Errorf("only %d steps with an open Key: the test does not test them", open)
	}
}

func TestWhatIsHeardOfAStateIsWhatItSaysWhateverMemoryHas(t *testing.T) {
	for seed := range uint64(200) {
		key, events, r := written(seed)
		s := newService(key)
		for seq := range uint64(10) {
			for i := range events {
				if events[i].Slice.Key == key && r.UintN(8) == 0 {
					s.learn(&events[i], endpoint.Version{})
				}
			}
			st := Fold(key, endpoint.Version{}, events[:r.IntN(len(events)+1)]...)
			for i := range st.Slices {
				st.Slices[i] = copied(st.Slices[i])
				if r.UintN(5) == 0 {
					st.Slices[i].UID = "other content at one version"
				}
			}
			said := st
			said.Slices = slices.Clone(st.Slices)
			count, sum := s.hear(&st, seq+1)
			if wantCount, want := ledger.OfState(said); sum != want || count != wantCount {
				t.Fatalf("seed %d: got %d, %s, want %d, %s", seed, count, sum, wantCount, want)
			}
			for name, got := range map[string]endpoint.State{"stored": s.stored, "input": st} {
				if diff := cmp.Diff(said, got, same); diff != "" {
					t.Fatalf("seed %d: %s: (-said +got)\n%s", seed, name, diff)
				}
			}
		}
	}
}

func TestContentThatMemoryHasIsHeldOnce(t *testing.T) {
	l := newLarge("cart", 3, 4)
	s := newService(l.key)
	var st endpoint.State
	for _, e := range l.events() {
		s.learn(&e, endpoint.Version{})
		st.Slices = append(st.Slices, copied(e.Slice))
	}
	st.Key = l.key
	s.hear(&st, 1)
	for i, sl := range s.fold(endpoint.Version{}).Slices {
		if &s.stored.Slices[i].Endpoints[0] != &sl.Endpoints[0] || &sl.Endpoints[0] != &l.slices[i].Endpoints[0] {
			t.Errorf("%s is held more than once", sl.Name)
		}
	}
}

func TestFoldTakesItsOwnKeyOnly(t *testing.T) {
	a, b := *step(t, set(a10)).Event, *step(t, "set prod/ops/cart cart-b rv=11 -").Event
	if got := Fold(cart, endpoint.Version{}, a, b); len(got.Slices) != 1 || got.Slices[0].Name != "cart-a" {
		t.Errorf("got %v, want cart-a alone", endpointtest.FormatState(got))
	}
}
