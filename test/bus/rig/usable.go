package rig

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// shown is what a client may be told of a service port: whom it may use, and who is leaving.
type shown struct {
	healthy, draining []netip.Addr // sorted
}

// holds gives all addresses of s.
func (s shown) holds() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, a := range s.healthy {
		all[a] = true
	}
	for _, a := range s.draining {
		all[a] = true
	}
	return all
}

func (s shown) equal(o shown) bool {
	return slices.Equal(s.healthy, o.healthy) && slices.Equal(s.draining, o.draining)
}

// sortOut gives the ready addresses of a service and those that serve while they terminate. Of a pod that is in several
// slices the newest one speaks.
func sortOut(all []endpoint.Slice) (ready, leaving []netip.Addr) {
	type word struct {
		version endpoint.Version
		e       endpoint.Endpoint
	}
	pods := map[netip.Addr]word{}
	for _, s := range all {
		for _, e := range s.Endpoints {
			if w, ok := pods[e.Addr]; !ok || s.Version.After(w.version) {
				pods[e.Addr] = word{s.Version, e}
			}
		}
	}
	for addr, w := range pods {
		switch r, fallback := w.e.Conditions.Usable(); {
		case r:
			ready = append(ready, addr)
		case fallback:
			leaving = append(leaving, addr)
		}
	}
	slices.SortFunc(ready, netip.Addr.Compare)
	slices.SortFunc(leaving, netip.Addr.Compare)
	return ready, leaving
}

// usableOf gives the usable addresses of a service, sorted: the ready ones, or else those that serve while they terminate.
func usableOf(all []endpoint.Slice) []netip.Addr {
	ready, leaving := sortOut(all)
	if len(ready) > 0 {
		return ready
	}
	return leaving
}

// assignment gives what a client of no cluster is shown of a service in one cluster.
func assignment(all []endpoint.Slice) shown {
	ready, leaving := sortOut(all)
	if len(ready) == 0 {
		return shown{healthy: leaving}
	}
	s := shown{healthy: ready}
	if len(all) > 0 && all[0].TerminatingPolicy == "drain" {
		s.draining = leaving
	}
	return s
}

// String gives the addresses, those that drain after a dash.
func (s shown) String() string { return fmt.Sprintf("%v - %v", s.healthy, s.draining) }
