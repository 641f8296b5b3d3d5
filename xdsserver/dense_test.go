package xdsserver

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// denseService gives a service in which slices, pods and addresses meet all the time.
func denseService(r endpointtest.Random) Service {
	var svc Service
	policy := endpointtest.OneOf(r, "", "", "drain")
	for _, cluster := range []string{"edge", "prod"}[r.IntN(2):] {
		var all []endpoint.Slice
		rv := uint64(0)
		for i := range 1 + r.IntN(4) {
			v6 := r.IntN(3) == 0
			var eps []endpoint.Endpoint
			seen := map[string]bool{}
			for range r.IntN(6) {
				e := ep(fmt.Sprintf("10.0.0.%d rs-", 1+r.IntN(4)))
				if v6 {
					e.Addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(1 + r.IntN(4))})
				}
				e.Conditions = endpointtest.OneOf(r, r.Conditions(), endpoint.Serving|endpoint.Terminating)
				e.TargetUID = endpointtest.OneOf(r, "", "a", "b", "c", "d")
				e.TargetName = e.TargetUID
				e.ZoneHints = endpointtest.OneOf(r, "", "z1", "z1", "z2", "z1,z2")
				if id := e.Addr.String() + e.TargetUID; !seen[id] {
					seen[id] = true
					eps = append(eps, e)
				}
			}
			rv += 1 + r.Uint64N(3)
			sl := withLabels(sliceOf(cluster, fmt.Sprint("s", i), rv, eps...), policy, "")
			if r.IntN(6) == 0 {
				sl = withPorts(sl, endpointtest.OneOf(r, endpoint.Port{Name: "http", Number: 9090}, endpoint.Port{Name: "grpc", Number: 9090}))
			}
			all = append(all, sl)
		}
		r.Shuffle(len(all), func(i, j int) { all[i].Version, all[j].Version = all[j].Version, all[i].Version })
		svc.States = append(svc.States, stateOf(all...))
	}
	return svc
}

// naive is one endpoint as the rules see it, one by one.
type naive struct {
	at    netip.AddrPort
	e     endpoint.Endpoint
	sl    *endpoint.Slice
	drain bool
}

func (n naive) rank() int {
	switch ready, fallback := n.e.Conditions.Usable(); {
	case ready:
		return 0
	case fallback:
		return 1
	default:
		return 2
	}
}

// spokenFor applies what the newest slice of a pod says (D12); false when it leaves the endpoint out.
func (n *naive) spokenFor(st *endpoint.State) bool {
	if n.e.TargetUID == "" {
		return true
	}
	newest, at := n.sl, n.e
	var there bool
	for i := range st.Slices {
		sl := &st.Slices[i]
		for _, e := range sl.Endpoints {
			if e.TargetUID == n.e.TargetUID && e.Addr.Is6() == n.e.Addr.Is6() && sl.Version.After(newest.Version) {
				newest = sl
			}
		}
	}
	if newest == n.sl {
		return true
	}
	for _, e := range newest.Endpoints {
		if e.TargetUID == n.e.TargetUID && e.Addr == n.e.Addr {
			at, there = e, true
		}
	}
	n.e.Conditions = at.Conditions
	return there && httpOf(newest) != n.at.Port()
}

func httpOf(sl *endpoint.Slice) uint16 {
	for _, p := range sl.Ports {
		if p.Name == "http" {
			return p.Number
		}
	}
	return 0
}

