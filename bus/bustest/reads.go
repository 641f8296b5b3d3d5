package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// follow starts a Recorder on the events of cluster.
func follow(t *testing.T, m Made, cluster string, headersOnly bool) (r *Recorder, stop func() error) {
	t.Helper()
	r = NewRecorder()
	stop = r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return m.Events.Follow(ctx, cluster, headersOnly, handle)
	})
	return r, stop
}

func testEmpty(t *testing.T, m Made) {
	r, _ := follow(t, m, "", false)
	got := r.WaitComplete(t, 1)
	if len(got) != 2 || got[0].Kind != ledger.Opened || got[0].Created.IsZero() || got[1].Seq != 0 {
		t.Errorf("got %+v, want Opened with a creation, and Complete at 0", got)
	}
	seq := mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	r.Wait(t, "the first event", func(s [][]ledger.Notice) bool {
		return len(s) == 1 && len(s[0]) == 3 && s[0][2].Kind == ledger.Changed && s[0][2].Seq == seq
	})
}

func testSession(t *testing.T, m Made) {
	a := mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	b := mustPut(t, m, Event("ca", "shop", "shop-b", 2, 1), 0)
	a = mustPut(t, m, Event("ca", "shop", "shop-a", 3, 2), a)
	r, _ := follow(t, m, "", false)
	got := r.WaitComplete(t, 1)
	if len(got) != 4 || got[0].Kind != ledger.Opened || got[1].Seq != b || got[2].Seq != a || got[3].Kind != ledger.Complete || got[3].Seq != a {
		t.Fatalf("got %v, want Opened, shop-b, shop-a, Complete", kinds([][]ledger.Notice{got}))
	}
	if n := got[2]; n.Slice != "shop-a" || n.Version.Resource != 3 || n.Event == nil || len(n.Event.Slice.Endpoints) != 2 || n.Stored.IsZero() {
		t.Errorf("got %+v, want the newest shop-a with its body", n)
	}
	b = mustPut(t, m, Event("ca", "shop", "shop-b", 4, -1), b)
	sessions := r.Wait(t, "the tombstone", func(s [][]ledger.Notice) bool { return len(s[0]) >= 5 })
	if n := sessions[0][4]; len(sessions) != 1 || n.Seq != b || !n.Gone || n.Event == nil || !n.Event.Gone {
		t.Errorf("got %+v in %d sessions, want the tombstone of shop-b", n, len(sessions))
	}
}

func testFiltered(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	for i := range 20 {
		mustPut(t, m, Event("cb", "shop", fmt.Sprintf("shop-%d", i), 1, 1), 0)
	}
	r, _ := follow(t, m, "ca", false)
	got := r.WaitComplete(t, 1)
	if len(got) != 3 || got[1].Cluster != "ca" || got[2].Seq < 21 || got[2].Cluster != "ca" {
		t.Errorf("got %+v, want one event of ca and Complete at 21 or later", got)
	}
	none, _ := follow(t, m, "cc", false)
	if got := none.WaitComplete(t, 1); len(got) != 2 {
		t.Errorf("a cluster without events: got %+v, want Opened and Complete", got)
	}
}

func testHeadersOnly(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a.b", 1, 100), 0)
	mustPut(t, m, Event("ca", "shop", "shop-c", 2, -1), 0)
	cp := ledger.Checkpoint{
		Complete: endpoint.Version{Generation: 1, Resource: 9}, AsOf: 1, Count: 1, Sum: ledger.Sum{Hi: 3, Lo: 4},
		Written: time.Unix(1_800_000_000, 123).UTC(),
	}
	if r, err := m.Events.Certify(t.Context(), "ca", cp, 0); err != nil || !r.Saved {
		t.Fatalf("certify: got %+v, %v", r, err)
	}
	rec := ledger.Record{UID: "uid of ca", Generation: 2, Region: "naïve %41", Policy: "demote"}
	if r, err := m.Events.PutRecord(t.Context(), "ca", rec, 0); err != nil || !r.Saved {
		t.Fatalf("put record: got %+v, %v", r, err)
	}
	whole, _ := follow(t, m, "ca", false)
	heads, _ := follow(t, m, "ca", true)
	want, got := whole.WaitComplete(t, 1), heads.WaitComplete(t, 1)
	for i := range want {
		if want[i].Kind == ledger.Changed && want[i].Event == nil {
			t.Errorf("%s has no body", want[i].Slice)
		}
		want[i].Event = nil
	}
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Errorf("headers differ from the whole (-whole +headers):\n%s", diff)
	}
	if len(got) != 6 || got[3].Checkpoint != cp || got[4].Record != rec {
		t.Errorf("got %+v, want checkpoint %+v and record %+v", got, cp, rec)
	}
}

