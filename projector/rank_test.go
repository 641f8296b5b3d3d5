package projector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// replicas gives some ids.
func replicas(r *rand.Rand) []string {
	var ids []string
	for range 1 + r.IntN(9) {
		ids = append(ids, fmt.Sprintf("projector-%d", r.Uint32()))
	}
	return ids
}

// order lists ids by their rank for a cluster, and fails unless each of them has one of its own.
func order(t *testing.T, cluster string, ids []string) []string {
	t.Helper()
	out := make([]string, len(ids))
	for _, id := range ids {
		rank := Rank(cluster, id, ids)
		if rank < 0 || rank >= len(out) || out[rank] != "" {
			t.Fatalf("%s of %v: rank %d is out of range or taken", id, ids, rank)
		}
		out[rank] = id
	}
	return out
}

func TestReplicasThatKnowTheSameSetAgreeOnTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 1000 {
		cluster, ids := fmt.Sprint("c", i), replicas(r)
		want := order(t, cluster, ids)
		mixed := append(slices.Clone(ids), ids[r.IntN(len(ids))])
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		for rank, id := range want {
			if got := Rank(cluster, id, mixed); got != rank {
				t.Fatalf("%s of %v: got rank %d, of %v: %d", id, mixed, got, ids, rank)
			}
		}
	}
}

func TestAReplicaThatComesOrGoesChangesNothingBetweenTwoOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for i := range 1000 {
		cluster, ids := fmt.Sprint("c", i), replicas(r)
		all := order(t, cluster, ids)
		gone := ids[r.IntN(len(ids))]
		rest := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == gone })
		want := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == gone })
		if got := order(t, cluster, rest); !slices.Equal(got, want) {
			t.Fatalf("%v without %s: got %v, want %v", all, gone, got, want)
		}
	}
}

func TestClustersSpreadEvenly(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e"}
	first := map[string]int{}
	for i := range 5000 {
		first[order(t, fmt.Sprint("cluster-", i), ids)[0]]++
	}
	for _, id := range ids {
		if n := first[id]; n < 900 || n > 1100 {
			t.Errorf("%s is first of %d clusters of 5000, want about 1000", id, n)
		}
	}
}

func TestWhoIsNotKnownToTheOthersComesAfterThem(t *testing.T) {
	for _, live := range [][]string{{}, {"a"}, {"a", "b", "a"}, {"a", "b", "c"}} {
		distinct := len(slices.Compact(slices.Sorted(slices.Values(live))))
		for i := range 50 {
			if got := Rank(fmt.Sprint("c", i), "me", live); got != distinct {
				t.Errorf("rank beside %v: got %d, want %d", live, got, distinct)
			}
		}
	}
}

// Replicas of two releases stand side by side during an upgrade, so the order is a promise.
func TestTheOrderIsTheSameInEveryRelease(t *testing.T) {
	ids := []string{"projector-1", "projector-2", "projector-3"}
	for cluster, want := range map[string][]string{
		"east": {"projector-3", "projector-1", "projector-2"},
		"west": {"projector-1", "projector-3", "projector-2"},
	} {
		if got := order(t, cluster, ids); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", cluster, got, want)
		}
	}
}

func TestAReplicaThatDoesNotKnowTheOthersIsNeitherFirstNorSilent(t *testing.T) {
	seen := map[int]int{}
	for i := range 400 {
		r := NewRanks(fmt.Sprint("replica-", i%20))
		cluster := fmt.Sprint("c", i/20)
		rank, known := r.Of(cluster)
		if known || rank < 2 || rank > 5 {
			t.Fatalf("got rank %d, known %v, want one from 2 to 5 that is not known", rank, known)
		}
		seen[rank]++
		r.Set([]string{"other", fmt.Sprint("replica-", i%20)})
		if rank, known = r.Of(cluster); !known || rank > 1 {
			t.Fatalf("got rank %d, known %v of two", rank, known)
		}
	}
	for rank := 2; rank <= 5; rank++ {
		if seen[rank] < 50 {
			t.Errorf("%d of 400 have rank %d: they would write at once", seen[rank], rank)
		}
	}
}

func TestAProjectorWithoutReplicasIsFirst(t *testing.T) {
	var r *Ranks
	if rank, known := r.Of("east"); rank != 0 || !known {
		t.Errorf("got rank %d, known %v", rank, known)
	}
}

func TestRanksKeepTheirOwnListOfReplicas(t *testing.T) {
	live := []string{"me"}
	r := NewRanks("me")
	r.Set(live)
	live[0] = "changed"
	if rank, _ := r.Of("east"); rank != 0 {
		t.Errorf("got rank %d, want 0", rank)
	}
}
