package xdsserver

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// text gives an Assignment as claText does.
func text(a Assignment) string {
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(a.Encode(), cla); err != nil {
		return err.Error()
	}
	if fault := grpcFault(cla); fault != "" {
		return fault
	}
	return claText(cla)
}

func TestAssignDecidesByTheRules(t *testing.T) {
	grpc := []endpoint.Port{{Name: "grpc", Number: 9090}, {Name: "http", Number: 8080}}
	prod, edge, west := View{Cluster: "prod"}, View{Cluster: "edge"}, View{Cluster: "west"}
	regions := map[string]string{"prod": "eu", "edge": "eu", "west": "us"}
	three := func(failover string) []endpoint.State {
		return []endpoint.State{
			stateOf(withLabels(sliceOf("edge", "e", 1, ep("10.1.0.1 rs- e")), "", failover)),
			stateOf(withLabels(sliceOf("prod", "p", 1, ep("10.0.0.1 rs- p")), "", failover)),
			stateOf(withLabels(sliceOf("west", "w", 1, ep("10.2.0.1 rs- w")), "", failover)),
		}
	}
	tests := []struct {
		name   string
		states []endpoint.State
		view   View
		res    string
		want   string
	}{
		{"a newer pod on the address of one that is stuck", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 --t old"), ep("10.0.0.1 rs- new")))}, prod, cart, "p0 / w1 10.0.0.1:8080"},
		{"the same pod in two slices: the newer one says it leaves", []endpoint.State{stateOf(
			sliceOf("prod", "a", 10, ep("10.0.0.1 rs- p")), sliceOf("prod", "b", 20, ep("10.0.0.1 --t p")))}, prod, cart, ""},
		{"the same pod in two slices with two ports: the newer one speaks for both", []endpoint.State{stateOf(
			sliceOf("prod", "a", 10, ep("10.0.0.1 rs- p")),
			withPorts(sliceOf("prod", "b", 20, ep("10.0.0.1 --t p")), endpoint.Port{Name: "http", Number: 9090}))}, prod, cart, ""},
		{"one address with two ports of one name", []endpoint.State{stateOf(
			sliceOf("prod", "a", 10, ep("10.0.0.1 rs-")),
			withPorts(sliceOf("prod", "b", 20, ep("10.0.0.1 rs-")), endpoint.Port{Name: "http", Number: 9090}))}, prod, cart, "p0 / w2 10.0.0.1:8080 10.0.0.1:9090"},
		{"a pod that has moved to another address", []endpoint.State{stateOf(
			sliceOf("prod", "a", 10, ep("10.0.0.1 rs- p")), sliceOf("prod", "b", 20, ep("10.0.0.2 rs- p")))}, prod, cart, "p0 / w1 10.0.0.2:8080"},
		{"slices that overlap", []endpoint.State{stateOf(
			sliceOf("prod", "a", 1, ep("10.0.0.1 rs-"), ep("10.0.0.2 rs-")), sliceOf("prod", "b", 2, ep("10.0.0.2 rs-"), ep("10.0.0.3 rs-")))},
			prod, cart, "p0 / w3 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080"},
		{"a slice without the port", []endpoint.State{stateOf(
			withPorts(sliceOf("prod", "a", 1, ep("10.0.0.9 rs-"))), sliceOf("prod", "b", 2, ep("10.0.0.1 rs-")))}, prod, cart, "p0 / w1 10.0.0.1:8080"},
		{"terminating ones serve while nothing is ready", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 -st"), ep("10.0.0.2 --t"), ep("10.0.0.3 -s-")))}, prod, cart, "p0 / w1 10.0.0.1:8080"},
		{"ready wins over all else", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 r-t"), ep("10.0.0.2 -st")))}, prod, cart, "p0 / w1 10.0.0.1:8080"},
		{"drain sends what terminates", []endpoint.State{stateOf(withLabels(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-"), ep("10.0.0.2 -st"), ep("10.0.0.3 --t"), ep("10.0.0.4 ---")), "drain", ""))},
			prod, cart, "p0 / w1 10.0.0.1:8080 10.0.0.2:8080(draining) 10.0.0.3:8080(draining)"},
		{"drain and fallback", []endpoint.State{stateOf(withLabels(sliceOf("prod", "a", 1, ep("10.0.0.2 -st"), ep("10.0.0.3 --t")), "drain", ""))},
			prod, cart, "p0 / w1 10.0.0.2:8080 10.0.0.3:8080(draining)"},
		{"the newest slice speaks for the labels", []endpoint.State{stateOf(
			withLabels(sliceOf("prod", "a", 9, ep("10.0.0.1 rs-"), ep("10.0.0.2 -st")), "drain", ""), sliceOf("prod", "b", 8, ep("10.0.0.3 rs-")))},
			prod, cart, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080(draining) 10.0.0.3:8080"},
		{"own cluster, its region, the rest", three(""), prod, cart, "p0 eu/ w1 10.0.0.1:8080; p1 eu/ w1 10.1.0.1:8080; p2 us/ w1 10.2.0.1:8080"},
		{"nobody else in the region", three(""), west, cart, "p0 us/ w1 10.2.0.1:8080; p1 eu/ w2 10.0.0.1:8080 10.1.0.1:8080"},
		{"failover inside the region", three("region"), prod, cart, "p0 eu/ w1 10.0.0.1:8080; p1 eu/ w1 10.1.0.1:8080"},
		{"the client's own region counts", three("region"), View{Cluster: "prod", Region: "us"}, cart, "p0 eu/ w1 10.0.0.1:8080; p1 us/ w1 10.2.0.1:8080"},
		{"no failover", three("none"), prod, cart, "p0 eu/ w1 10.0.0.1:8080"},
		{"no failover, and no service at home", three("none"), View{Cluster: "home"}, cart, ""},
		{"a value that means nothing is the default", three("sometimes"), prod, cart, "p0 eu/ w1 10.0.0.1:8080; p1 eu/ w1 10.1.0.1:8080; p2 us/ w1 10.2.0.1:8080"},
		{"a client of no cluster", three("none"), View{}, cart, "p0 eu/ w2 10.0.0.1:8080 10.1.0.1:8080; p0 us/ w1 10.2.0.1:8080"},
		{"pinned to a cluster", three("none"), prod, "cart.shop.edge:http", "p0 eu/ w1 10.1.0.1:8080"},
		{"pinned to a cluster that is not there", three(""), prod, "cart.shop.moon:http", ""},
		{"priorities are dense", []endpoint.State{
			stateOf(sliceOf("edge", "e", 1, ep("10.1.0.1 rs-"))), stateOf(sliceOf("prod", "p", 1, ep("10.0.0.1 -st"))), stateOf(sliceOf("west", "w", 1, ep("10.2.0.1 rs-")))},
			prod, cart, "p0 eu/ w1 10.1.0.1:8080; p1 us/ w1 10.2.0.1:8080"},
		{"fallback, own cluster first", []endpoint.State{
			stateOf(sliceOf("edge", "e", 1, ep("10.1.0.1 -st"))), stateOf(sliceOf("prod", "p", 1, ep("10.0.0.1 -st")))},
			prod, cart, "p0 eu/ w1 10.0.0.1:8080; p1 eu/ w1 10.1.0.1:8080"},
		{"fallback while the others are out of reach", []endpoint.State{
			stateOf(withLabels(sliceOf("edge", "e", 1, ep("10.1.0.1 rs-")), "", "none")), stateOf(withLabels(sliceOf("prod", "p", 1, ep("10.0.0.1 -st")), "", "none"))},
			prod, cart, "p0 eu/ w1 10.0.0.1:8080"},
		{"one address in two clusters", []endpoint.State{
			stateOf(sliceOf("edge", "e", 1, ep("10.0.0.1 -st"))), stateOf(sliceOf("prod", "p", 1, ep("10.0.0.1 rs-")))}, edge, cart, "p0 eu/ w1 10.0.0.1:8080"},
		{"by number", []endpoint.State{stateOf(withPorts(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-")), grpc...))}, prod, "cart.shop:9090", "p0 eu/ w1 10.0.0.1:9090"},
		{"a name wins over a number", []endpoint.State{stateOf(withPorts(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-")), endpoint.Port{Name: "8080", Number: 1}, endpoint.Port{Name: "http", Number: 8080}))},
			prod, "cart.shop:8080", "p0 eu/ w1 10.0.0.1:1"},
		{"a number with a zero before it is a name", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-")))}, prod, "cart.shop:08080", ""},
		{"the unnamed port", []endpoint.State{stateOf(withPorts(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-")), endpoint.Port{Number: 80}))}, prod, "cart.shop", "p0 eu/ w1 10.0.0.1:80"},
		{"another service", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-")))}, prod, "cart.ops:http", ""},
		{"nothing at all", nil, prod, cart, ""},
		{"zones of one service", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-@z2"), ep("10.0.0.2 rs-@z1"), ep("10.0.0.3 rs-@z1")))},
			prod, cart, "p0 eu/z1 w2 10.0.0.2:8080 10.0.0.3:8080; p0 eu/z2 w1 10.0.0.1:8080"},
		{"a zone that is no UTF-8", []endpoint.State{stateOf(sliceOf("prod", "a", 1, ep("10.0.0.1 rs-@\xff"), ep("10.0.0.2 rs-@\xfe")))}, prod, cart, "p0 eu/? w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"families of one pod are one endpoint", []endpoint.State{stateOf(
			sliceOf("prod", "a", 1, ep("10.0.0.1 rs- p"), ep("10.0.0.2 rs- q")), sliceOf("prod", "b", 2, ep("fd00::1 rs- p"), ep("fd00::3 rs- r")))},
			prod, cart, "p0 eu/ w3 10.0.0.1:8080+[fd00::1]:8080 10.0.0.2:8080 [fd00::3]:8080"},
		{"IPv6 only", []endpoint.State{stateOf(
			sliceOf("prod", "a", 1, ep("10.0.0.1 rs- p")), sliceOf("prod", "b", 2, ep("fd00::1 -st p")))}, View{Cluster: "prod", Family: IPv6}, cart, "p0 eu/ w1 [fd00::1]:8080"},
		{"IPv4 only", []endpoint.State{stateOf(
			sliceOf("prod", "a", 1, ep("10.0.0.1 rs- p")), sliceOf("prod", "b", 2, ep("fd00::1 rs- p")))}, View{Cluster: "prod", Family: IPv4}, cart, "p0 eu/ w1 10.0.0.1:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := text(Assign(Service{States: tt.states, Regions: regions}, tt.view, mustName(t, tt.res)))
			want := tt.want
			if !strings.Contains(want, "eu/") && !strings.Contains(want, "us/") {
				want = strings.ReplaceAll(want, "/ ", "eu/ ")
			}
			if got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestHintsAreFollowedOnlyWhenAllHaveThemAndOneIsMine(t *testing.T) {
	a := hinted(ep("10.0.0.1 rs-"), "z1", "")
	both := hinted(ep("10.0.0.2 rs-"), "z1,z2", "n2")
	none := ep("10.0.0.3 rs-")
	node := hinted(ep("10.0.0.4 rs-"), "z2", "n4")
	unready := ep("10.0.0.5 -st")
	tests := []struct {
		name string
		view View
		eps  []endpoint.Endpoint
		want string
	}{
		{"zone", View{Cluster: "prod", Zone: "z2"}, []endpoint.Endpoint{a, both}, "p0 / w1 10.0.0.2:8080"},
		{"zone of everybody", View{Cluster: "prod", Zone: "z1"}, []endpoint.Endpoint{a, both}, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"no zone is mine", View{Cluster: "prod", Zone: "z9"}, []endpoint.Endpoint{a, both}, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"one has none", View{Cluster: "prod", Zone: "z2"}, []endpoint.Endpoint{a, both, none}, "p0 / w3 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080"},
		{"one that is not ready has none", View{Cluster: "prod", Zone: "z2"}, []endpoint.Endpoint{a, both, unready}, "p0 / w1 10.0.0.2:8080"},
		{"node before zone", View{Cluster: "prod", Zone: "z2", Node: "n4"}, []endpoint.Endpoint{both, node}, "p0 / w1 10.0.0.4:8080"},
		{"no node is mine", View{Cluster: "prod", Zone: "z1", Node: "n9"}, []endpoint.Endpoint{both, node}, "p0 / w1 10.0.0.2:8080"},
		{"not all have nodes", View{Cluster: "prod", Zone: "z1", Node: "n2"}, []endpoint.Endpoint{a, both}, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"the client says no zone", View{Cluster: "prod"}, []endpoint.Endpoint{a, both}, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"another cluster's zones mean nothing", View{Cluster: "edge", Zone: "z2"}, []endpoint.Endpoint{a, both}, "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := Service{States: []endpoint.State{stateOf(sliceOf("prod", "a", 1, tt.eps...))}}
			if got := text(Assign(svc, tt.view, mustName(t, cart))); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
	t.Run("a pinned name of another cluster", func(t *testing.T) {
		svc := Service{States: []endpoint.State{stateOf(sliceOf("prod", "a", 1, a, both))}}
		got := text(Assign(svc, View{Cluster: "edge", Zone: "z2"}, mustName(t, "cart.shop.prod:http")))
		if want := "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAPromisedPodIsNeverChosen(t *testing.T) {
	promised := map[Pod]struct{}{{"prod", "p"}: {}}
	tests := []struct {
		name, policy string
		eps          []endpoint.Endpoint
		want         string
	}{
		{"by fallback", "", []endpoint.Endpoint{ep("10.0.0.1 -st p")}, ""},
		{"while ready", "", []endpoint.Endpoint{ep("10.0.0.1 rs- p"), ep("10.0.0.2 -st q")}, "p0 / w1 10.0.0.2:8080"},
		{"draining is nothing new", "drain", []endpoint.Endpoint{ep("10.0.0.1 -st p"), ep("10.0.0.2 rs- q")}, "p0 / w1 10.0.0.1:8080(draining) 10.0.0.2:8080"},
		{"its address is another's", "", []endpoint.Endpoint{ep("10.0.0.1 -st p"), ep("10.0.0.1 -st q")}, "p0 / w1 10.0.0.1:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := Service{States: []endpoint.State{stateOf(withLabels(sliceOf("prod", "a", 1, tt.eps...), tt.policy, ""))}, Promised: promised}
			if got := text(Assign(svc, View{}, mustName(t, cart))); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestRandomServicesObeyTheStrictestClientAndNoOrder(t *testing.T) {
	for seed := range uint64(600) {
		r := endpointtest.NewRandom(seed)
		svc := randomService(r)
		view := View{
			Cluster: endpointtest.OneOf(r, "", "prod", "edge"), Region: r.Text(), Zone: r.Text(), Node: r.Text(),
			Family: endpointtest.OneOf(r, AnyFamily, AnyFamily, IPv4, IPv6),
		}
		for _, name := range namesOf(svc) {
			a := Assign(svc, view, name)
			value := a.Encode()
			if _, want := sizesOf(&a, nil); len(value) != want {
				t.Fatalf("seed %d: %d bytes, sized %d", seed, len(value), want)
			}
			cla := &endpointv3.ClusterLoadAssignment{}
			if err := proto.Unmarshal(value, cla); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if fault := grpcFault(cla); fault != "" {
				t.Fatalf("seed %d: %s: %s", seed, name, fault)
			}
			if other := Assign(shuffled(r, svc), view, name).Encode(); !bytes.Equal(value, other) {
				t.Fatalf("seed %d: %s: the order of slices and clusters shows", seed, name)
			}
			checkVerdicts(t, seed, a, Explain(svc, view, name))
		}
	}
}

// checkVerdicts checks that Explain and Assign agree: on what is kept, where, and how; and that a verdict that leaves an
// address to another names one that is there.
func checkVerdicts(t *testing.T, seed uint64, a Assignment, verdicts []Verdict) {
	t.Helper()
	var want, got []string
	line := func(at netip.AddrPort, priority uint32, draining bool, region, zone string, of netip.AddrPort) string {
		return fmt.Sprint(at, " p", priority, draining, region, "/", zone, of)
	}
	spoken := map[string]Reason{}
	for _, v := range verdicts {
		spoken[fmt.Sprintf("%s %q", v.Addr, []string{v.Cluster, v.Slice, v.UID, v.Endpoint.TargetName})] = v.Reason
	}
	for _, v := range verdicts {
		if v.Rule == "" || v.Why == "" {
			t.Fatalf("seed %d: no rule in %+v", seed, v)
		}
		if v.Reason.Kept() {
			got = append(got, line(v.Addr, v.Priority, !v.Reason.Chosen(), v.Region, strings.ToValidUTF8(v.Endpoint.Zone, "?"), v.Addition))
		}
		w := v.Winner
		if (v.Reason == ReasonDuplicate || v.Reason == ReasonMoved) && w == nil {
			t.Fatalf("seed %d: nobody speaks instead in %+v", seed, v)
		}
		if w == nil || v.Reason != ReasonDuplicate {
			continue
		}
		r, there := spoken[fmt.Sprintf("%s %q", v.Addr, []string{w.Cluster, w.Slice, w.UID, w.Pod})]
		if !there || w.Addr != v.Addr.Addr() {
			t.Fatalf("seed %d: %+v speaks instead in %+v, and is not there", seed, *w, v)
		}
		if r == ReasonDuplicate && (w.UID == "" || w.UID != v.UID) { // The newest of a pod may itself give way.
			t.Fatalf("seed %d: a duplicate speaks for a duplicate: %+v", seed, v)
		}
	}
	for _, l := range a.Localities {
		for _, e := range l.Endpoints {
			want = append(want, line(e.Addr, l.Priority, e.Draining, l.Region, l.Zone, netip.AddrPort{}))
			for _, m := range e.More {
				want = append(want, line(m, l.Priority, e.Draining, l.Region, l.Zone, e.Addr))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("seed %d: assigned %v, explained %v", seed, want, got)
	}
	if held := encodeAssignment(a).addrs; len(held) != len(want) {
		t.Fatalf("seed %d: %d addresses are held, assigned %v", seed, len(held), want)
	}
}

// randomService gives one service of one or two clusters.
func randomService(r endpointtest.Random) Service {
	key := r.Key()
	svc := Service{Regions: map[string]string{"prod": r.Text(), "edge": r.Text()}, Failover: endpointtest.OneOf(r, "", "any", "region", "none")}
	for _, cluster := range []string{"edge", "prod"} {
		if r.UintN(4) > 0 {
			key.Cluster = cluster
			svc.States = append(svc.States, r.State(key))
		}
	}
	return svc
}

// namesOf gives the name of every port of a service, merged and pinned, and one by number.
func namesOf(svc Service) (names []Name) {
	for _, st := range svc.States {
		for _, sl := range st.Slices {
			for _, p := range sl.Ports {
				n := Name{Service: st.Key.Service, Namespace: st.Key.Namespace, Port: p.Name}
				pinned, number := n, n
				pinned.Cluster, number.Port = st.Key.Cluster, fmt.Sprint(p.Number)
				names = append(names, n, pinned, number)
			}
		}
	}
	return names
}

// shuffled gives the same service with clusters and slices in another order.
func shuffled(r endpointtest.Random, svc Service) Service {
	svc.States = slices.Clone(svc.States)
	for i := range svc.States {
		st := &svc.States[i]
		st.Slices = slices.Clone(st.Slices)
		r.Shuffle(len(st.Slices), func(a, b int) { st.Slices[a], st.Slices[b] = st.Slices[b], st.Slices[a] })
	}
	r.Shuffle(len(svc.States), func(a, b int) { svc.States[a], svc.States[b] = svc.States[b], svc.States[a] })
	return svc
}

func TestNoAssignmentIsEmptyWhileAPodIsUsable(t *testing.T) {
	for seed := range uint64(200) {
		r := endpointtest.NewRandom(seed)
		api := endpointtest.NewAPI("prod")
		for range 60 {
			api.Change(r)
			for _, key := range api.Keys() {
				slicesNow := api.At(key, api.Now())
				usable := false
				for _, e := range newestOfEachPod(slicesNow) {
					ready, fallback := e.Conditions.Usable()
					usable = usable || ready || fallback
				}
				name := Name{Service: key.Service, Namespace: key.Namespace}
				a := Assign(Service{States: []endpoint.State{{Key: key, Slices: slicesNow}}}, View{Cluster: "prod", Zone: "z1"}, name)
				if empty := len(a.Localities) == 0; empty == usable {
					t.Fatalf("seed %d: %s at %s: empty %t, usable %t", seed, key, api.Now(), empty, usable)
				}
			}
		}
	}
}

// newestOfEachPod gives what the newest slice says of each pod.
func newestOfEachPod(all []endpoint.Slice) map[string]endpoint.Endpoint {
	all = slices.SortedFunc(slices.Values(all), func(a, b endpoint.Slice) int { return cmp.Compare(a.Version.Resource, b.Version.Resource) })
	out := map[string]endpoint.Endpoint{}
	for _, sl := range all {
		for _, e := range sl.Endpoints {
			out[e.TargetUID] = e
		}
	}
	return out
}