func testFollowRecords(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	for _, cluster := range [...]string{"ca", "cb"} {
		if r, err := m.Events.PutRecord(t.Context(), cluster, ledger.Record{UID: cluster, Generation: 1}, 0); err != nil || !r.Saved {
			t.Fatalf("put record: got %+v, %v", r, err)
		}
	}
	mustPut(t, m, Event("ca", "shop", "shop-b", 1, 1), 0)
	r := NewRecorder()
	r.Follow(t, m.Events.FollowRecords)
	got := r.WaitComplete(t, 1)
	if len(got) != 4 || got[1].Record.UID != "ca" || got[2].Record.UID != "cb" || got[2].Cluster != "cb" {
		t.Errorf("got %+v, want the records of ca and cb", got)
	}
}

func testStates(t *testing.T, m Made) {
	key := endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}
	st := endpoint.State{Key: key, Floor: endpoint.Version{Generation: 1, Resource: 2}}
	first, err := m.States.Put(t.Context(), st, 0)
	if err != nil || !first.Saved {
		t.Fatalf("put an empty state: got %+v, %v", first, err)
	}
	for i := range 10 {
		st.Slices = append(st.Slices, Event("ca", "shop", fmt.Sprintf("shop-%d", i), uint64(10+i), 500).Slice)
	}
	st.Gone = []endpoint.Ref{{Name: "shop-z", Version: endpoint.Version{Generation: 1, Resource: 8}, Translator: 1, Observed: time.Unix(1_800_000_000, 0).UTC()}}
	r := NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return m.States.Follow(ctx, "", handle)
	})
	r.WaitComplete(t, 1)
	if lost, err := m.States.Put(t.Context(), st, 0); err != nil || lost.Saved {
		t.Errorf("a second creation: got %+v, %v, want it refused", lost, err)
	}
	second, err := m.States.Put(t.Context(), st, first.Seq)
	if err != nil || !second.Saved {
		t.Fatalf("put a large state: got %+v, %v", second, err)
	}
	sessions := r.Wait(t, "the large state", func(s [][]ledger.Notice) bool { return s[0][len(s[0])-1].Seq == second.Seq })
	live := sessions[0][len(sessions[0])-1]
	got, err := m.States.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]ledger.Notice{"follow": live, "get": got} {
		if n.Kind != ledger.Changed || n.Key != key || n.State == nil {
			t.Fatalf("%s: got %+v, want a state of %s", name, n, key)
		}
		if diff := cmp.Diff(st, *n.State, equal); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
	if last, err := m.States.Last(t.Context()); err != nil || last != second.Seq {
		t.Errorf("last sequence: got %d, %v, want %d", last, err, second.Seq)
	}
	none, err := m.States.Get(t.Context(), endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "none"})
	if err != nil || none.Kind != ledger.Absent {
		t.Errorf("get of nothing: got %+v, %v, want Absent", none, err)
	}
}

func testConverges(t *testing.T, m Made) {
	const slices, writes = 50, 600
	last := map[string]uint64{}
	write := func(i int) {
		name := fmt.Sprintf("shop-%d", i*31%slices)
		n := 1 + i%4
		if i%7 == 0 {
			n = -1
		}
		last[name] = mustPut(t, m, Event("ca", "shop", name, uint64(i+1), n), last[name])
	}
	for i := range writes / 2 {
		write(i)
	}
	early, _ := follow(t, m, "ca", true)
	for i := writes / 2; i < writes; i++ {
		write(i)
	}
	late, _ := follow(t, m, "", false)
	for name, r := range map[string]*Recorder{"early": early, "late": late} {
		sessions := r.Wait(t, "all of the "+name+" reader", func(s [][]ledger.Notice) bool {
			return len(s) > 0 && has(s[len(s)-1], ledger.Complete) && ends(s[len(s)-1], last)
		})
		for _, s := range sessions {
			seq := uint64(0)
			for _, n := range s {
				if n.Kind == ledger.Changed && n.Seq <= seq {
					t.Errorf("%s: sequence %d after %d", name, n.Seq, seq)
				}
				seq = max(seq, n.Seq)
			}
		}
	}
}

// ends reports whether the view has the last message of each slice.
func ends(notices []ledger.Notice, last map[string]uint64) bool {
	v := view(notices)
	for name, seq := range last {
		if v["ca/prod/shop/"+name].Seq != seq {
			return false
		}
	}
	return len(v) == len(last)
}

