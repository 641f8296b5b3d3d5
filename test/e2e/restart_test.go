package e2e

import (
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// slicecast is killed in the middle of a rollout: Envoy goes on with what it has, and after the restart it is brought to
// what the API server has by then.
func TestKillingSlicecastDuringARolloutLeavesEnvoyServing(t *testing.T) {
	w := sandbox.Workload{Template: sandbox.Template{
		PreStop: sandbox.DrainWaitPreStop, DrainWaitArgs: []string{"--timeout", "4s"}, // It cannot be told "drained" meanwhile.
	}}
	onBoth(t, w, func(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane) {
		sc := startSlicecast(t, sb, cp)
		envoy := startEnvoy(t, sb, cp, sandbox.EnvoyConfig{})
		driver, stop := load(t, envoy, false)
		rolled := make(chan error, 1)
		go func() { rolled <- cp.RolloutRestart(within(t, 2*time.Minute)) }()
		waitForDeletion(t, cp)
		if err := sc.Kill(); err != nil {
			t.Fatal(err)
		}
		<-sc.Done()
		before := driver.Snapshot().Outcomes[sandbox.OK]
		time.Sleep(time.Second)
		if served := driver.Snapshot().Outcomes[sandbox.OK] - before; served < 100 {
			t.Errorf("Envoy served %d requests in the second after slicecast was killed", served)
		}
		if _, err := sc.Restart(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := <-rolled; err != nil {
			t.Error(err)
		}
		wantEqual(t, envoy, cp)
		t.Logf("%v", stop())
		clean(t, envoy, cp)
	})
}

// waitForDeletion waits until a rollout has begun to take pods away.
func waitForDeletion(t *testing.T, cp sandbox.ControlPlane) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, p := range cp.Pods() {
			if !p.Deleted.IsZero() {
				return
			}
		}
	}
	t.Fatal("the rollout deleted no pod in 30 s")
}

// clean shows that after the fault all is as before it: a rollout costs nothing.
func clean(t *testing.T, envoy *sandbox.Envoy, cp sandbox.ControlPlane) {
	t.Helper()
	_, stop := load(t, envoy, false)
	if err := cp.RolloutRestart(within(t, 2*time.Minute)); err != nil {
		t.Error(err)
	}
	if result := stop(); result.Failed() > 0 || result.Total() == 0 {
		t.Errorf("a rollout after the restart: %v, want none failed", result)
	}
	wantEqual(t, envoy, cp)
}
