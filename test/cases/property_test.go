package cases

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/xdsserver"
)

var (
	histories = flag.Int("histories", 60, "random histories for each property")
	firstSeed = flag.Uint64("seed", 0, "the first of them")
)

// allViews are Views of every kind.
var allViews = []xdsserver.View{
	{},
	{Cluster: "prod"},
	{Cluster: "edge"},
	{Cluster: "elsewhere", Region: "eu"},
	{Cluster: "prod", Zone: "z1"},
	{Cluster: "prod", Zone: "z2", Node: "n1"},
	{Cluster: "prod", Zone: "z9", Node: "n9"},
	{Cluster: "edge", Zone: "z1", Family: xdsserver.IPv4},
	{Cluster: "prod", Zone: "z1", Family: xdsserver.IPv6},
	{Cluster: "prod", Family: xdsserver.IPv6},
}

// eachSeed runs a test for every seed.
func eachSeed(t *testing.T, run func(t *testing.T, r endpointtest.Random)) {
	t.Helper()
	t.Logf("%d histories from -seed=%d", *histories, *firstSeed)
	for i := range *histories {
		seed := *firstSeed + uint64(i)
		run(t, endpointtest.NewRandom(seed))
		if t.Failed() {
			t.Fatalf("-seed=%d", seed)
		}
	}
}

// fingerprint is all that must be equal on every replica: what States say, and the bytes of every assignment.
func fingerprint(w *world, states map[endpoint.Key]endpoint.State) string {
	var b strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(states), endpoint.Key.Compare) {
		sec := endpointtest.FormatState(states[key])
		fmt.Fprintln(&b, sec.Head, sec.Body)
	}
	for _, name := range w.names() {
		svc := serviceOf(states, w.regions, name)
		for _, view := range allViews {
			fmt.Fprintf(&b, "%s %+v %x\n", name, view, xdsserver.Assign(svc, view, name).Encode())
		}
	}
	return b.String()
}

// inBatches folds events in another order, in batches that are joined, some of them twice.
func inBatches(r endpointtest.Random, events []endpoint.Event) map[endpoint.Key]endpoint.State {
	events = slices.Clone(events)
	for range len(events) / 3 {
		events = append(events, events[r.IntN(len(events))])
	}
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	out := map[endpoint.Key]endpoint.State{}
	for len(events) > 0 {
		n := 1 + r.IntN(len(events))
		for _, e := range events[:n] {
			key := e.Slice.Key
			st, known := out[key]
			if !known {
				st.Key = key
			}
			out[key] = st.Join(projector.Fold(key, endpoint.Version{}, events[:n]...))
		}
		events = events[n:]
	}
	return out
}

// checkOrder checks that the steps give the same whatever the order of events, and of what is in the objects.
func checkOrder(t *testing.T, r endpointtest.Random, steps []step) {
	t.Helper()
	plain, mixed := newWorld(), newWorld()
	mixed.shuffle = shuffled(r)
	for _, s := range steps {
		plain.apply(s)
		mixed.apply(s)
	}
	p := newPipeline()
	p.tell(plain.events...)
	want := fingerprint(plain, p.states())
	if diff := cmp.Diff(want, fingerprint(plain, inBatches(r, plain.events))); diff != "" {
		t.Fatalf("in another order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, fingerprint(plain, inBatches(r, mixed.events))); diff != "" {
		t.Fatalf("of shuffled objects (-want +got):\n%s", diff)
	}
}

func TestNeitherOrderNorBatchesNorRepetitionMatterInAnyCase(t *testing.T) {
	eachCase(t, func(t *testing.T, c testCase) {
		for seed := range uint64(3) {
			var steps []step
			for _, st := range c.stages {
				steps = append(steps, st.steps...)
				checkOrder(t, endpointtest.NewRandom(seed), steps)
			}
		}
	})
}

func TestNeitherOrderNorBatchesNorRepetitionMatterInRandomHistories(t *testing.T) {
	eachSeed(t, func(t *testing.T, r endpointtest.Random) {
		checkOrder(t, r, anySteps(r, 1+r.IntN(30)))
		checkOrder(t, r, fleetSteps(r, 1+r.IntN(30)))
	})
}

// checkViews checks every assignment of States against the plain model: it is acceptable to the strictest client, has
// nothing that is not usable, all of it for a client without zone, and something whenever there is something.
func checkViews(t *testing.T, names []xdsserver.Name, states map[endpoint.Key]endpoint.State) {
	t.Helper()
	for _, name := range names {
		svc, all := serviceOf(states, nil, name), slicesOf(states, name)
		for _, view := range allViews {
			got, err := given(xdsserver.Assign(svc, view, name).Encode())
			if err != nil {
				t.Fatalf("%s for %+v: %v", name, view, err)
			}
			want := usable(all, name.Port, view.Family)
			if len(got) == 0 && len(want) > 0 {
				t.Errorf("%s for %+v is empty, while %v are usable", name, view, want)
			}
			if whole := view.Zone == "" && view.Node == ""; !got.within(want) || whole && len(got) != len(want) {
				t.Errorf("%s for %+v: got %v, usable are %v", name, view, got, want)
			}
		}
	}
	if t.Failed() {
		for _, sec := range formatStates(states) {
			t.Log(sec.Head, strings.Join(sec.Body, "\n"))
		}
	}
}

func TestEveryViewIsGivenWhatIsUsableAfterEveryWrite(t *testing.T) {
	eachSeed(t, func(t *testing.T, r endpointtest.Random) {
		for _, steps := range [][]step{withoutPolicies(anySteps(r, 25)), fleetSteps(r, 40)} {
			w, p := newWorld(), newPipeline()
			for _, s := range steps {
				p.tell(w.apply(s)...)
				checkViews(t, w.names(), p.states())
			}
		}
	})
}

// withoutPolicies takes away what the model does not know.
func withoutPolicies(steps []step) []step {
	for _, s := range steps {
		delete(s.object.Labels, "slicecast.io/terminating")
	}
	return steps
}
