package xdsserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// deep gives a State that shares nothing with st, as one that was received.
func deep(st endpoint.State) endpoint.State {
	st.Slices, st.Gone = slices.Clone(st.Slices), slices.Clone(st.Gone)
	for i := range st.Slices {
		sl := &st.Slices[i]
		sl.Ports, sl.Endpoints = slices.Clone(sl.Ports), slices.Clone(sl.Endpoints)
	}
	return st
}

// successor gives a State like st in which some slices have changed, come or gone.
func successor(r endpointtest.Random, st endpoint.State) endpoint.State {
	next, other := deep(st), r.State(st.Key)
	for i := range next.Slices {
		sl := &next.Slices[i]
		switch r.UintN(4) {
		case 0: // an endpoint less, or other conditions, at a newer version
			if n := len(sl.Endpoints); n > 0 && r.UintN(2) == 0 {
				at := int(r.UintN(uint(n)))
				sl.Endpoints = slices.Delete(sl.Endpoints, at, at+1)
			} else if n > 0 {
				sl.Endpoints[0].Conditions ^= endpoint.Ready
			}
			sl.Version.Resource++
		case 1: // other content at the same version: what a broken history may hold
			if len(sl.Endpoints) > 0 {
				sl.Endpoints[0].TargetUID += "x"
			}
		}
	}
	for _, sl := range other.Slices {
		if at, found := findSlice(&next, sl.Name); !found {
			next.Slices = slices.Insert(next.Slices, at, sl)
		} else if r.UintN(4) == 0 {
			next.Slices = slices.Delete(next.Slices, at, at+1)
		}
	}
	return next
}

func TestWhatIsSharedChangesNothing(t *testing.T) {
	for seed := range uint64(400) {
		r := endpointtest.NewRandom(seed)
		known := r.State(r.Key())
		v := viewed{}.next(deep(known))
		for range 5 {
			received := successor(r, known)
			before := deep(received)
			st := sharing(received, &known)
			if !equalStates(received, before) {
				t.Fatalf("seed %d: what was received is changed", seed)
			}
			if !equalStates(st, before) {
				t.Fatalf("seed %d: got %+v, want %+v", seed, st, before)
			}
			v = v.next(st)
			count, sum := ledger.OfState(before)
			if uint64(len(v.digests)) != count || v.sum() != sum {
				t.Fatalf("seed %d: %d slices sum up to %s, want %d and %s", seed, len(v.digests), v.sum(), count, sum)
			}
			known = st
		}
	}
}

func equalStates(a, b endpoint.State) bool {
	return a.Key == b.Key && a.Floor == b.Floor && slices.Equal(a.Gone, b.Gone) && a.SameSlices(b) &&
		slices.EqualFunc(a.Slices, b.Slices, func(x, y endpoint.Slice) bool { return x.Observed.Equal(y.Observed) && x.Name == y.Name })
}

func TestEqualContentIsHeldOnce(t *testing.T) {
	known := bigService(300).States[0]
	received := deep(known)
	received.Slices[1].Version.Resource++
	received.Slices[1].Endpoints[0].Conditions = endpoint.Serving
	st := sharing(received, &known)
	for i := range st.Slices {
		shared := &st.Slices[i].Endpoints[0] == &known.Slices[i].Endpoints[0]
		if want := i != 1; shared != want {
			t.Errorf("slice %d: shared %t, want %t", i, shared, want)
		}
	}
}

// mentions gives what an index has, in words.
func (x *index) mentions() []string {
	var out []string
	for at, list := range x.addrs {
		for _, svc := range list {
			out = append(out, at.cluster+" "+at.addr.String()+" "+svc.id.String())
		}
	}
	for pod, list := range x.pods {
		for _, svc := range list {
			out = append(out, pod.Cluster+" pod "+pod.UID+" "+svc.id.String())
		}
	}
	slices.Sort(out)
	return out
}

func TestTheIndexHasAMentionPerEndpointWhateverCameBefore(t *testing.T) {
	for seed := range uint64(300) {
		r := endpointtest.NewRandom(seed)
		x, svc := newIndex(), &service{id: serviceID{"shop", "cart"}}
		st := endpoint.State{Key: r.Key()}
		for range 6 {
			next := successor(r, st)
			x.replace(svc, &st, &next)
			st = next
			fresh := newIndex()
			for i := range st.Slices {
				for j := range st.Slices[i].Endpoints {
					fresh.add(svc, st.Key.Cluster, &st.Slices[i].Endpoints[j])
				}
			}
			if got, want := x.mentions(), fresh.mentions(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		x.replace(svc, &st, &endpoint.State{Key: st.Key})
		if len(x.addrs)+len(x.pods) > 0 {
			t.Fatalf("seed %d: %v is left", seed, x.mentions())
		}
	}
}