// naiveAssign gives the addresses of the port http as the rules say, without any thought of cost.
func naiveAssign(svc Service, view View) map[netip.AddrPort]bool {
	best := map[netip.AddrPort]naive{}
	for i := range svc.States {
		st := &svc.States[i]
		for j := range st.Slices {
			sl := &st.Slices[j]
			for _, e := range sl.Endpoints {
				n := naive{netip.AddrPortFrom(e.Addr, httpOf(sl)), e, sl, sl.TerminatingPolicy == "drain"}
				if n.at.Port() == 0 || !n.spokenFor(st) || !view.Family.takes(e.Addr) {
					continue
				}
				if b, taken := best[n.at]; !taken || naiveBefore(n, b) {
					best[n.at] = n
				}
			}
		}
	}
	out := map[netip.AddrPort]bool{} // whether it drains
	for _, v6 := range []bool{false, true} {
		naiveFamily(out, view, slices.Collect(maps.Values(best)), v6)
	}
	return out
}

func naiveBefore(a, b naive) bool {
	switch {
	case a.rank() != b.rank():
		return a.rank() < b.rank()
	case a.sl.Key.Cluster != b.sl.Key.Cluster:
		return a.sl.Key.Cluster < b.sl.Key.Cluster
	case a.sl.Version != b.sl.Version:
		return a.sl.Version.After(b.sl.Version)
	default:
		return a.e.TargetUID < b.e.TargetUID
	}
}

func naiveFamily(out map[netip.AddrPort]bool, view View, all []naive, v6 bool) {
	all = slices.DeleteFunc(all, func(n naive) bool { return n.at.Addr().Is6() != v6 })
	own := func(n naive) bool { return view.Cluster == "" || view.Cluster == n.sl.Key.Cluster }
	ready, hinted, mine := 0, true, false
	for _, n := range all {
		if n.rank() > 0 {
			continue
		}
		ready++
		if own(n) {
			hinted = hinted && n.e.ZoneHints != ""
			mine = mine || strings.Contains(n.e.ZoneHints, view.Zone) && view.Zone != ""
		}
	}
	for _, n := range all {
		switch {
		case n.rank() == 0:
			if !hinted || !mine || !own(n) || strings.Contains(n.e.ZoneHints, view.Zone) {
				out[n.at] = false
			}
		case n.rank() == 1 && ready == 0:
			out[n.at] = false
		case n.drain && n.e.Conditions&endpoint.Terminating != 0:
			out[n.at] = true
		}
	}
}

func TestServicesWhosePodsMeetAreAsTheRulesSayOneByOne(t *testing.T) {
	duplicates, moved, additional := 0, 0, 0
	for seed := range uint64(6000) {
		r := endpointtest.NewRandom(seed)
		svc, name := denseService(r), mustName(t, cart)
		view := View{
			Cluster: endpointtest.OneOf(r, "", "prod", "edge"), Zone: endpointtest.OneOf(r, "", "z1", "z2"),
			Family: endpointtest.OneOf(r, AnyFamily, AnyFamily, IPv4, IPv6),
		}
		a := Assign(svc, view, name)
		got := map[netip.AddrPort]bool{}
		for _, l := range a.Localities {
			for _, e := range l.Endpoints {
				got[e.Addr] = e.Draining
				for _, m := range e.More {
					got[m] = e.Draining
					additional++
				}
			}
		}
		if want := naiveAssign(svc, view); !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
		held := map[netip.AddrPort]bool{}
		for _, h := range encodeAssignment(a).addrs {
			held[h.at] = h.draining
		}
		if !maps.Equal(held, got) {
			t.Fatalf("seed %d: %v are held, %v assigned", seed, held, got)
		}
		if other := Assign(shuffled(r, svc), view, name).Encode(); !bytes.Equal(a.Encode(), other) {
			t.Fatalf("seed %d: the order of slices and clusters shows", seed)
		}
		verdicts := Explain(svc, view, name)
		checkVerdicts(t, seed, a, verdicts)
		for _, v := range verdicts {
			switch v.Reason {
			case ReasonDuplicate:
				duplicates++
			case ReasonMoved:
				moved++
			}
		}
	}
	if duplicates < 1000 || moved < 1000 || additional < 300 {
		t.Errorf("%d duplicates, %d moved pods, %d additional addresses: too few to mean anything", duplicates, moved, additional)
	}
}
