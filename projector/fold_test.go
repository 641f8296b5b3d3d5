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

func TestTheSumOfAStateIsThatOfTheLedgerWhateverMemoryHas(t *testing.T) {
	for seed := range uint64(500) {
		key, events, r := written(seed)
		s := newService(key)
		for range 10 {
			for i := range events {
				if events[i].Slice.Key == key && r.UintN(8) == 0 {
					s.learn(&events[i], endpoint.Version{})
				}
			}
			st := Fold(key, endpoint.Version{}, events[:r.IntN(len(events)+1)]...)
			if len(st.Slices) > 0 && r.UintN(3) == 0 {
				st.Slices[0].UID = "other content at one version"
			}
			count, sum := s.sumOf(&st)
			if wantCount, want := ledger.OfState(st); sum != want || count != wantCount {
				t.Fatalf("seed %d: got %d, %s, want %d, %s", seed, count, sum, wantCount, want)
			}
		}
	}
}

func TestFoldTakesItsOwnKeyOnly(t *testing.T) {
	a, b := *step(t, set(a10)).Event, *step(t, "set prod/ops/cart cart-b rv=11 -").Event
	if got := Fold(cart, endpoint.Version{}, a, b); len(got.Slices) != 1 || got.Slices[0].Name != "cart-a" {
		t.Errorf("got %v, want cart-a alone", endpointtest.FormatState(got))
	}
}
