// Pure: values in, values out.

package xdsserver

import (
	"net/netip"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Service is what Assign is made of: one service of one namespace, in all clusters.
type Service struct {
	States   []endpoint.State  // at most one per cluster, sorted by cluster
	Regions  map[string]string // region of each cluster, none or "" when unknown
	Failover string            // where the label slicecast.io/failover is unset: "any", "region" or "none"; "" means any
	Promised map[Pod]struct{}  // pods that are never chosen
	Former   Former            // ports of services without pods
}

// Pod names one pod by its uid.
type Pod struct{ Cluster, UID string }

// Assignment is what one View gets to see of one service port.
//
// Invariants:
//
//	A1: Localities are sorted by priority, region, zone; no two have the same three; none is without endpoints.
//	A2: priorities are dense from 0.
//	A3: no address and port is there twice, additional ones included.
//	A4: endpoints of a locality are sorted by address and port.
type Assignment struct {
	Name       string // of the resource
	Localities []Locality
	Fallback   bool // for some address family nothing is ready: the serving and terminating ones serve
}

// Encode gives a as a ClusterLoadAssignment message, byte for byte as responses carry it. Equal Assignments give equal
// bytes.
func (a Assignment) Encode() []byte {
	sizes, total := sizesOf(&a, nil)
	return appendAssignment(make([]byte, 0, total), &a, sizes)
}

// Locality is the endpoints of one zone at one priority.
type Locality struct {
	Priority  uint32 // 0 is the client's own cluster, or all for a client of none
	Region    string
	Zone      string
	Endpoints []Target
}

// Weight is the share of the locality among those of its priority: the number of endpoints that take new work, and
// never 0, which would make clients ignore it.
func (l Locality) Weight() uint32 {
	n := uint32(0)
	for i := range l.Endpoints {
		if !l.Endpoints[i].Draining {
			n++
		}
	}
	return max(n, 1)
}

// Target is one endpoint of an Assignment.
type Target struct {
	Addr     netip.AddrPort
	More     []netip.AddrPort // of the same pod in the other address family
	Draining bool             // finishes what it has and gets nothing new
}

// Assign gives what view sees of the service port that name means. It depends on nothing but its arguments, and not on
// the order of slices, so all replicas agree. A name of another service, or of a port that nobody has, gives an empty
// Assignment.
func Assign(svc Service, view View, name Name) Assignment {
	all, order := judge(svc, view, name)
	return arrange(all, order, view, name)
}

// arrange puts what was kept into localities. order has the candidates by address.
func arrange(all []candidate, order []addressKey, view View, name Name) Assignment {
	out := Assignment{Name: name.String()}
	groups := groupByPlace(all, order)
	if len(groups) == 0 {
		return out
	}
	kept := 0
	for i := range groups {
		kept += len(groups[i].members)
	}
	targets := make([]Target, 0, kept)
	out.Localities = make([]Locality, 0, len(groups))
	priority := uint32(0)
	for n := range groups {
		g := &groups[n]
		if n > 0 && groups[n-1].tier != g.tier {
			priority++
		}
		from := len(targets)
		targets = appendTargets(targets, all, g.members, view.Family)
		out.Localities = append(out.Localities, Locality{
			Priority: priority, Region: g.region, Zone: g.zone, Endpoints: targets[from:len(targets):len(targets)],
		})
		out.Fallback = out.Fallback || slices.ContainsFunc(g.members, func(i int32) bool { return all[i].reason == ReasonFallback })
	}
	return out
}

// appendTargets appends one Target per endpoint of a locality. For a client of both families the IPv6 addresses of a
// pod become additional addresses of its IPv4 endpoint, where both are in the same health.
func appendTargets(targets []Target, all []candidate, group []int32, family Family) []Target {
	firstV6, _ := slices.BinarySearchFunc(group, true, func(i int32, _ bool) int {
		if all[i].at.Addr().Is6() {
			return 0
		}
		return -1
	})
	var v4 map[podHealth]int
	both := family == AnyFamily && firstV6 > 0 && firstV6 < len(group)
	if both {
		v4 = make(map[podHealth]int, firstV6)
	}
	var more []netip.AddrPort // of all targets: most have one, in a part of it
	for n, i := range group {
		c := &all[i]
		key := podHealth{Pod{c.from.sl.Key.Cluster, c.ep.TargetUID}, c.reason == ReasonDraining}
		if both && c.ep.TargetUID != "" {
			at, paired := v4[key]
			if paired && n >= firstV6 {
				if t := &targets[at]; t.More != nil {
					t.More = append(t.More, c.at)
				} else {
					more = append(slices.Grow(more, len(group)-n), c.at)
					t.More = more[len(more)-1 : len(more) : len(more)]
				}
				continue
			}
			if !paired && n < firstV6 {
				v4[key] = len(targets)
			}
		}
		targets = append(targets, Target{Addr: c.at, Draining: key.draining})
	}
	return targets
}

// podHealth tells apart the addresses of a pod that may be one endpoint.
type podHealth struct {
	pod      Pod
	draining bool
}
