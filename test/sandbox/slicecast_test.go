package sandbox

import (
	"strings"
	"testing"
	"time"
)

// TestAnEnvoyFollowsARestartedSlicecast is about the sandbox: what slicecast promises is tested in test/e2e.
func TestAnEnvoyFollowsARestartedSlicecast(t *testing.T) {
	sb := newSandbox(t)
	ctx := within(t, 2*time.Minute)
	w := quick()
	w.Template.PreStop, w.Template.DrainWaitArgs = DrainWaitPreStop, []string{"--timeout", "2s"}
	f, err := NewFiles(ctx, sb, "demo", w)
	if err != nil {
		t.Fatal(err)
	}
	slicecast, err := sb.StartSlicecast(ctx, SlicecastConfig{Clusters: []string{"demo=" + f.Source()}})
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := sb.StartEnvoy(ctx, EnvoyConfig{SotW: true, HTTP2ToPods: true})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(what string) {
		t.Helper()
		if err := envoy.WaitEndpoints(ctx, f); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	follow("at the start")
	if err := envoy.CheckNoRetries(ctx); err != nil {
		t.Error(err)
	}
	if err := f.RolloutRestart(ctx); err != nil {
		t.Fatal(err)
	}
	follow("after a rollout")
	for _, p := range f.Pods()[:3] {
		if !strings.Contains(p.PreStopLine, ": drained") {
			t.Errorf("drain-wait of %s said %q", p.Name, p.PreStopLine)
		}
	}
	if _, err := slicecast.Restart(ctx); err == nil {
		t.Error("a running slicecast can be restarted")
	}
	if err := slicecast.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.RolloutRestart(ctx); err != nil {
		t.Fatal(err)
	}
	if slicecast, err = slicecast.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	follow("after the restart")
	if p, err := slicecast.Propagation(ctx); err != nil || p["total"].Bounds == nil {
		t.Errorf("propagation %v, %v", p, err)
	}
}
