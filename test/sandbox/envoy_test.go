package sandbox

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnEnvoyServesTheImitationsEndpointsAndARolloutUnderItFails also shows that the whole of pods, Envoy and driver sees failures.
func TestAnEnvoyServesTheImitationsEndpointsAndARolloutUnderItFails(t *testing.T) {
	sb := newSandbox(t)
	ctx := within(t, time.Minute)
	f, err := NewFiles(ctx, sb, "demo", Workload{Template: Template{ReadyAfter: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	file, stop, err := sb.StartImitation(ctx, f, Workload{}.EnvoyService(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	envoy, err := sb.StartEnvoy(ctx, EnvoyConfig{EDSFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := envoy.CheckNoRetries(ctx); err != nil {
		t.Error(err)
	}
	if err := envoy.WaitEndpoints(ctx, f); err != nil {
		t.Error(err)
	}
	driver, err := NewDriver(DriverConfig{Target: envoy.Listen(), Rate: 300})
	if err != nil {
		t.Fatal(err)
	}
	sending, end := context.WithCancel(ctx)
	results := make(chan Result, 1)
	go func() { results <- driver.Run(sending) }()
	if err := f.RolloutRestart(ctx); err != nil {
		t.Error(err)
	}
	end()
	r := <-results
	checkTotal(t, r, 300)
	if r.Failed() == 0 || len(r.ByPod) < 3 {
		t.Errorf("%v, by pod %v; want failures, and all pods", r, r.ByPod)
	}
	if failures := strings.Join(r.Failures(), ", "); !strings.Contains(failures, "status 503 U") {
		t.Errorf("failures %s lack Envoy's response flags", failures)
	}
	if err := envoy.WaitEndpoints(ctx, f); err != nil {
		t.Error(err)
	}
}

func TestAConfigurationThatCanHideFailuresIsRefused(t *testing.T) {
	clean, err := bootstrap(EnvoyConfig{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkNoRetries(clean); err != nil {
		t.Fatalf("our own bootstrap: %v", err)
	}
	if err := checkNoRetries([]byte(`{"configs": []}`)); err == nil {
		t.Error("a dump without route and cluster passes")
	}
	for _, added := range []object{
		{"retry_policy": object{"retry_on": "5xx"}}, {"hedge_policy": object{}}, {"outlier_detection": object{}},
		{"health_checks": []any{}}, {"header": object{"key": "x-envoy-retry-on", "value": "5xx"}},
	} {
		var config object
		if err := json.Unmarshal(clean, &config); err != nil {
			t.Fatal(err)
		}
		static := config["static_resources"].(object)
		static["clusters"] = append(static["clusters"].([]any), object{"deep": []any{added}})
		dirty, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkNoRetries(dirty); err == nil {
			t.Errorf("%v passes", added)
		}
	}
}

func TestDrainingHostsAreNoAddressesForNewRequests(t *testing.T) {
	hosts, err := parseHosts([]byte(`{"cluster_statuses": [{"name": "workload", "host_statuses": [
		{"address": {"socket_address": {"address": "10.244.0.9", "port_value": 8080}}, "health_status": {"eds_health_status": "DRAINING"}},
		{"address": {"socket_address": {"address": "10.244.0.3", "port_value": 8080}}, "health_status": {"eds_health_status": "HEALTHY"}, "priority": 1}
	]}, {"name": "xds_cluster", "host_statuses": [{"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	want := []Host{{at("10.244.0.3:8080"), "HEALTHY", 1}, {at("10.244.0.9:8080"), "DRAINING", 0}}
	if !slices.Equal(hosts, want) {
		t.Errorf("got %v, want %v", hosts, want)
	}
	if got := Addresses(hosts); !slices.Equal(got, []netip.AddrPort{at("10.244.0.3:8080")}) {
		t.Errorf("addresses %v, want the healthy one", got)
	}
}
