package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func sum(n uint64) ledger.Sum { return ledger.Sum{Lo: n} }

func wants(t *testing.T, l *ledger.Ledger, asOf, count uint64, s ledger.Sum, want ledger.Verdict) {
	t.Helper()
	if got := l.Judge(ledger.Checkpoint{AsOf: asOf, Count: count, Sum: s}); got != want {
		t.Errorf("checkpoint of %d slices, sum %s at %d: got verdict %d, want %d", count, s, asOf, got, want)
	}
}

func TestNothingIsJudgedBeforeTheSnapshotIsDone(t *testing.T) {
	l := ledger.New()
	l.Put("a", 3, 1, sum(5))
	wants(t, l, 3, 1, sum(5), ledger.Early)
	l.Complete(3)
	wants(t, l, 3, 1, sum(5), ledger.Agrees)
	if !l.IsComplete() || l.Seq() != 3 {
		t.Errorf("complete %v at %d, want true at 3", l.IsComplete(), l.Seq())
	}
}

func TestAnEmptyViewAgreesWithAnEmptyCheckpoint(t *testing.T) {
	l := ledger.New()
	l.Complete(0)
	wants(t, l, 0, 0, sum(0), ledger.Agrees)
	wants(t, l, 0, 1, sum(5), ledger.Disagree)
	wants(t, l, 1, 0, sum(0), ledger.Early)
}

func TestACheckpointIsJudgedAtItsPosition(t *testing.T) {
	l := ledger.New()
	l.Put("a", 10, 1, sum(1))
	l.Put("b", 20, 1, sum(2))
	l.Complete(25)
	l.Put("a", 30, 1, sum(4))
	l.Put("b", 40, 0, sum(0)) // Gone.
	l.Advance(50)
	for _, tt := range []struct {
		asOf, count uint64
		sum         ledger.Sum
		want        ledger.Verdict
	}{
		{19, 1, sum(1), ledger.Passed}, // Before the last message of the snapshot the sums are not known.
		{20, 2, sum(3), ledger.Agrees},
		{25, 2, sum(3), ledger.Agrees},
		{29, 2, sum(3), ledger.Agrees},
		{29, 2, sum(6), ledger.Disagree},
		{29, 3, sum(3), ledger.Disagree}, // The count counts.
		{30, 2, sum(6), ledger.Agrees},
		{39, 2, sum(6), ledger.Agrees},
		{40, 1, sum(4), ledger.Agrees},
		{50, 1, sum(4), ledger.Agrees},
		{51, 1, sum(4), ledger.Early},
	} {
		wants(t, l, tt.asOf, tt.count, tt.sum, tt.want)
	}
	if count, s := l.Total(); count != 1 || s != sum(4) {
		t.Errorf("total %d %s, want 1 and 4", count, s)
	}
}

func TestWhatIsNotNewerChangesNothing(t *testing.T) {
	l := ledger.New()
	l.Complete(0)
	l.Put("a", 10, 1, sum(1))
	l.Put("a", 10, 1, sum(9))
	l.Put("a", 9, 1, sum(9))
	if count, s := l.Total(); count != 1 || s != sum(1) {
		t.Errorf("total %d %s, want 1 and 1", count, s)
	}
}

func TestASecondEndOfTheSnapshotIsOnlyAPosition(t *testing.T) {
	l := ledger.New()
	l.Complete(5)
	l.Put("a", 10, 1, sum(1))
	l.Complete(20)
	wants(t, l, 7, 0, sum(0), ledger.Agrees)
	wants(t, l, 20, 1, sum(1), ledger.Agrees)
}

func TestOldPositionsAreForgottenAndNewOnesAreNot(t *testing.T) {
	l := ledger.New()
	l.Complete(0)
	const n = 5000
	for seq := uint64(1); seq <= n; seq++ {
		l.Put("a", seq, 1, sum(seq))
	}
	wants(t, l, 1, 1, sum(1), ledger.Passed)
	for seq := uint64(n - 300); seq <= n; seq++ {
		wants(t, l, seq, 1, sum(seq), ledger.Agrees)
	}
}