func testStuckReader(t *testing.T, m Made) {
	stuck, free := make(chan struct{}), make(chan struct{})
	r := NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		first := true
		return m.Events.Follow(ctx, "", false, func(n ledger.Notice) error {
			if first {
				first = false
				close(stuck)
				<-free
			}
			return handle(n)
		})
	})
	<-stuck
	last := map[string]uint64{}
	for i := range 300 {
		name := fmt.Sprintf("shop-%d", i%10)
		last[name] = mustPut(t, m, Event("ca", "shop", name, uint64(i+1), 1), last[name])
	}
	close(free)
	r.Wait(t, "the newest of each slice", func(s [][]ledger.Notice) bool { return len(s) > 0 && ends(s[len(s)-1], last) })
}

func testResync(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	r, _ := follow(t, m, "", false)
	r.WaitComplete(t, 1)
	before := r.Sessions()
	r.Answer(fmt.Errorf("in doubt: %w", ledger.ErrResync))
	mustPut(t, m, Event("ca", "shop", "shop-b", 2, 1), 0)
	r.Wait(t, "a later session with both slices", func(s [][]ledger.Notice) bool {
		last := s[len(s)-1]
		return len(s) > before && has(last, ledger.Complete) && len(view(last)) == 2
	})
}

func testHandlerError(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	boom := errors.New("boom")
	for _, at := range [...]ledger.Kind{ledger.Opened, ledger.Changed, ledger.Complete} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := m.Events.Follow(ctx, "", false, func(n ledger.Notice) error {
			if n.Kind == at {
				return boom
			}
			return nil
		})
		cancel()
		if !errors.Is(err, boom) {
			t.Errorf("a handler that fails at kind %d: got %v, want its error", at, err)
		}
	}
}

func testRestart(t *testing.T, m Made) {
	a := mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	b := mustPut(t, m, Event("ca", "shop", "shop-b", 2, 1), 0)
	r, _ := follow(t, m, "ca", true)
	before, sessions := r.WaitComplete(t, 1)[0].Created, r.Sessions()
	m.Restart(t)
	got := r.WaitComplete(t, sessions+1)
	if v := view(got); len(v) != 2 || v["ca/prod/shop/shop-a"].Seq != a || !got[0].Created.Equal(before) {
		t.Errorf("got %+v, want both slices of the stream created %s", got, before)
	}
	b = eventuallyPut(t, m, Event("ca", "shop", "shop-b", 3, 2), b)
	r.Wait(t, "a write after the loss", func(s [][]ledger.Notice) bool {
		return view(s[len(s)-1])["ca/prod/shop/shop-b"].Seq == b
	})
}

func testWipe(t *testing.T, m Made) {
	mustPut(t, m, Event("ca", "shop", "shop-a", 1, 1), 0)
	mustPut(t, m, Event("ca", "shop", "shop-b", 1, 1), 0)
	r, _ := follow(t, m, "", false)
	before := r.WaitComplete(t, 1)[0].Created
	m.Wipe(t)
	sessions := r.Wait(t, "a session of another stream", func(s [][]ledger.Notice) bool {
		last := s[len(s)-1]
		return !last[0].Created.Equal(before) && has(last, ledger.Complete)
	})
	if last := sessions[len(sessions)-1]; len(view(last)) != 0 {
		t.Errorf("got %+v, want an empty view", last)
	}
	seq := eventuallyPut(t, m, Event("ca", "shop", "shop-b", 2, 1), 0)
	r.Wait(t, "a write into the new stream", func(s [][]ledger.Notice) bool {
		return view(s[len(s)-1])["ca/prod/shop/shop-b"].Seq == seq
	})
}

// eventuallyPut writes until the bus takes it, as a writer does that decides again after each error.
func eventuallyPut(t *testing.T, m Made, ev endpoint.Event, expect uint64) uint64 {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r, err := m.Events.Put(t.Context(), ev, expect)
		switch {
		case err == nil && r.Saved:
			return r.Seq
		case time.Now().After(deadline):
			t.Fatalf("put %s: got %+v, %v until the end", ev.Slice.Name, r, err)
		case err == nil:
			// An earlier try may have arrived after all.
			if n, err := m.Events.Get(t.Context(), ev.Slice.Key, ev.Slice.Name); err == nil && n.Version == ev.Slice.Version {
				return n.Seq
			}
		}
		<-time.After(10 * time.Millisecond)
	}
}

func testEnds(t *testing.T, m Made) {
	r, stop := follow(t, m, "", false)
	r.WaitComplete(t, 1)
	if err := stop(); err != nil {
		t.Errorf("got %v, want nil at the end of the context", err)
	}
}
