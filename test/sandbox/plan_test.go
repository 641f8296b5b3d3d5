package sandbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOneStepOfARolloutObeysKubernetesRules(t *testing.T) {
	old := func(n int) podState { return podState{name: fmt.Sprintf("o%d", n), number: n, ready: true} }
	current := func(n int, ready bool) podState {
		return podState{name: fmt.Sprintf("c%d", n), number: n, current: true, ready: ready}
	}
	leaving := podState{name: "t", number: 99, terminating: true, ready: true}
	unready := podState{name: "u", number: 98}
	surge := Workload{Replicas: 3, MaxSurge: 1}
	for _, tc := range []struct {
		name   string
		w      Workload
		pods   []podState
		create int
		remove []string
	}{
		{"nothing runs: all are created", surge, nil, 3, nil},
		{"a new version starts: only the surge", surge, []podState{old(1), old(2), old(3)}, 1, nil},
		{"the new pod is not ready: nothing", surge, []podState{old(1), old(2), old(3), current(4, false)}, 0, nil},
		{"it is ready: the newest old one goes", surge, []podState{old(1), old(2), old(3), current(4, true)}, 0, []string{"o3"}},
		{"a leaving pod makes room for the next", surge, []podState{old(1), old(2), leaving, current(4, true)}, 1, nil},
		{"an old pod that is not ready goes first", surge, []podState{old(1), old(2), unready, current(4, true)}, 0, []string{"u"}},
		{"unavailable instead of surge", Workload{Replicas: 3, MaxUnavailable: 1}, []podState{old(1), old(2), old(3)}, 0, []string{"o3"}},
		{"both", Workload{Replicas: 4, MaxSurge: 1, MaxUnavailable: 1}, []podState{old(1), old(2), old(3), old(4)}, 1, []string{"o4"}},
		{"recreate stops all first", Workload{Replicas: 2, Recreate: true}, []podState{old(1), old(2)}, 0, []string{"o1", "o2"}},
		{"recreate waits for their end", Workload{Replicas: 2, Recreate: true}, []podState{leaving}, 0, nil},
		{"recreate then starts", Workload{Replicas: 2, Recreate: true}, nil, 2, nil},
		{"fewer replicas: not ready ones first", Workload{Replicas: 1, MaxSurge: 1}, []podState{current(1, true), current(2, false), current(3, true)}, 0, []string{"c2", "c3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			create, remove := plan(tc.w, tc.pods)
			if create != tc.create || !slices.Equal(remove, tc.remove) {
				t.Errorf("create %d, remove %v; want %d, %v", create, remove, tc.create, tc.remove)
			}
		})
	}
}

// TestARandomRolloutStaysWithinItsBoundsAndEnds runs plan with pods that become ready and end in any order.
func TestARandomRolloutStaysWithinItsBoundsAndEnds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := Workload{Replicas: 1 + rng.IntN(8), MaxSurge: rng.IntN(4), MaxUnavailable: rng.IntN(3)}
		if w.MaxSurge == 0 && w.MaxUnavailable == 0 {
			w.MaxSurge = 1
		}
		var pods []podState
		for i := range w.Replicas {
			pods = append(pods, podState{name: fmt.Sprint(i), number: i, ready: true})
		}
		next, done := w.Replicas, false
		for step := 0; !done; step++ {
			if step > 2000 {
				t.Fatalf("seed %d: the rollout of %+v does not end: %+v", seed, w, pods)
			}
			create, remove := plan(w, pods)
			for i := range pods {
				pods[i].terminating = pods[i].terminating || slices.Contains(remove, pods[i].name)
			}
			for range create {
				pods = append(pods, podState{name: fmt.Sprint(next), number: next, current: true})
				next++
			}
			live := slices.DeleteFunc(slices.Clone(pods), func(p podState) bool { return p.terminating })
			if len(live) > w.Replicas+w.MaxSurge || countReady(live) < w.Replicas-w.MaxUnavailable {
				t.Fatalf("seed %d: %+v has %d pods, %d ready", seed, w, len(live), countReady(live))
			}
			i := rng.IntN(len(pods))
			if pods[i].terminating {
				pods = slices.Delete(pods, i, i+1)
			} else {
				pods[i].ready = true
			}
			done = len(pods) == w.Replicas && !slices.ContainsFunc(pods, func(p podState) bool { return !p.current || !p.ready || p.terminating })
		}
	}
}