func TestALedgerAgreesWithPlainSumsAtEveryPosition(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, now := ledger.New(), map[string]ledger.Sum{}
		counts, sums := map[uint64]uint64{}, map[uint64]ledger.Sum{}
		start := uint64(20 + r.IntN(20))
		for seq := uint64(1); seq < 200; seq++ {
			if seq == start {
				l.Complete(seq - 1)
			}
			if subject := fmt.Sprint(r.IntN(6)); r.IntN(4) == 0 {
				delete(now, subject)
				l.Put(subject, seq, 0, sum(0))
			} else {
				now[subject] = ledger.Sum{Hi: r.Uint64(), Lo: r.Uint64()}
				l.Put(subject, seq, 1, now[subject])
			}
			counts[seq] = uint64(len(now))
			for _, s := range now {
				sums[seq] = sums[seq].Add(s)
			}
		}
		for seq := start; seq < 200; seq++ {
			wants(t, l, seq, counts[seq], sums[seq], ledger.Agrees)
			wants(t, l, seq, counts[seq]+1, sums[seq], ledger.Disagree)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestSumsCarryAndGoBack(t *testing.T) {
	a, b := ledger.Sum{Hi: 1, Lo: ^uint64(0)}, ledger.Sum{Hi: ^uint64(0), Lo: 2}
	if got, want := a.Add(b), (ledger.Sum{Hi: 1, Lo: 1}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := a.Add(b).Sub(b); got != a {
		t.Errorf("got %s, want %s", got, a)
	}
	if got := (ledger.Sum{}).Sub(ledger.Sum{Lo: 1}).Add(ledger.Sum{Lo: 1}); got != (ledger.Sum{}) {
		t.Errorf("got %s, want 0", got)
	}
	if got := a.String(); got != "0000000000000001ffffffffffffffff" {
		t.Errorf("got %s", got)
	}
}

func TestBytesOfASumAreReadAsTheyWere(t *testing.T) {
	s := ledger.Sum{Hi: 0x0102030405060708, Lo: 0x090a0b0c0d0e0f10}
	if got, err := ledger.SumOf(s.Bytes()); err != nil || got != s {
		t.Errorf("got %s, %v, want %s", got, err, s)
	}
	if _, err := ledger.SumOf(make([]byte, 15)); err == nil || !strings.Contains(err.Error(), "15 bytes") {
		t.Errorf("got %v, want an error about 15 bytes", err)
	}
}

func TestADigestDependsOnAllThatItIsMadeOf(t *testing.T) {
	key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
	other := key
	other.Service = "api"
	v := endpoint.Version{Generation: 1, Resource: 2}
	all := map[ledger.Sum]string{}
	for name, d := range map[string]ledger.Sum{
		"base":       ledger.Digest(key, "a", v, endpoint.Hash{1}),
		"key":        ledger.Digest(other, "a", v, endpoint.Hash{1}),
		"slice":      ledger.Digest(key, "b", v, endpoint.Hash{1}),
		"generation": ledger.Digest(key, "a", endpoint.Version{Generation: 2, Resource: 2}, endpoint.Hash{1}),
		"resource":   ledger.Digest(key, "a", endpoint.Version{Generation: 1, Resource: 3}, endpoint.Hash{1}),
		"hash":       ledger.Digest(key, "a", v, endpoint.Hash{2}),
	} {
		if twin, same := all[d]; same {
			t.Errorf("%s and %s have one digest", name, twin)
		}
		all[d] = name
	}
	if again := ledger.Digest(key, "a", v, endpoint.Hash{1}); all[again] != "base" {
		t.Error("the same input has another digest")
	}
}

func TestTheSumOfAStateIsThatOfItsSlices(t *testing.T) {
	for seed := range uint64(50) {
		r := endpointtest.NewRandom(seed)
		st := r.State(r.Key())
		count, got := ledger.OfState(st)
		var want ledger.Sum
		for _, s := range st.Slices {
			want = want.Add(ledger.Digest(st.Key, s.Name, s.Version, s.Hash()))
		}
		if got != want || count != uint64(len(st.Slices)) {
			t.Errorf("seed %d: got %d, %s, want %d, %s", seed, count, got, len(st.Slices), want)
		}
	}
}
