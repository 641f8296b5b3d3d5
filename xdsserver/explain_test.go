package xdsserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestExplainNamesTheRuleOfEveryAddress(t *testing.T) {
	old := sliceOf("prod", "a", 1, ep("10.0.0.1 rs- p"), ep("10.0.0.2 rs- moved"), ep("10.0.0.3 -st t"), ep("10.0.0.4 --- n"),
		ep("10.0.0.5 --t x"), ep("10.0.0.6 r-t y"))
	newer := sliceOf("prod", "b", 2, ep("10.0.0.1 rs- p"), ep("10.0.0.9 rs- moved"), ep("10.0.0.6 --t stuck"))
	elsewhere := withPorts(sliceOf("prod", "d", 4, ep("10.0.0.7 --t z")), endpoint.Port{Name: "http", Number: 9090})
	old.Endpoints = append(old.Endpoints, ep("10.0.0.7 rs- z"))
	six := sliceOf("prod", "c", 3, ep("fd00::1 rs- p"))
	far := withLabels(sliceOf("west", "w", 1, ep("10.2.0.1 rs- w")), "", "any")
	svc := Service{States: []endpoint.State{
		stateOf(withLabels(old, "", "none"), withLabels(newer, "", "none"), withLabels(six, "", "none"), withLabels(elsewhere, "", "none")), stateOf(far)}}
	explained := func(view View) (got []string) {
		for _, v := range Explain(svc, view, mustName(t, cart)) {
			line := fmt.Sprintf("%s %s/%s %s %s: %s", v.Addr, v.Cluster, v.Slice, v.Reason, v.Rule, v.Why)
			if w := v.Winner; w != nil {
				line += fmt.Sprintf(" [%s %s/%s %s]", w.Pod, w.Cluster, w.Slice, w.Addr)
			}
			if v.Addition.IsValid() {
				line += " +" + v.Addition.String()
			}
			got = append(got, line)
		}
		return got
	}
	want := []string{
		"10.0.0.1:8080 prod/a duplicate D12: another endpoint speaks for this address and port [p prod/b 10.0.0.1]",
		"10.0.0.1:8080 prod/b ready R3: ready endpoints are used",
		"10.0.0.2:8080 prod/a moved D12: a newer slice has its pod at another address [moved prod/b 10.0.0.9]",
		"10.0.0.3:8080 prod/a terminating D11: it terminates while others are ready",
		"10.0.0.4:8080 prod/a not ready R3: neither ready nor terminating",
		"10.0.0.5:8080 prod/a terminating R3: it terminates and serves no more",
		"10.0.0.6:8080 prod/a ready R2: ready although it terminates or does not serve (publishNotReadyAddresses)",
		"10.0.0.6:8080 prod/b duplicate D12: another endpoint speaks for this address and port [y prod/a 10.0.0.6]",
		"10.0.0.7:8080 prod/a terminating R3: it terminates and serves no more; a newer slice of its pod gives the conditions [z prod/d 10.0.0.7]",
		"10.0.0.7:9090 prod/d terminating R3: it terminates and serves no more",
		"10.0.0.9:8080 prod/b ready R3: ready endpoints are used",
		"10.2.0.1:8080 west/w failover D19: the client does not fail over to its cluster",
		"[fd00::1]:8080 prod/c family D13: the client asked for the other address family",
	}
	if diff := gocmp.Diff(want, explained(View{Cluster: "prod", Family: IPv4})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := explained(View{Cluster: "prod"})
	if last, want := got[len(got)-1], "[fd00::1]:8080 prod/c ready R3: ready endpoints are used +10.0.0.1:8080"; last != want {
		t.Errorf("both families: got %q, want %q", last, want)
	}
	if r := Reason(99); r.String() != "unknown" {
		t.Errorf("an unknown reason is %q", r)
	}
}

func TestAVerdictCarriesWhatItsSliceSays(t *testing.T) {
	e := ep("10.0.0.1 rs-@z1 p")
	e.Node = "n1"
	sl := sliceOf("prod", "a", 9, e)
	sl.Observed = time.Unix(77, 0)
	svc := Service{Regions: map[string]string{"prod": "eu"}, States: []endpoint.State{stateOf(sl)}}
	got := Explain(svc, View{Cluster: "west"}, mustName(t, cart))
	want := []Verdict{{
		Cluster: "prod", Slice: "a", UID: "p", Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Reason: ReasonReady, Rule: "R3",
		Why: "ready endpoints are used", Region: "eu", Endpoint: e, Conditions: e.Conditions,
		Version: endpoint.Version{Generation: 1, Resource: 9}, Observed: time.Unix(77, 0),
	}}
	if diff := gocmp.Diff(want, got, gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEachReasonHasItsRule(t *testing.T) {
	for name, tt := range map[string]struct {
		svc  Service
		view View
		want string
	}{
		"fallback": {Service{States: []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 -st p")))}}, View{}, "fallback D10"},
		"draining": {Service{States: []endpoint.State{stateOf(withLabels(sliceOf("prod", "a", 1, ep("10.0.0.1 --t p")), "drain", ""))}}, View{}, "draining D11"},
		"promised": {Service{
			States: []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 -st p")))}, Promised: map[Pod]struct{}{{"prod", "p"}: {}},
		}, View{}, "promised D20"},
		"hint": {Service{States: []endpoint.State{stateOf(sliceOf("prod", "a", 1, hinted(ep("10.0.0.1 rs-"), "z1", ""), hinted(ep("10.0.0.2 rs-"), "z2", "")))}},
			View{Zone: "z2"}, "hint R8"},
	} {
		v := Explain(tt.svc, tt.view, mustName(t, cart))[0]
		if got := v.Reason.String() + " " + v.Rule; got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
