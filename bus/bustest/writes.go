package bustest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// equal compares values of the vocabulary: addresses by ==, empty lists as none.
var equal = cmp.Options{cmpopts.EquateComparable(endpoint.Endpoint{}, endpoint.Port{}), cmpopts.EquateEmpty(), cmp.Comparer(time.Time.Equal)}

func put(t *testing.T, m Made, ev endpoint.Event, expect uint64) ledger.Result {
	t.Helper()
	r, err := m.Events.Put(t.Context(), ev, expect)
	if err != nil {
		t.Fatalf("put %s at %s: %v", ev.Slice.Name, ev.Slice.Version, err)
	}
	return r
}

// mustPut is put where a lost compare-and-set fails the test. It gives the sequence.
func mustPut(t *testing.T, m Made, ev endpoint.Event, expect uint64) uint64 {
	t.Helper()
	r := put(t, m, ev, expect)
	if !r.Saved || r.Seq == 0 {
		t.Fatalf("put %s at %s, expecting %d: got %+v, want it saved", ev.Slice.Name, ev.Slice.Version, expect, r)
	}
	return r.Seq
}

func testCompareAndSet(t *testing.T, m Made) {
	first := mustPut(t, m, Event("ca", "shop", "shop-a", 5, 1), 0)
	if r := put(t, m, Event("ca", "shop", "shop-a", 6, 1), 0); r.Saved {
		t.Errorf("a second creation: got %+v, want it refused", r)
	}
	other := mustPut(t, m, Event("ca", "shop", "shop-b", 6, 1), 0)
	second := mustPut(t, m, Event("ca", "shop", "shop-a", 7, 2), first)
	if second <= other {
		t.Errorf("sequences %d, %d, %d do not grow", first, other, second)
	}
	if r := put(t, m, Event("ca", "shop", "shop-a", 8, 3), first); r.Saved {
		t.Errorf("a write over what it did not expect: got %+v, want it refused", r)
	}
	mustPut(t, m, Event("ca", "shop", "shop-a", 9, -1), second)
	if r := put(t, m, Event("ca", "shop", "shop-a", 10, 1), 0); r.Saved {
		t.Errorf("a creation over a tombstone: got %+v, want it refused", r)
	}
}

func testRace(t *testing.T, m Made) {
	const writers, rounds = 8, 20
	expect := uint64(0)
	for round := range rounds {
		var mu sync.Mutex
		var won []uint64
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				r, err := m.Events.Put(t.Context(), Event("ca", "shop", "shop-a", uint64(1+round*writers+w), 1), expect)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if r.Saved {
					mu.Lock()
					won = append(won, r.Seq)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d of %d writers won, want 1", round, len(won), writers)
		}
		expect = won[0]
	}
}

func testGet(t *testing.T, m Made) {
	ev := Event("ca", "shop", "shop-a.with.dots", 5, 3)
	ev.Slice.Triggered = ev.Slice.Observed.Add(-time.Second)
	ev.Slice.TerminatingPolicy = "drain"
	ev.Slice.Endpoints[1].ZoneHints = "z1,z2"
	ev.Previous = endpoint.Version{Generation: 1, Resource: 3}
	ev.Peers = []endpoint.Ref{{Name: "shop-b", Version: endpoint.Version{Generation: 1, Resource: 4}}}
	ev.Transitions = []endpoint.Transition{{Addr: ev.Slice.Endpoints[0].Addr, Before: endpoint.Absent, After: endpoint.Ready}}
	seq := mustPut(t, m, ev, 0)
	n, err := m.Events.Get(t.Context(), ev.Slice.Key, ev.Slice.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.Notice{
		Kind: ledger.Changed, Cluster: "ca", Seq: seq, Key: ev.Slice.Key, Slice: ev.Slice.Name, Version: ev.Slice.Version,
		Hash: ev.Slice.Hash(), Translator: 1, Event: &ev,
	}
	if diff := cmp.Diff(want, n, equal, cmpopts.IgnoreFields(ledger.Notice{}, "Stored"), cmp.Comparer(sameTransition)); diff != "" {
		t.Errorf("get differs (-want +got):\n%s", diff)
	}
	if n.Stored.IsZero() {
		t.Error("the message has no time")
	}
	none := endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "none"}
	n, err = m.Events.Get(t.Context(), none, "none-a")
	if want := (ledger.Notice{Kind: ledger.Absent, Cluster: "ca", Key: none, Slice: "none-a"}); err != nil || !cmp.Equal(want, n, equal) {
		t.Errorf("get of nothing: got %+v, %v, want %+v", n, err, want)
	}
}

