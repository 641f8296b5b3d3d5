// Pure: values in, values out.

package xdsserver

import (
	"net/netip"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// candidate is one address and port of one slice on its way through the rules. While reason is 0 it is undecided.
type candidate struct {
	at     netip.AddrPort
	ep     *endpoint.Endpoint
	from   *source
	by     spoken              // who speaks for its address or its pod instead
	cond   endpoint.Conditions // of the slice that speaks for the pod
	reason Reason

	promised bool  // nothing new may be sent to its pod
	place    int32 // where it is kept, by the numbers of groupByPlace
}

// source is a slice with what all its addresses share.
type source struct {
	sl     *endpoint.Slice
	region string
	tier   uint8 // 0 own cluster, 1 its region, 2 the rest
	drain  bool  // the service asks to send terminating endpoints as DRAINING
}

// spoken is the endpoint that speaks for a candidate; zero when that does so itself.
type spoken struct {
	from *source
	ep   *endpoint.Endpoint
}

// rank orders candidates of one address: ready before serving and terminating before the rest.
func (c *candidate) rank() int {
	switch ready, fallback := c.cond.Usable(); {
	case c.promised:
		return 2
	case ready:
		return 0
	case fallback:
		return 1
	default:
		return 2
	}
}

// judge collects the candidates of a service port and lets each rule decide about them, in this order: reach of the
// client, family, moved pods (these in collect), duplicates, readiness and fallback, hints. order has the candidates by
// address.
func judge(svc Service, view View, name Name) (all []candidate, order []addressKey) {
	all = collect(svc.within(view.Scope), view, name)
	order = dropDuplicates(all)
	for _, v6 := range [...]bool{false, true} {
		decideFamily(all, v6, hintsOf(view, name))
	}
	return all, order
}

// dropDuplicates leaves one undecided candidate per address and port (rule D12): the one that is more usable, then
// that of the smaller cluster name, in one cluster that of the newer slice, then of the smaller slice name. It returns
// the candidates by address.
func dropDuplicates(all []candidate) (order []addressKey) {
	order = make([]addressKey, len(all))
	for i := range all {
		order[i] = keyOf(all[i].at, int32(i))
	}
	order = mergeRuns(all, order)
	var winner *candidate
	for _, k := range order {
		switch c := &all[k.i]; {
		case c.reason != 0:
		case winner != nil && c.at == winner.at:
			c.reason, c.by = ReasonDuplicate, spoken{winner.from, winner.ep}
		default:
			winner = c
		}
	}
	return order
}

// decideFamily decides what is left of one address family: ready endpoints, where the hints allow them; only if there
// is none in any cluster that the client may use, the serving and terminating ones (rules R3, R8, D10, D11).
func decideFamily(all []candidate, v6 bool, h hints) {
	ready := false
	for i := range all {
		if c := &all[i]; c.reason == 0 && c.at.Addr().Is6() == v6 && c.rank() == 0 {
			ready = true
			h.see(c)
		}
	}
	for i := range all {
		c := &all[i]
		if c.reason != 0 || c.at.Addr().Is6() != v6 {
			continue
		}
		switch {
		case c.rank() == 0 && h.refuse(c):
			c.reason = ReasonHint
		case c.rank() == 0:
			c.reason = ReasonReady
		case c.rank() == 1 && !ready:
			c.reason = ReasonFallback
		case c.from.drain && c.cond&endpoint.Terminating != 0:
			c.reason = ReasonDraining
		case c.promised:
			c.reason = ReasonPromised
		case c.cond&endpoint.Terminating == 0:
			c.reason = ReasonNotReady
		default:
			c.reason = ReasonTerminating
		}
	}
}
