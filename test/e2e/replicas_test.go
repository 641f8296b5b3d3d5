package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// client is one of the programs that take their endpoints from slicecast, under load.
type client struct {
	name  string
	envoy *sandbox.Envoy // nil for the gRPC client
	stop  func() sandbox.Result
}

// startClients starts an Envoy with delta xDS, one that is four releases older with state of the world, and a gRPC client
// without proxy, all of them under load.
func startClients(t *testing.T, sb *sandbox.Sandbox, cp sandbox.ControlPlane, xds []netip.AddrPort) []*client {
	t.Helper()
	var all []*client
	for i, cfg := range []sandbox.EnvoyConfig{
		{NodeID: "envoy-delta", HTTP2ToPods: true},
		{NodeID: "envoy-sotw", SotW: true, Binary: ".tools/envoy-old"},
	} {
		cfg.XDS = xds
		cfg.Listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(10000+i))
		cfg.Admin = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(9901+i))
		envoy := startEnvoy(t, sb, cp, cfg)
		_, stop := load(t, envoy, i == 0)
		all = append(all, &client{name: cfg.NodeID, envoy: envoy, stop: stop})
	}
	return append(all, startGRPCClient(t, xds))
}

func startGRPCClient(t *testing.T, xds []netip.AddrPort) *client {
	t.Helper()
	c, err := sandbox.NewGRPCClient(sandbox.GRPCClientConfig{XDS: xds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Ready(within(t, 20*time.Second)); err != nil {
		t.Fatalf("the gRPC client never got an answer: %v", err)
	}
	driver, err := sandbox.NewGRPCDriver(c, sandbox.DriverConfig{Rate: 200})
	if err != nil {
		t.Fatal(err)
	}
	return &client{name: "grpc", stop: run(t, driver)}
}

// wantNoFailure ends the load and wants each request answered, and at least some.
func wantNoFailure(t *testing.T, clients []*client) {
	t.Helper()
	for _, c := range clients {
		result := c.stop()
		t.Logf("%s: %v", c.name, result)
		if result.Failed() > 0 || result.Total() < 500 {
			t.Errorf("%s: %v, want at least 500 and none failed", c.name, result)
		}
	}
}

// waitStreams waits until the replica serves at least n streams.
func waitStreams(t *testing.T, r *sandbox.Role, n int) {
	t.Helper()
	var streams float64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var err error
		if streams, err = r.Metric(within(t, 10*time.Second), "slicecast_xds_streams"); err == nil && streams >= float64(n) {
			return
		}
	}
	t.Fatalf("the replica serves %v streams, want %d", streams, n)
}

// One of two xDS replicas is killed under load, then the other: clients move, keep what they have, are told nothing that they
// know, and follow rollouts afterwards; no request fails.
func TestKillingAnXDSReplicaCostsNoRequest(t *testing.T) {
	sb := newSandbox(t)
	w := sandbox.Workload{Template: sandbox.Template{PreStop: sandbox.DrainWaitPreStop}}
	cp, err := sandbox.NewFiles(within(t, 2*time.Minute), sb, cluster, w)
	if err != nil {
		t.Fatal(err)
	}
	fleet := startFleet(t, sb, sandbox.FleetConfig{Clusters: []string{cluster + "=" + cp.Source()}})
	w.Template.DrainWaitArgs = []string{"--url", fleet.DrainURLs()}
	if err := cp.Apply(within(t, time.Minute), w); err != nil {
		t.Fatal(err)
	}
	clients := startClients(t, sb, cp, fleet.XDS())
	for i, r := range fleet.Replicas {
		t.Run(fmt.Sprintf("replica %d", i), func(t *testing.T) {
			other := fleet.Replicas[1-i]
			before := updates(t, clients)
			if err := r.Kill(); err != nil {
				t.Fatal(err)
			}
			waitStreams(t, other, len(clients))
			time.Sleep(500 * time.Millisecond) // What a replica sends wrongly it sends at once.
			if after := updates(t, clients); after["envoy-delta"] != before["envoy-delta"] {
				t.Errorf("the delta client whose content was current was sent it again: updates %v, then %v", before, after)
			}
			rollOver(t, cp, clients, 1)
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			if err := r.WaitReady(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			rollOver(t, cp, clients, 1)
		})
	}
	wantNoFailure(t, clients)
	wantDrained(t, cp)
}

// updates gives, by client, how many responses with its endpoints each Envoy has taken.
func updates(t *testing.T, clients []*client) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, c := range clients {
		if c.envoy == nil {
			continue
		}
		n, err := c.envoy.Updates(within(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		all[c.name] = n
	}
	return all
}

// rollOver restarts the workload n times and waits until the Envoys have what the slices say.
func rollOver(t *testing.T, cp sandbox.ControlPlane, clients []*client, n int) {
	t.Helper()
	for range n {
		if err := cp.RolloutRestart(within(t, 2*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		if c.envoy != nil {
			wantEqual(t, c.envoy, cp)
		}
	}
}

// wantDrained checks that each pod that was told to stop had been let go by the gate.
func wantDrained(t *testing.T, cp sandbox.ControlPlane) {
	t.Helper()
	for _, p := range cp.Pods() {
		if _, signalled := p.ToSignal(); signalled && p.PreStopLine != "" && !strings.Contains(p.PreStopLine, ": drained: ") {
			t.Errorf("pod %s was not let go: %s", p.Name, p.PreStopLine)
		}
	}
}
