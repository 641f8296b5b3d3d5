package cases

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/xdsserver"
)

// assignmentsOf gives every assignment, for every View, that comes up in the cases and in some random histories.
func assignmentsOf(t *testing.T) (all [][]byte) {
	t.Helper()
	add := func(w *world, p *pipeline, views []xdsserver.View) {
		states := p.states()
		for _, name := range w.names() {
			svc := serviceOf(states, w.regions, name)
			for _, view := range views {
				all = append(all, xdsserver.Assign(svc, view, name).Encode())
			}
		}
	}
	for _, c := range readCases(t) {
		w, p := newWorld(), newPipeline()
		for _, st := range c.stages {
			for _, s := range st.steps {
				p.tell(w.apply(s)...)
			}
			add(w, p, allViews)
		}
	}
	for seed := range uint64(20) {
		w, p := newWorld(), newPipeline()
		for _, s := range anySteps(endpointtest.NewRandom(seed), 20) {
			p.tell(w.apply(s)...)
			add(w, p, allViews[3:6])
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return slices.CompactFunc(all, bytes.Equal)
}

func TestARealGRPCClientAcceptsEveryAssignment(t *testing.T) {
	client := newGRPCClient(t)
	all := assignmentsOf(t)
	t.Logf("%d assignments", len(all))
	for _, encoded := range all {
		cla := &endpointv3.ClusterLoadAssignment{}
		if err := proto.Unmarshal(encoded, cla); err != nil {
			t.Fatal(err)
		}
		if err := accepted(cla); err != nil {
			t.Errorf("%s, %s: %v", cla.ClusterName, textOf(cla), err)
		}
		if err := client.judge(cla); err != nil {
			t.Fatalf("%s, %s: %v", cla.ClusterName, textOf(cla), err)
		}
	}
}

// What a real client rejects, the rules that the other tests check by reject too; and they reject what it drops without
// a word.
func TestTheRulesAreThoseOfARealGRPCClient(t *testing.T) {
	client := newGRPCClient(t)
	weight := func(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }
	address := func(host int) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: fmt.Sprint("10.0.0.", host), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
		}}}
	}
	ep := func(host int, more ...int) *endpointv3.LbEndpoint {
		e := &endpointv3.Endpoint{Address: address(host)}
		for _, m := range more {
			e.AdditionalAddresses = append(e.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: address(m)})
		}
		return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: e}, HealthStatus: corev3.HealthStatus_HEALTHY}
	}
	weighted := func(e *endpointv3.LbEndpoint, n uint32) *endpointv3.LbEndpoint {
		e.LoadBalancingWeight = weight(n)
		return e
	}
	zone := func(name string, priority uint32, eps ...*endpointv3.LbEndpoint) *endpointv3.LocalityLbEndpoints {
		return &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: name}, Priority: priority, LoadBalancingWeight: weight(1), LbEndpoints: eps}
	}
	heavy := func(l *endpointv3.LocalityLbEndpoints, n uint32) *endpointv3.LocalityLbEndpoints {
		l.LoadBalancingWeight = weight(n)
		return l
	}
	nowhere := zone("", 0, ep(1))
	nowhere.Locality = nil
	for _, tt := range []struct {
		name           string
		zones          []*endpointv3.LocalityLbEndpoints
		client, silent bool // the client rejects it; it drops a part of it without a word
	}{
		{"all is well", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1), ep(2, 3)), zone("b", 0, ep(4)), zone("a", 1, ep(5))}, false, false},
		{"empty", nil, false, false},
		{"an address twice in a zone", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1), ep(1))}, true, false},
		{"an address twice in two zones", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1)), zone("b", 0, ep(1))}, true, false},
		{"an address twice at two priorities", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1)), zone("a", 1, ep(1))}, true, false},
		{"an additional address twice", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1, 2), ep(2))}, true, false},
		{"a zone twice", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1)), zone("a", 0, ep(2))}, true, false},
		{"a gap in the priorities", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1)), zone("a", 2, ep(2))}, true, false},
		{"no first priority", []*endpointv3.LocalityLbEndpoints{zone("a", 1, ep(1))}, true, false},
		{"a zone without id", []*endpointv3.LocalityLbEndpoints{nowhere}, true, false},
		{"an endpoint of no weight", []*endpointv3.LocalityLbEndpoints{zone("a", 0, weighted(ep(1), 0))}, true, false},
		{"endpoints of too much weight", []*endpointv3.LocalityLbEndpoints{zone("a", 0, weighted(ep(1), 1<<31), weighted(ep(2), 1<<31))}, true, false},
		{"zones of too much weight", []*endpointv3.LocalityLbEndpoints{heavy(zone("a", 0, ep(1)), 1<<31), heavy(zone("b", 0, ep(2)), 1<<31)}, true, false},
		{"a zone of no weight", []*endpointv3.LocalityLbEndpoints{zone("a", 0, ep(1)), heavy(zone("b", 0, ep(2)), 0)}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cla := &endpointv3.ClusterLoadAssignment{ClusterName: "cart.shop:http", Endpoints: tt.zones}
			if err := client.judge(cla); (err != nil) != tt.client {
				t.Errorf("the client: %v, want rejected %v", err, tt.client)
			}
			if err := accepted(cla); (err != nil) != (tt.client || tt.silent) {
				t.Errorf("the rules: %v, want rejected %v", err, tt.client || tt.silent)
			}
		})
	}
}
