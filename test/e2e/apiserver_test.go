package e2e

import (
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// The API server is stopped under load: nothing is removed, nothing fails, and once it is back a rollout costs nothing.
func TestLosingTheAPIServerRemovesNothing(t *testing.T) {
	sb := newSandbox(t)
	w := sandbox.Workload{Template: sandbox.Template{PreStop: sandbox.DrainWaitPreStop}}
	cp, err := sandbox.NewKube(within(t, 2*time.Minute), sb, cluster, w)
	if err != nil {
		t.Fatal(err)
	}
	startSlicecast(t, sb, cp)
	envoy := startEnvoy(t, sb, cp, sandbox.EnvoyConfig{})
	_, stop := load(t, envoy, false)
	for _, verb := range []string{"stop", "start"} {
		if err := cp.Control(within(t, time.Minute), verb, "kube-apiserver"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		hosts, err := envoy.Hosts(within(t, 10*time.Second))
		if err != nil || len(hosts) != 3 {
			t.Errorf("after %s Envoy has %v, %v; want its three hosts", verb, hosts, err)
		}
	}
	wantEqual(t, envoy, cp)
	if result := stop(); result.Failed() > 0 || result.Total() == 0 {
		t.Errorf("without the API server: %v, want none failed", result)
	}
	// The controllers have lost the API server, too, and may write slices seconds late; a gate gives a pod that no slice
	// shows as leaving only --leaving-within. A rollout shows that they have caught up.
	if err := cp.RolloutRestart(within(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	clean(t, envoy, cp)
}
