package xdsserver

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// reader is a Store that a test feeds by hand.
type reader struct {
	t     *testing.T
	s     *Store
	seq   uint64
	views map[endpoint.Key]endpoint.State // what the stream holds
}

func newReader(t *testing.T, expected ...string) *reader {
	return &reader{t: t, s: newStore(&sync.Mutex{}, expected, failoverAny), views: map[endpoint.Key]endpoint.State{}}
}

func (r *reader) tell(n ledger.Notice) error {
	r.t.Helper()
	return r.s.notice(n)
}

func (r *reader) open() {
	r.t.Helper()
	r.views = map[endpoint.Key]endpoint.State{}
	if err := r.tell(ledger.Notice{Kind: ledger.Opened}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) state(st endpoint.State) {
	r.t.Helper()
	r.seq++
	r.views[st.Key] = st
	if err := r.tell(stateNoticeAt(r.seq, st)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) complete() {
	r.t.Helper()
	if err := r.tell(ledger.Notice{Kind: ledger.Complete, Seq: r.seq}); err != nil {
		r.t.Fatal(err)
	}
}

// certify sends a checkpoint of what the stream holds; wrong makes it one of something else.
func (r *reader) certify(cluster string, complete uint64, wrong bool) error {
	r.t.Helper()
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: complete}, AsOf: r.seq}
	for key, st := range r.views {
		if key.Cluster == cluster {
			count, sum := ledger.OfState(st)
			cp.Count, cp.Sum = cp.Count+count, cp.Sum.Add(sum)
		}
	}
	if wrong {
		cp.Count++
	}
	r.seq++
	return r.tell(ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Seq: r.seq, Checkpoint: cp})
}

// has lists the slices of cart in prod, as name@resourceVersion.
func (r *reader) has(service string) string {
	st, _ := r.s.state(endpoint.Key{Cluster: "prod", Namespace: "shop", Service: service})
	var out []string
	for _, sl := range st.Slices {
		out = append(out, sl.Name+"@"+strings.TrimPrefix(sl.Version.String(), "1/"))
	}
	return strings.Join(out, " ")
}

func (r *reader) want(service, want string) {
	r.t.Helper()
	if got := r.has(service); got != want {
		r.t.Fatalf("%s: got %q, want %q", service, got, want)
	}
}

func TestTheMemoryOutlivesSessionsAndShrinksOnlyByACheckpoint(t *testing.T) {
	r := newReader(t)
	a, b := sliceOf("prod", "a", 10, ep("10.0.0.1 rs-")), sliceOf("prod", "b", 20, ep("10.0.0.2 rs-"))
	other := ofService(sliceOf("prod", "o", 15, ep("10.0.0.3 rs-")), "shop", "old")
	r.open()
	r.state(stateOf(a, b))
	r.state(stateOf(other))
	r.complete()
	r.want("cart", "a@10 b@20")
	// The stream was rolled back: it holds less, and nobody certified that.
	r.open()
	r.state(stateOf(a))
	r.complete()
	r.want("cart", "a@10 b@20")
	r.want("old", "o@15")
	// Complete as of 17: o is gone, b is newer than that.
	if err := r.certify("prod", 17, false); err != nil {
		t.Fatal(err)
	}
	r.want("cart", "a@10 b@20")
	r.want("old", "")
	if _, known := r.s.state(other.Key); known {
		t.Error("a service that neither the bus nor the memory has is still known")
	}
	if err := r.certify("prod", 20, false); err != nil {
		t.Fatal(err)
	}
	r.want("cart", "a@10")
	if got := r.s.floor("prod"); got != (endpoint.Version{Generation: 1, Resource: 20}) {
		t.Errorf("floor %s, want 1/20", got)
	}
	// What the certified view did not have does not come back late.
	r.state(stateOf(a, b))
	r.want("cart", "a@10")
}

func TestAnOlderStateTakesNothingBack(t *testing.T) {
	r := newReader(t)
	r.open()
	r.state(stateOf(sliceOf("prod", "a", 10, ep("10.0.0.2 rs-"))))
	r.complete()
	r.state(stateOf(sliceOf("prod", "a", 9, ep("10.0.0.1 rs-"))))
	r.want("cart", "a@10")
	gone := endpoint.State{Key: sliceOf("prod", "a", 1).Key, Gone: []endpoint.Ref{{Name: "a", Version: endpoint.Version{Generation: 1, Resource: 12}}}}
	r.state(gone)
	r.want("cart", "")
	r.state(stateOf(sliceOf("prod", "a", 11, ep("10.0.0.1 rs-"))))
	r.want("cart", "")
	if got := r.s.version(gone.Key, "a"); got.Resource != 12 {
		t.Errorf("the slice is known at %s, want its tombstone's 1/12", got)
	}
	if got := r.s.version(gone.Key, "never"); !got.IsZero() {
		t.Errorf("a slice that never was is known at %s", got)
	}
}

