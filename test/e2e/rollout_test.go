package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
	"github.com/slicecast/slicecast/test/sandbox/demo"
)

// The three acts of the demo, longer: without the gate requests are lost, or the run proves nothing; with it none is.
func TestARollingRestartCostsNoRequest(t *testing.T) {
	for _, controlPlane := range []string{"files", "kube"} {
		t.Run(controlPlane, func(t *testing.T) {
			err := demo.Run(within(t, 8*time.Minute), demo.Config{
				ControlPlane: controlPlane, Rollouts: 6, Requests: 20_000, Out: t.Output(),
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The gate with the other protocols of the same promise: state of the world from slicecast, HTTP/2 on both sides.
func TestARollingRestartCostsNoRequestOverHTTP2AndStateOfTheWorld(t *testing.T) {
	w := sandbox.Workload{Template: sandbox.Template{PreStop: sandbox.DrainWaitPreStop}}
	onBoth(t, w, func(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane) {
		startSlicecast(t, sb, cp)
		envoy := startEnvoy(t, sb, cp, sandbox.EnvoyConfig{SotW: true, HTTP2ToPods: true})
		_, stop := load(t, envoy, true)
		for range 3 {
			if err := cp.RolloutRestart(within(t, 2*time.Minute)); err != nil {
				t.Error(err)
			}
		}
		wantEqual(t, envoy, cp)
		result := stop()
		t.Logf("%v; deletion to SIGTERM %v", result, toSignal(cp))
		if result.Failed() > 0 || result.Total() < 1000 {
			t.Errorf("%v, want at least 1,000 and none failed", result)
		}
		for _, p := range cp.Pods() {
			if _, signalled := p.ToSignal(); signalled && p.PreStopLine == "" {
				t.Errorf("pod %s got SIGTERM without a word of drain-wait", p.Name)
			}
		}
	})
}

// toSignal gives the times from deletion to SIGTERM, shortest first.
func toSignal(cp sandbox.ControlPlane) []time.Duration {
	var all []time.Duration
	for _, p := range cp.Pods() {
		if d, ok := p.ToSignal(); ok {
			all = append(all, d.Round(time.Millisecond))
		}
	}
	slices.Sort(all)
	return all
}
