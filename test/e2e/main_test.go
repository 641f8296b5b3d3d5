package e2e

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

const cluster = "demo"

// newSandbox is closed at the end of the test; what it logs becomes the test's output.
func newSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.New(sandbox.Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(sb.Logs(30))
		}
		if err := sb.Close(); err != nil {
			t.Errorf("close the sandbox: %v", err)
		}
	})
	return sb
}

// within bounds what a test waits for.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// onBoth runs a scenario on both control planes.
func onBoth(t *testing.T, w sandbox.Workload, scenario func(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane)) {
	t.Run("files", func(t *testing.T) {
		sb := newSandbox(t)
		cp, err := sandbox.NewFiles(within(t, 2*time.Minute), sb, cluster, w)
		if err != nil {
			t.Fatal(err)
		}
		scenario(t, sb, cp)
	})
	t.Run("kube", func(t *testing.T) {
		sb := newSandbox(t)
		cp, err := sandbox.NewKube(within(t, 2*time.Minute), sb, cluster, w)
		if err != nil {
			t.Fatal(err)
		}
		scenario(t, sb, cp)
	})
}

// startSlicecast serves the control plane.
func startSlicecast(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane) *sandbox.Slicecast {
	t.Helper()
	sc, err := sb.StartSlicecast(within(t, time.Minute), sandbox.SlicecastConfig{Clusters: []string{cluster + "=" + cp.Source()}})
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// startEnvoy starts an Envoy, makes sure that it cannot hide failures, and waits until it has what the API has.
func startEnvoy(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane, cfg sandbox.EnvoyConfig) *sandbox.Envoy {
	t.Helper()
	envoy, err := sb.StartEnvoy(within(t, time.Minute), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := envoy.CheckNoRetries(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, envoy, cp)
	return envoy
}

// wantEqual waits until Envoy's endpoints are those of the API server.
func wantEqual(t *testing.T, envoy *sandbox.Envoy, cp sandbox.ControlPlane) {
	t.Helper()
	if err := envoy.WaitEndpoints(within(t, 20*time.Second), cp); err != nil {
		t.Fatalf("Envoy and the API server differ: %v", err)
	}
}

// load sends requests until stop is called, which gives the count.
func load(t *testing.T, envoy *sandbox.Envoy, http2 bool) (driver *sandbox.Driver, stop func() sandbox.Result) {
	t.Helper()
	driver, err := sandbox.NewDriver(sandbox.DriverConfig{Target: envoy.Listen(), HTTP2: http2})
	if err != nil {
		t.Fatal(err)
	}
	return driver, run(t, driver)
}

// run lets a driver send until stop is called, which gives the count.
func run(t *testing.T, driver *sandbox.Driver) (stop func() sandbox.Result) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan sandbox.Result, 1)
	go func() { done <- driver.Run(ctx) }()
	return func() sandbox.Result {
		cancel()
		return <-done
	}
}

// startFleet starts a process per role and two xDS replicas.
func startFleet(t *testing.T, sb *sandbox.Sandbox, cfg sandbox.FleetConfig) *sandbox.Fleet {
	t.Helper()
	fleet, err := sb.StartFleet(within(t, time.Minute), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}
