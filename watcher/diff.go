// Pure: the transitions between two contents of a slice.

package watcher

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Diff lists the addresses whose conditions differ between two contents of one slice, sorted by address. A zero
// Slice stands for "not there". Where an address occurs with several targets, its most usable one speaks.
func Diff(before, after endpoint.Slice) []endpoint.Transition {
	was, is := byAddr(before), byAddr(after)
	var out []endpoint.Transition
	for addr, c := range is {
		old, ok := was[addr]
		if !ok {
			old = endpoint.Absent
		}
		if old != c {
			out = append(out, endpoint.Transition{Addr: addr, Before: old, After: c})
		}
	}
	for addr := range maps.Keys(was) {
		if _, ok := is[addr]; !ok {
			out = append(out, endpoint.Transition{Addr: addr, Before: was[addr], After: endpoint.Absent})
		}
	}
	slices.SortFunc(out, func(a, b endpoint.Transition) int { return a.Addr.Compare(b.Addr) })
	return out
}

func byAddr(s endpoint.Slice) map[netip.Addr]endpoint.Conditions {
	m := make(map[netip.Addr]endpoint.Conditions, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if known, ok := m[e.Addr]; !ok || rank(e.Conditions) > rank(known) {
			m[e.Addr] = e.Conditions
		}
	}
	return m
}
