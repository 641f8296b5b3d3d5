package endpoint_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// state reads a State in the notation of traces; floor may be "".
func state(t *testing.T, floor string, lines ...string) endpoint.State {
	t.Helper()
	st := endpoint.State{Key: cart}
	for _, line := range lines {
		s, err := endpointtest.ParseStep(line)
		if err != nil {
			t.Fatal(err)
		}
		if e := s.Event; e.Gone {
			st.Gone = append(st.Gone, endpoint.Ref{Name: e.Slice.Name, Version: e.Slice.Version, Translator: e.Slice.Translator})
		} else {
			st.Slices = append(st.Slices, e.Slice)
		}
	}
	if floor != "" {
		var err error
		if st.Floor, err = endpoint.ParseVersion(floor); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func live(rest string) string { return "set prod/shop/cart " + rest }
func gone(rest string) string { return "gone prod/shop/cart " + rest }

func TestAStateIsValidOrSaysWhatIsWrong(t *testing.T) {
	good := state(t, "1/5", live("a rv=3 -"), live("b rv=9 -"), gone("c rv=8"))
	for _, tt := range []struct {
		name   string
		change func(*endpoint.State)
		want   string
	}{
		{"plain", func(*endpoint.State) {}, ""},
		{"empty", func(s *endpoint.State) { *s = endpoint.State{Key: cart} }, ""},
		{"key", func(s *endpoint.State) { s.Key.Service = "" }, "service name"},
		{"other key", func(s *endpoint.State) { s.Slices[0].Key.Service = "api" }, "a slice of"},
		{"slice", func(s *endpoint.State) { s.Slices[0].Version = endpoint.Version{} }, "no version"},
		{"out of order", func(s *endpoint.State) { slices.Reverse(s.Slices) }, "out of order"},
		{"twice", func(s *endpoint.State) { s.Slices[1] = s.Slices[0] }, "twice"},
		{"tombstone", func(s *endpoint.State) { s.Gone[0].Name = "" }, "tombstones"},
		{"live and gone", func(s *endpoint.State) { s.Gone[0].Name = "a" }, "live and gone"},
		{"tombstone up to the floor", func(s *endpoint.State) { s.Gone[0].Version = s.Floor }, "not above the floor"},
	} {
		s := good
		s.Slices, s.Gone = slices.Clone(s.Slices), slices.Clone(s.Gone)
		tt.change(&s)
		fails(t, tt.name, s.Valid(), tt.want)
	}
}

func TestJoinByExample(t *testing.T) {
	for _, tt := range []struct{ name, floorA, a, floorB, b, want string }{
		{"the newer speaks", "", live("s rv=3 http:80"), "", live("s rv=4 http:81"), live("s rv=4 http:81")},
		{"a newer tombstone", "", live("s rv=3 -"), "", gone("s rv=4"), gone("s rv=4")},
		{"an older tombstone", "", live("s rv=5 -"), "", gone("s rv=4"), live("s rv=5 -")},
		{"absent where the other is complete", "", live("s rv=3 -"), "1/3", "", ""},
		{"absent where the other does not know yet", "", live("s rv=4 -"), "1/3", "", live("s rv=4 -")},
		{"a tombstone that the floor covers", "1/9", "", "", gone("s rv=9"), ""},
		{"a tombstone of the live version, complete", "", live("s rv=3 -"), "1/3", gone("s rv=3"), ""},
		{"a tombstone of the live version, not complete", "", live("s rv=3 -"), "", gone("s rv=3"), live("s rv=3 -")},
		{"the newer translator", "", live("s rv=3 translator=2 http:80"), "", live("s rv=3 translator=1 http:81"), live("s rv=3 translator=2 http:80")},
		{"the newer translator buries", "", live("s rv=3 translator=1 -"), "", gone("s rv=3 translator=2"), gone("s rv=3 translator=2")},
		{"the larger content", "", live("s rv=3 http:80"), "", live("s rv=3 http:81"), live("s rv=3 http:81")},
		{"a new generation", "1/99", live("s rv=50 -"), "", live("s rv=2/1 http:80"), live("s rv=2/1 http:80")},
	} {
		parse := func(floor, line string) endpoint.State {
			if line == "" {
				return state(t, floor)
			}
			return state(t, floor, line)
		}
		a, b := parse(tt.floorA, tt.a), parse(tt.floorB, tt.b)
		want := parse("", tt.want)
		want.Floor = a.Floor
		if b.Floor.After(a.Floor) {
			want.Floor = b.Floor
		}
		for _, got := range []endpoint.State{a.Join(b), b.Join(a)} {
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
			}
		}
	}
}

// without takes the times away, which are not content: of two equal entries either one may stay.
func without(s endpoint.State) endpoint.State {
	s.Slices, s.Gone = slices.Clone(s.Slices), slices.Clone(s.Gone)
	for i := range s.Slices {
		s.Slices[i].Observed, s.Slices[i].Triggered = time.Time{}, time.Time{}
	}
	for i := range s.Gone {
		s.Gone[i].Observed = time.Time{}
	}
	return s
}

func TestJoinOfAnyTwoStatesIsLegalCommutativeAndIdempotent(t *testing.T) {
	for seed := range uint64(1000) {
		r := endpointtest.NewRandom(seed)
		a, b := r.State(cart), r.State(cart)
		kept := without(a)
		ab := a.Join(b)
		fails(t, "join", ab.Valid(), "")
		for _, tt := range []struct {
			law       string
			got, want endpoint.State
		}{
			{"a+b = b+a", b.Join(a), ab},
			{"a+a = a", a.Join(a), a},
			{"(a+b)+b = a+b", ab.Join(b), ab},
			{"the input is untouched", a, kept},
		} {
			if diff := cmp.Diff(without(tt.want), without(tt.got), same); diff != "" {
				t.Fatalf("seed %d: %s: (-want +got)\n%s", seed, tt.law, diff)
			}
		}
	}
}

func TestJoinOfViewsOfOneHistoryIsAssociativeAndNeverLosesKnowledge(t *testing.T) {
	for seed := range uint64(500) {
		r := endpointtest.NewRandom(seed)
		api := endpointtest.NewAPI("prod")
		for range 20 + r.IntN(30) {
			api.Change(r)
		}
		key := api.Keys()[1]
		view := func() endpoint.State {
			return api.View(r, key, endpoint.Version{Generation: 1, Resource: 1 + r.Uint64N(api.Now().Resource)})
		}
		a, b, c := view(), view(), view()
		if diff := cmp.Diff(a.Join(b).Join(c), a.Join(b.Join(c)), same); diff != "" {
			t.Fatalf("seed %d: (a+b)+c against a+(b+c):\n%s", seed, diff)
		}
		now := endpoint.State{Key: key, Slices: api.At(key, api.Now()), Floor: api.Now()}
		if diff := cmp.Diff(now, a.Join(now), same); diff != "" {
			t.Fatalf("seed %d: what is complete as of now is not the end of it: (-now +joined)\n%s", seed, diff)
		}
	}
}

// only gives what a State says of one slice.
func only(s endpoint.State, name string) endpoint.State {
	s.Slices = slices.DeleteFunc(slices.Clone(s.Slices), func(sl endpoint.Slice) bool { return sl.Name != name })
	s.Gone = slices.DeleteFunc(slices.Clone(s.Gone), func(g endpoint.Ref) bool { return g.Name != name })
	return s
}

func TestJoinJoinsEachSliceByItself(t *testing.T) {
	for seed := range uint64(1000) {
		r := endpointtest.NewRandom(seed)
		a, b := r.State(cart), r.State(cart)
		names := map[string]bool{}
		for _, st := range []endpoint.State{a, b} {
			for _, sl := range st.Slices {
				names[sl.Name] = true
			}
			for _, g := range st.Gone {
				names[g.Name] = true
			}
		}
		want := endpoint.State{Key: cart, Floor: a.Join(b).Floor}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			one := only(a, name).Join(only(b, name))
			want.Slices, want.Gone = append(want.Slices, one.Slices...), append(want.Gone, one.Gone...)
		}
		if diff := cmp.Diff(want, a.Join(b), same); diff != "" {
			t.Fatalf("seed %d: (-each slice +join)\n%s", seed, diff)
		}
	}
}

