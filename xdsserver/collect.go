// Pure: values in, values out.

package xdsserver

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// tierOut is the tier of a cluster that the client does not fail over to.
const tierOut = 255

// collect gives every address of the service port that name means, in all clusters that name speaks of. What is out of
// the client's reach, of the other family, or said by a slice that no longer speaks for the pod has its
// reason already.
func collect(svc Service, view View, name Name) []candidate {
	states := svc.States
	if !slices.IsSortedFunc(states, byCluster) {
		states = slices.SortedFunc(slices.Values(states), byCluster)
	}
	if name.Cluster != "" {
		states = slices.DeleteFunc(slices.Clone(states), func(st endpoint.State) bool { return st.Key.Cluster != name.Cluster })
	}
	if len(states) == 0 || states[0].Key.Namespace != name.Namespace || states[0].Key.Service != name.Service {
		return nil
	}
	port := portOf(states, name)
	reach := reachOf(svc, view, name)
	total, parts := 0, 0
	for i := range states {
		parts += len(states[i].Slices)
		for j := range states[i].Slices {
			total += len(states[i].Slices[j].Endpoints)
		}
	}
	all, sources := make([]candidate, 0, total), make([]source, 0, parts)
	for i := range states {
		from := len(sources)
		sources = appendSources(sources, &states[i], reach)
		all = collectState(all, sources[from:], port)
	}
	for i := range all {
		c := &all[i]
		if len(svc.Promised) > 0 && c.ep.TargetUID != "" {
			_, c.promised = svc.Promised[Pod{c.from.sl.Key.Cluster, c.ep.TargetUID}]
		}
		if c.reason == 0 && !view.Family.takes(c.at.Addr()) {
			c.reason = ReasonFamily
		}
	}
	return all
}

// appendSources appends the slices of one cluster.
func appendSources(sources []source, st *endpoint.State, reach reach) []source {
	proto := source{
		region: strings.ToValidUTF8(reach.svc.Regions[st.Key.Cluster], "?"), // What is not UTF-8 would break the whole response.
		tier:   reach.tier(st.Key.Cluster),
		drain:  terminating.said(st) == drainPolicy,
	}
	for i := range st.Slices {
		proto.sl = &st.Slices[i]
		sources = append(sources, proto)
	}
	return sources
}

// collectState appends the addresses that one cluster has.
func collectState(all []candidate, sources []source, port portMatch) []candidate {
	speaker := speakersOf(sources)
	for i := range sources {
		from := &sources[i]
		number := port.in(from.sl)
		if number == 0 {
			continue
		}
		reason := Reason(0)
		if from.tier == tierOut {
			reason = ReasonFailover
		}
		for j := range from.sl.Endpoints {
			ep := &from.sl.Endpoints[j]
			all = append(all, candidate{at: netip.AddrPortFrom(ep.Addr, number), ep: ep, from: from, cond: ep.Conditions, reason: reason})
			if speaker != nil {
				speaker.correct(&all[len(all)-1], port)
			}
		}
	}
	return all
}

// portMatch says which port of a slice a name means: an exact name wins over a number, over the whole service.
type portMatch struct {
	name   string
	number uint16 // not 0: by number
}

func portOf(states []endpoint.State, name Name) portMatch {
	number := name.number()
	if number == 0 {
		return portMatch{name: name.Port}
	}
	for i := range states {
		for j := range states[i].Slices {
			for _, p := range states[i].Slices[j].Ports {
				if p.Name == name.Port {
					return portMatch{name: name.Port}
				}
			}
		}
	}
	return portMatch{number: number}
}

// in gives the number of the port in a slice, 0 when it does not have it.
func (m portMatch) in(sl *endpoint.Slice) uint16 {
	for i := range sl.Ports {
		if p := &sl.Ports[i]; m.number != 0 && p.Number == m.number || m.number == 0 && p.Name == m.name {
			return p.Number
		}
	}
	return 0
}

// reach says which clusters a client uses, and in which order.
type reach struct {
	svc    *Service
	view   View
	region string // of the client
	far    string // failover policy
	all    bool   // everything at priority 0
}

func reachOf(svc Service, view View, name Name) reach {
	r := reach{svc: &svc, view: view, region: view.Region, all: name.Cluster != "" || view.Cluster == ""}
	if r.region == "" {
		r.region = svc.Regions[view.Cluster]
	}
	r.far = failoverPolicy(&svc, view.Cluster)
	return r
}

// tier gives the place of a cluster in the order, or tierOut.
func (r reach) tier(cluster string) uint8 {
	switch {
	case r.all || cluster == r.view.Cluster:
		return 0
	case r.far == failoverNone:
		return tierOut
	case r.region != "" && r.svc.Regions[cluster] == r.region:
		return 1
	case r.far == failoverRegion:
		return tierOut
	default:
		return 2
	}
}

// newer orders the slices of one service in one cluster. Only a source that counts by itself has equal versions.
func newer(a, b *endpoint.Slice) bool {
	c := a.Version.Compare(b.Version)
	return c > 0 || c == 0 && a.Name < b.Name
}

// newest gives the slice with the highest version, which speaks for the labels of its service.
func newest(st *endpoint.State) *endpoint.Slice {
	best := &st.Slices[0]
	for i := range st.Slices {
		if sl := &st.Slices[i]; newer(sl, best) {
			best = sl
		}
	}
	return best
}

func byCluster(a, b endpoint.State) int { return strings.Compare(a.Key.Cluster, b.Key.Cluster) }