func TestTwoCheckpointsThatDisagreeOpenTheSessionAgain(t *testing.T) {
	r := newReader(t)
	r.open()
	r.state(stateOf(sliceOf("prod", "a", 10, ep("10.0.0.1 rs-"))))
	if err := r.certify("prod", 10, true); err != nil {
		t.Fatal(err)
	}
	r.complete() // The first disagreement is found here.
	if err := r.certify("prod", 11, false); err != nil {
		t.Fatal(err)
	}
	if err := r.certify("prod", 12, true); err != nil {
		t.Fatalf("one disagreement after an agreement: %v", err)
	}
	if err := r.certify("prod", 13, true); !errors.Is(err, ledger.ErrResync) {
		t.Fatalf("got %v, want ErrResync", err)
	}
	r.want("cart", "a@10")
	// A checkpoint of a time that the session has not seen says nothing.
	r.open()
	r.state(stateOf(sliceOf("prod", "a", 10, ep("10.0.0.1 rs-"))))
	r.complete()
	for range 3 {
		r.seq++
		early := ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: r.seq, Checkpoint: ledger.Checkpoint{AsOf: 1}}
		if err := r.tell(early); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStoreIsInSyncWithEveryClusterItExpects(t *testing.T) {
	r := newReader(t, "edge")
	check := func(when, want string) {
		t.Helper()
		waiting, read := r.s.waiting()
		got := strings.Join(waiting, " ")
		if !read {
			got = "unread " + got
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	r.s.record(ledger.Notice{Kind: ledger.Recorded, Cluster: "moon", Record: recordOf("")})
	r.s.record(ledger.Notice{Kind: ledger.Complete})
	r.open()
	r.state(stateOf(sliceOf("prod", "a", 10, ep("10.0.0.1 rs-"))))
	check("before the snapshot", "unread edge moon prod")
	r.complete()
	check("after it", "edge moon prod")
	for _, cluster := range []string{"prod", "moon", "edge"} {
		if !r.s.blind(Name{Service: "x", Namespace: "y"}) {
			t.Errorf("before %s is in sync a merged name can be told to be unknown", cluster)
		}
		if pinned := (Name{Service: "x", Namespace: "y", Cluster: cluster}); r.s.blind(pinned) != (cluster != "prod") {
			t.Errorf("%s before it is in sync: blind %t", cluster, !(cluster != "prod"))
		}
		if err := r.certify(cluster, 10, false); err != nil {
			t.Fatal(err)
		}
	}
	check("at the end", "")
	if r.s.blind(Name{Service: "x", Namespace: "y"}) {
		t.Error("nothing can be told to be unknown")
	}
	if got := r.s.clusterNames(); !slices.Equal(got, []string{"edge", "moon", "prod"}) {
		t.Errorf("clusters %v", got)
	}
	if empty := newReader(t); !empty.s.blind(Name{}) {
		t.Error("an empty bus is taken for a state")
	}
}

func TestALiveChangeCarriesWhenItWasObserved(t *testing.T) {
	r := newReader(t)
	var last []touch
	r.s.touched = func(t []touch) { last = t }
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	a, b := sliceOf("prod", "a", 10, ep("10.0.0.1 rs-")), sliceOf("prod", "b", 11, ep("10.0.0.2 rs-"))
	a.Observed, b.Observed = late, early
	r.open()
	r.state(stateOf(a))
	if len(last) != 1 || last[0].live {
		t.Errorf("the snapshot touched %+v, want nothing live", last)
	}
	r.complete()
	r.state(stateOf(a, b))
	if want := (touch{serviceID{"shop", "cart"}, true, early}); len(last) != 1 || last[0] != want {
		t.Errorf("got %+v, want %+v", last, want)
	}
	r.state(stateOf(a, b))
	if len(last) != 0 {
		t.Errorf("no change touched %+v", last)
	}
	gone := stateOf(a)
	gone.Gone = []endpoint.Ref{{Name: "b", Version: endpoint.Version{Generation: 1, Resource: 12}, Observed: late}}
	r.state(gone)
	if len(last) != 1 || last[0].observed != late {
		t.Errorf("a deletion gives %+v, want %s", last, late)
	}
}

func TestRandomStatesInAnyOrderLeaveOneMemory(t *testing.T) {
	for seed := range uint64(100) {
		r := endpointtest.NewRandom(seed)
		api := endpointtest.NewAPI("prod")
		for range 40 {
			api.Change(r)
		}
		key := api.Keys()[1]
		var views []endpoint.State
		for range 6 {
			views = append(views, api.View(r, key, endpoint.Version{Generation: 1, Resource: 1 + r.Uint64N(20)}))
		}
		views = append(views, endpoint.State{Key: key, Slices: api.At(key, api.Now()), Floor: api.Now()})
		var want endpoint.State
		for round := range 4 {
			one := newReader(t)
			one.open()
			for _, st := range views {
				one.state(st)
			}
			got, _ := one.s.state(key)
			if round == 0 {
				want = got
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
			}
			r.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
		}
	}
}

func TestAPodIsSeenInEverySliceThatHoldsIt(t *testing.T) {
	r := newReader(t)
	r.open()
	first := sliceOf("prod", "a", 10, ep("10.0.0.1 -st p"), ep("10.0.0.2 --t q"))
	second := ofService(withPorts(sliceOf("prod", "z", 11, ep("10.0.0.1 rs- p"), ep("10.0.0.3 rs-")), endpoint.Port{Number: 99}), "shop", "admin")
	shared := ofService(withPorts(sliceOf("prod", "n", 12, ep("10.0.0.1 rs- host")), endpoint.Port{Name: "x", Number: 9100}), "kube", "node")
	r.state(stateOf(first))
	r.state(stateOf(second))
	r.state(stateOf(shared))
	r.complete()
	if err := r.certify("prod", 12, false); err != nil {
		t.Fatal(err)
	}
	v := r.s.pod("prod", "p", nil)
	if len(v.Seen) != 2 || !v.Used || !v.Fallback || !v.Current || v.Floor.Resource != 12 || v.Shared {
		t.Errorf("got %+v", v)
	}
	if diff := cmp.Diff([]string{"shop/admin", "shop/cart"}, v.Services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	wantAddrs := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:99"), netip.MustParseAddrPort("10.0.0.1:8080")}
	if !slices.Equal(v.Addrs, wantAddrs) {
		t.Errorf("addresses %v, want %v", v.Addrs, wantAddrs)
	}
	if want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:9100")}; !slices.Equal(v.Foreign, want) {
		t.Errorf("foreign %v, want %v", v.Foreign, want)
	}
	if q := r.s.pod("prod", "q", nil); q.Used || len(q.Seen) != 1 {
		t.Errorf("a pod that does not serve: %+v", q)
	}
	if n := r.s.pod("prod", "", []netip.Addr{netip.MustParseAddr("10.0.0.3")}); !n.Used || len(n.Seen) != 1 || n.Seen[0].Slice != "z" {
		t.Errorf("an endpoint without target: %+v", n)
	}
	if none := r.s.pod("moon", "p", nil); len(none.Seen) > 0 || none.Current {
		t.Errorf("another cluster: %+v", none)
	}
	r.state(stateOf(withPorts(sliceOf("prod", "a", 13, ep("10.0.0.1 rs- host"), ep("10.0.0.1 -st p")), endpoint.Port{Name: "http", Number: 8080})))
	if v := r.s.pod("prod", "p", nil); !v.Shared {
		t.Errorf("another pod on the same port is not seen: %+v", v)
	}
}

func TestAPromiseLastsUntilThePodIsGoneOrReleased(t *testing.T) {
	r := newReader(t)
	r.open()
	r.state(stateOf(sliceOf("prod", "a", 10, ep("10.0.0.1 -st p"))))
	r.complete()
	r.s.Promise("prod", "p")
	r.s.Promise("prod", "") // Nobody.
	if v := r.s.Pod("prod", "p", nil); v.Used || !v.Promised {
		t.Errorf("promised: %+v", v)
	}
	r.s.Release("prod", "p")
	r.s.Release("prod", "q") // Never promised.
	if v := r.s.Pod("prod", "p", nil); !v.Used || v.Promised {
		t.Errorf("released: %+v", v)
	}
	r.s.Promise("prod", "p")
	r.state(stateOf(sliceOf("prod", "a", 11, ep("10.0.0.2 rs- q"))))
	if len(r.s.promised) != 0 {
		t.Error("a promise for a pod that is gone is kept")
	}
}