func sameTransition(a, b endpoint.Transition) bool { return a == b }

func testInvalid(t *testing.T, m Made) {
	bad := Event("ca", "shop", "shop-a", 5, 1)
	bad.Slice.Key.Service = "no.label"
	if r, err := m.Events.Put(t.Context(), bad, 0); err == nil || r.Saved {
		t.Errorf("an invalid event: got %+v, %v, want an error", r, err)
	}
	if r, err := m.States.Put(t.Context(), endpoint.State{}, 0); err == nil || r.Saved {
		t.Errorf("an invalid state: got %+v, %v, want an error", r, err)
	}
	if r, err := m.Events.Certify(t.Context(), "ca", ledger.Checkpoint{}, 0); err == nil || r.Saved {
		t.Errorf("a checkpoint without a version: got %+v, %v, want an error", r, err)
	}
	if r, err := m.Events.PutRecord(t.Context(), "ca", ledger.Record{}, 0); err == nil || r.Saved {
		t.Errorf("a record without a uid: got %+v, %v, want an error", r, err)
	}
	if r, err := m.Events.PutRecord(t.Context(), "c.a", ledger.Record{UID: "u", Generation: 1}, 0); err == nil || r.Saved {
		t.Errorf("a record of no cluster name: got %+v, %v, want an error", r, err)
	}
	if err := m.Events.Follow(t.Context(), "*", false, nil); err == nil {
		t.Error("follow of a wildcard: got no error")
	}
	if err := m.States.Follow(t.Context(), "c.a", nil); err == nil {
		t.Error("follow of states of no cluster name: got no error")
	}
}

func testRecords(t *testing.T, m Made) {
	if r, seq, err := m.Events.Record(t.Context(), "ca"); r != (ledger.Record{}) || seq != 0 || err != nil {
		t.Errorf("no record: got %+v, %d, %v", r, seq, err)
	}
	want := ledger.Record{UID: "uid of ca", Generation: 1, Region: "eu west/1", Policy: "expire=1h", Scope: "namespaces=a,b selector=tier in (x,y)"}
	res, err := m.Events.PutRecord(t.Context(), "ca", want, 0)
	if err != nil || !res.Saved {
		t.Fatalf("put record: got %+v, %v", res, err)
	}
	if r, seq, err := m.Events.Record(t.Context(), "ca"); r != want || seq != res.Seq || err != nil {
		t.Errorf("record: got %+v, %d, %v, want %+v, %d", r, seq, err, want, res.Seq)
	}
	if lost, err := m.Events.PutRecord(t.Context(), "ca", want, 0); err != nil || lost.Saved {
		t.Errorf("a second creation: got %+v, %v, want it refused", lost, err)
	}
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: 9}, AsOf: 1, Count: 2, Sum: ledger.Sum{Hi: 3, Lo: 4}}
	for name, certify := range map[string]Certifier{"events": m.Events, "states": m.States} {
		one, err := certify.Certify(t.Context(), "ca", cp, 0)
		if err != nil || !one.Saved {
			t.Fatalf("certify %s: got %+v, %v", name, one, err)
		}
		if lost, err := certify.Certify(t.Context(), "ca", cp, 0); err != nil || lost.Saved {
			t.Errorf("certify %s twice: got %+v, %v, want it refused", name, lost, err)
		}
		if two, err := certify.Certify(t.Context(), "ca", cp, one.Seq); err != nil || !two.Saved {
			t.Errorf("certify %s again: got %+v, %v", name, two, err)
		}
	}
}
