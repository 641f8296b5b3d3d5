package sandbox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// The control planes obey one interface; what follows holds for both.

func TestFilesRollsPodsAsADeploymentDoes(t *testing.T) {
	cp, err := NewFiles(within(t, time.Minute), newSandbox(t), "demo", quick())
	if err != nil {
		t.Fatal(err)
	}
	testControlPlane(t, cp)
}

func TestKubeRollsPodsAsADeploymentDoes(t *testing.T) {
	cp, err := NewKube(within(t, 2*time.Minute), newSandbox(t), "demo", quick())
	if err != nil {
		t.Fatal(err)
	}
	testControlPlane(t, cp)
	out, err := cp.Kubectl(t.Context(), "get", "deployments", "--all-namespaces", "--no-headers")
	if err != nil || len(out) == 0 {
		t.Errorf("kubectl: %s, %v", out, err)
	}
}

func quick() Workload { return Workload{Template: Template{ReadyAfter: 30 * time.Millisecond}} }

func testControlPlane(t *testing.T, cp ControlPlane) {
	t.Run("a new workload has three usable endpoints", func(t *testing.T) { wantUsable(t, cp, 3) })
	t.Run("a rollout keeps three ready and four at most and replaces all", func(t *testing.T) { testRollout(t, cp) })
	t.Run("a version that is never ready takes no pod away and can be rolled back", func(t *testing.T) { testNeverReady(t, cp) })
	t.Run("recreate stops all pods before the first new one", func(t *testing.T) { testRecreate(t, cp) })
	t.Run("without replicas no endpoint is left", func(t *testing.T) {
		apply(t, cp, Workload{Replicas: -1, Template: quick().Template})
		wantUsable(t, cp, 0)
	})
}

func apply(t *testing.T, cp ControlPlane, w Workload) {
	t.Helper()
	if err := cp.Apply(within(t, 30*time.Second), w); err != nil {
		t.Fatal(err)
	}
}

func wantUsable(t *testing.T, cp ControlPlane, n int) {
	t.Helper()
	all, err := cp.Slices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := UsableEndpoints(all, PortName); len(got) != n {
		t.Errorf("usable endpoints %v, want %d", got, n)
	}
}

func testRollout(t *testing.T, cp ControlPlane) {
	before := len(cp.Pods())
	watching, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	terminating := false
	watch.Go(func() {
		for watching.Err() == nil {
			all, err := cp.Slices(watching)
			if err != nil {
				return
			}
			live := 0
			for _, e := range all[0].Endpoints {
				if *e.Conditions.Terminating {
					terminating = true
				} else {
					live++
				}
			}
			if ready := len(UsableEndpoints(all, PortName)); ready < 3 || live > 4 {
				t.Errorf("%d ready, %d live; want at least 3 and at most 4", ready, live)
			}
		}
	})
	apply(t, cp, Workload{Template: Template{ReadyAfter: 30 * time.Millisecond, PreStop: SleepPreStop, Sleep: 3 * time.Second}})
	if err := cp.RolloutRestart(within(t, 30*time.Second)); err != nil {
		t.Error(err)
	}
	stop()
	watch.Wait()
	if !terminating {
		t.Error("no endpoint was ever seen terminating")
	}
	after := cp.Pods()
	if n := len(after) - before; n != 6 {
		t.Errorf("%d pods were started, want 6", n)
	}
	// A leaving pod does not hold the rollout up.
	for _, p := range after[before : before+3] {
		if last := after[before+5]; !last.Ready.Before(p.Gone) {
			t.Errorf("the last new pod was ready at %v, after %s was gone at %v", last.Ready, p.Name, p.Gone)
		}
	}
	for _, p := range after[before : before+3] {
		if d, ok := p.ToSignal(); !ok || p.Gone.IsZero() || d < 3*time.Second || p.Killed || p.Crashed {
			t.Errorf("pod %+v is not gone properly", p)
		}
	}
}

func testNeverReady(t *testing.T, cp ControlPlane) {
	apply(t, cp, quick())
	before := len(cp.Pods())
	bad := quick()
	bad.Template.ReadyAfter = -1
	if err := cp.Apply(within(t, 30*time.Second), bad); !errors.Is(err, ErrNeverReady) {
		t.Fatalf("got %v, want ErrNeverReady", err)
	}
	err := waitFor(within(t, 30*time.Second), nil, "the bad pod", func(context.Context) error {
		if len(cp.Pods()) == before {
			return errors.New("no pod was started")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantUsable(t, cp, 3)
	apply(t, cp, quick())
	if n := len(cp.Pods()) - before; n != 1 {
		t.Errorf("%d pods were started, want only the bad one: the others were there and stay", n)
	}
	wantUsable(t, cp, 3)
}

func testRecreate(t *testing.T, cp ControlPlane) {
	w := quick()
	w.Recreate = true
	apply(t, cp, w)
	before := len(cp.Pods())
	if err := cp.RolloutRestart(within(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	pods := cp.Pods()
	if n := len(pods) - before; n != 3 {
		t.Fatalf("%d pods were started, want 3", n)
	}
	var lastGone, firstReady time.Time
	for _, p := range pods[:before] {
		if p.Gone.After(lastGone) {
			lastGone = p.Gone
		}
	}
	for _, p := range pods[before:] {
		if firstReady.IsZero() || p.Ready.Before(firstReady) {
			firstReady = p.Ready
		}
	}
	if !lastGone.Before(firstReady) {
		t.Errorf("the last old pod was gone at %v, the first new one ready at %v", lastGone, firstReady)
	}
}
