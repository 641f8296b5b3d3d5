package projector

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// four are the replicas of these tests.
var four = []string{"a", "b", "c", "d"}

// replica is a projector among others.
type replica struct {
	ranks *Ranks
	reg   *prometheus.Registry
	stop  func()
}

// join runs a replica that has the rank among four for cluster prod, or that does not know the others (-1).
func join(t *testing.T, f *fake, rank int, cfg func(*Config)) replica {
	t.Helper()
	r := replica{ranks: NewRanks("nobody knows me"), reg: prometheus.NewRegistry()}
	for _, self := range four {
		if Rank("prod", self, four) == rank {
			r.ranks = NewRanks(self)
			r.ranks.Set(four)
		}
	}
	c := Config{Events: fakeEvents{f}, States: f, Certifier: f, Ranks: r.ranks, Registerer: r.reg}
	if cfg != nil {
		cfg(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

// counts compares the writes and hedges of a replica by outcome, "writes saved" for example.
func (r replica) counts(t *testing.T, want map[string]float64) {
	t.Helper()
	for what, n := range want {
		var name, outcome string
		if _, err := fmt.Sscan(what, &name, &outcome); err != nil {
			t.Fatal(err)
		}
		if got := total(t, r.reg, "slicecast_projector_"+name+"_total", outcome); got != n {
			t.Errorf("%s: got %v, want %v", what, got, n)
		}
	}
}

// cartA is a change that says its number.
func cartA(v int) string { return fmt.Sprintf("cart-a rv=%d -", v) }

func TestTheSecondKeepsSilentWhileTheFirstKeepsUp(t *testing.T) {
	// One Key that changes without a pause as long as the hedge; the first is done before the next change, or never.
	for _, latency := range []time.Duration{3 * time.Millisecond, 8 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.latency = latency
			f.complete(t, "prod", "1")
			first, secnd := join(t, f, 0, nil), join(t, f, 1, nil)
			for v := 10; v < 210; v++ {
				f.tell(t, set(cartA(v)))
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(time.Second)
			f.wants(t, cartA(209))
			written := total(t, first.reg, "slicecast_projector_writes_total", "saved")
			if written < 100 {
				t.Errorf("latency %s: the first has written %v States for 200 changes", latency, written)
			}
			first.counts(t, map[string]float64{"writes conflict": 0, "hedges spared": 0, "hedges saved": 0})
			secnd.counts(t, map[string]float64{"writes saved": 0, "writes conflict": 0, "hedges saved": 0})
			if n := total(t, secnd.reg, "slicecast_projector_hedges_total", "spared"); n < written/2 || n > written {
				t.Errorf("latency %s: %v hedges were spared by %v States", latency, n, written)
			}
		})
	}
}

func TestTheDeathOfTheFirstCostsOneHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.latency = 3 * time.Millisecond
		f.complete(t, "prod", "1")
		first, secnd := join(t, f, 0, nil), join(t, f, 1, nil)
		third := join(t, f, 2, nil)
		for v := 10; v < 210; v++ {
			f.tell(t, set(cartA(v)))
			if v == 100 {
				first.stop()
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		f.wants(t, cartA(209))
		third.counts(t, map[string]float64{"writes saved": 0, "writes conflict": 0})
		if n := total(t, secnd.reg, "slicecast_projector_hedges_total", "saved"); n < 10 {
			t.Errorf("the second has written %v States, want some", n)
		}
		var before, most time.Duration
		begin := f.states.log[0].Stored
		for _, n := range f.states.log {
			if n.Kind == ledger.Changed {
				most, before = max(most, n.Stored.Sub(begin)-before), n.Stored.Sub(begin)
			}
		}
		if limit := 25*time.Millisecond + 5*time.Millisecond + f.latency; most > limit {
			t.Errorf("largest gap %s, want at most %s", most, limit)
		}
	})
}

// hanging is a bus that takes the writes of one replica and does nothing: its process dies between fold and write.
type hanging struct{ *fake }

func (hanging) Put(ctx context.Context, _ endpoint.State, _ uint64) (ledger.Result, error) {
	<-ctx.Done()
	return ledger.Result{}, ctx.Err()
}

func TestAWriteThatTheFirstDoesNotFinishIsWrittenByTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		join(t, f, 0, func(c *Config) { c.States = hanging{f} })
		secnd, third := join(t, f, 1, nil), join(t, f, 2, nil)
		f.tell(t, set(a10))
		time.Sleep(24 * time.Millisecond)
		f.wants(t, "nothing")
		time.Sleep(time.Millisecond)
		f.wants(t, a10)
		time.Sleep(time.Second)
		secnd.counts(t, map[string]float64{"hedges saved": 1, "hedges spared": 0, "writes saved": 1})
		third.counts(t, map[string]float64{"hedges saved": 0, "hedges spared": 1, "writes saved": 0})
	})
}

func TestReplicasThatDoNotKnowEachOtherWriteAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		blind := join(t, f, -1, nil)
		f.tell(t, set(a10))
		time.Sleep(49 * time.Millisecond)
		f.wants(t, "nothing")
		time.Sleep(76 * time.Millisecond)
		f.wants(t, a10)
		if n := total(t, blind.reg, "slicecast_projector_rank", "prod"); n != -1 {
			t.Errorf("rank %v, want -1", n)
		}
	})
}

func TestWhoBecomesTheFirstWritesAtOnceWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		last := join(t, f, 3, nil)
		f.tell(t, set(a10))
		time.Sleep(10 * time.Millisecond)
		f.wants(t, "nothing")
		if n := total(t, last.reg, "slicecast_projector_rank", "prod"); n != 3 {
			t.Errorf("rank %v, want 3", n)
		}
		last.ranks.Set([]string{last.ranks.self})
		f.wants(t, a10)
		if n := total(t, last.reg, "slicecast_projector_rank", "prod"); n != 0 {
			t.Errorf("rank %v, want 0", n)
		}
	})
}

func TestReplicasWriteOneCheckpointAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		all := []replica{join(t, f, 0, nil), join(t, f, 1, nil), join(t, f, 2, nil)}
		for v := 10; v < 60; v++ {
			f.tell(t, set(cartA(v)))
			f.complete(t, "prod", fmt.Sprint(v))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		all[0].stop()
		f.tell(t, set(cartA(60)))
		f.complete(t, "prod", "60")
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := 2; i < len(f.certified); i++ { // A replica that starts does not know how old the last one is.
			if d := f.certified[i].Sub(f.certified[i-1]); d < time.Second {
				t.Errorf("two checkpoints within %s", d)
			}
		}
		if n := len(f.certified); n < 5 {
			t.Errorf("got %d checkpoints in 5 s of change", n)
		}
		for i, r := range all {
			if n := total(t, r.reg, "slicecast_projector_checkpoint_writes_total", "conflict"); n != 0 {
				t.Errorf("replica %d lost %v checkpoints to another", i, n)
			}
		}
		if cp := f.states.get(ledger.Notice{Kind: ledger.Certified, Cluster: "prod"}).Checkpoint; cp.Complete != versionOf(t, "60") {
			t.Errorf("last checkpoint is of %s, want 60", cp.Complete)
		}
	})
}

// wanting is a write of a State over another, in the notation of traces.
func wanting(t *testing.T, before, state string) write {
	t.Helper()
	st := func(line string) endpoint.State {
		if line == "" {
			return endpoint.State{Key: cart}
		}
		return Fold(cart, endpoint.Version{}, *step(t, set(line)).Event)
	}
	return write{before: st(before), state: st(state)}
}

func TestAWriteOfAHigherRankWaitsForWhatItHasWantedSince(t *testing.T) {
	const ms = time.Millisecond
	type question struct {
		at            time.Duration
		before, state string
		want          verdict
		spared        bool
	}
	for name, questions := range map[string][]question{
		"nobody writes": {
			{0, "", cartA(10), waits, false},
			{24 * ms, "", cartA(10), waited, false},
			{25 * ms, "", cartA(10), goes, false},
			{26 * ms, cartA(10), cartA(11), waits, false},
		},
		"what is newer does not begin another wait": {
			{0, "", cartA(10), waits, false},
			{20 * ms, "", cartA(11), waited, false},
			{25 * ms, "", cartA(12), goes, false},
		},
		"what was waited for has appeared": {
			{0, "", cartA(10), waits, false},
			{20 * ms, cartA(10), cartA(11), waits, true},
			{25 * ms, cartA(10), cartA(11), waited, false},
			{45 * ms, cartA(10), cartA(11), goes, false},
		},
		"what was waited for has appeared just in time": {
			{0, "", cartA(10), waits, false},
			{25 * ms, cartA(10), cartA(11), waits, true},
		},
		"something newer has appeared": {
			{0, "", cartA(10), waits, false},
			{20 * ms, cartA(11), cartA(12), waits, true},
		},
		"something older has appeared": {
			{0, "", cartA(10), waits, false},
			{20 * ms, cartA(9), cartA(10), waited, false},
			{25 * ms, cartA(9), cartA(10), goes, false},
		},
	} {
		h, begin := holds{}, time.Now()
		for _, q := range questions {
			got, spared := h.ask(begin.Add(q.at), cart, wanting(t, q.before, q.state), 1, 25*ms)
			if got != q.want || spared != q.spared {
				t.Errorf("%s, at %s: got %d, %v, want %d, %v", name, q.at, got, spared, q.want, q.spared)
			}
		}
	}
}

func TestTheRankSaysHowManyHedges(t *testing.T) {
	begin := time.Now()
	for rank := range 4 {
		h := holds{}
		v, _ := h.ask(begin, cart, wanting(t, "", a10), rank, time.Second)
		if want := begin.Add(time.Duration(rank) * time.Second); rank > 0 && (v != waits || h[cart].until != want) {
			t.Errorf("rank %d: got %d until %s, want %s", rank, v, h[cart].until, want)
		}
		if rank == 0 && (v != goes || len(h) > 0) {
			t.Errorf("the first has to wait")
		}
	}
}

func TestANextTryWaitsForNobody(t *testing.T) {
	begin := time.Now()
	h := holds{cart: {until: begin.Add(time.Second)}}
	if v, _ := h.ask(begin, cart, wanting(t, "", a10), 1, time.Millisecond); v != waited {
		t.Errorf("got %d before its time", v)
	}
	if v, _ := h.ask(begin.Add(time.Second), cart, wanting(t, "", a10), 1, time.Millisecond); v != goes {
		t.Errorf("got %d at its time", v)
	}
}

func TestReplicasThatWriteAtOnceAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.complete(t, "prod", "1")
		for range 3 {
			start(t, f, nil)
		}
		for v := 10; v < 200; v++ {
			f.tell(t, fmt.Sprintf("set prod/shop/cart cart-%c rv=%d -", 'a'+v%3, v))
		}
		f.complete(t, "prod", "199")
		time.Sleep(5 * time.Second)
		f.wants(t, "cart-a rv=198 -; cart-b rv=199 -; cart-c rv=197 -")
		for i := 1; i < len(f.states.log); i++ {
			if a, b := f.states.log[i-1].State, f.states.log[i].State; a != nil && b != nil && a.SameSlices(*b) {
				t.Errorf("message %d says the same as the one before", i)
			}
		}
	})
}