func TestSharedContentIsTheSameAndEqualContentTooWhereverItLies(t *testing.T) {
	for seed := range uint64(300) {
		r := endpointtest.NewRandom(seed)
		a, b := r.State(cart), r.State(cart)
		for _, x := range append(slices.Clone(a.Slices), b.Slices...) {
			for _, y := range b.Slices {
				want := string(x.Content()) == string(y.Content())
				far := y
				far.Ports, far.Endpoints = slices.Clone(y.Ports), slices.Clone(y.Endpoints)
				if x.SameContent(y) != want || x.SameContent(far) != want {
					t.Fatalf("seed %d: %s and %s: got %v and %v, want %v", seed, x.Name, y.Name, x.SameContent(y), x.SameContent(far), want)
				}
				// A part of a list begins where the list does.
				if far = y; len(y.Endpoints) > 0 {
					far.Endpoints = y.Endpoints[:len(y.Endpoints)-1]
					if y.SameContent(far) {
						t.Fatalf("seed %d: a slice is the same as a part of it", seed)
					}
				}
			}
		}
	}
}

// The law needs one history: a view that is complete as of 10 without s@5, and one that has s@5 while complete as of
// 10, cannot both be true, and then the order decides.
func TestJoinOfTwoHistoriesIsNotAssociative(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		r := endpointtest.NewRandom(seed)
		a, b, c := r.State(cart), r.State(cart), r.State(cart)
		if !cmp.Equal(without(a.Join(b).Join(c)), without(a.Join(b.Join(c))), same) {
			found++
		}
	}
	if found == 0 {
		t.Error("the law holds for any states: say so in the documentation of Join")
	}
}

func TestSameSlicesLooksAtWhatIsLiveOnly(t *testing.T) {
	base := state(t, "", live("s rv=3 http:80"))
	for _, tt := range []struct {
		name  string
		other endpoint.State
		want  bool
	}{
		{"itself", base, true},
		{"floor and tombstones", state(t, "1/1", live("s rv=3 http:80"), gone("z rv=9")), true},
		{"version", state(t, "", live("s rv=4 http:80")), false},
		{"name", state(t, "", live("r rv=3 http:80")), false},
		{"translator", state(t, "", live("s rv=3 translator=1 http:80")), false},
		{"content", state(t, "", live("s rv=3 http:81")), false},
		{"nothing", state(t, ""), false},
	} {
		if got := base.SameSlices(tt.other); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
