// Pure: values in, values out.

package xdsserver

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Reason says why an address is in an Assignment, or is not: the rule that decided.
type Reason uint8

// The reasons. The first three keep an address, the others leave it out.
const (
	ReasonReady       Reason = iota + 1 // it is ready (rule R3)
	ReasonFallback                      // nothing of its family is ready, and it still serves (rule D10)
	ReasonDraining                      // it is terminating, and the service asks to send those as DRAINING (rule D11)
	ReasonNotReady                      // it is neither ready nor terminating (rule R3)
	ReasonTerminating                   // it is terminating while others are ready, or serves no more (rules D11, R3)
	ReasonDuplicate                     // another endpoint with the same address and port speaks for it (rule D12)
	ReasonMoved                         // a newer slice has its pod at another address (rule D12)
	ReasonHint                          // topology hints give it to other zones or nodes (rule R8)
	ReasonFamily                        // the client asked for the other address family (rule D13)
	ReasonFailover                      // the client does not fail over to its cluster (rule D19)
	ReasonPromised                      // the drain gate promised never to choose it again (rule D20)
)

// reasons has, for each reason in order, a word or two, the rule, and the rule in words.
var reasons = [...]struct{ word, rule, why string }{
	{"unknown", "", "no rule has decided"},
	{"ready", "R3", "ready endpoints are used"},
	{"fallback", "D10", "nothing of its address family is ready, and it still serves while it terminates"},
	{"draining", "D11", "it terminates, and the service asks to finish what it has (slicecast.io/terminating: drain)"},
	{"not ready", "R3", "neither ready nor terminating"},
	{"terminating", "D11", "it terminates while others are ready"},
	{"duplicate", "D12", "another endpoint speaks for this address and port"},
	{"moved", "D12", "a newer slice has its pod at another address"},
	{"hint", "R8", "topology hints give it to other zones or nodes"},
	{"family", "D13", "the client asked for the other address family"},
	{"failover", "D19", "the client does not fail over to its cluster"},
	{"promised", "D20", "the drain gate has promised not to choose its pod again"},
}

// The rules of two reasons that have more than one.
const (
	ruleUnready  = "R2"
	whyUnready   = "ready although it terminates or does not serve (publishNotReadyAddresses)"
	ruleStopped  = "R3"
	whyStopped   = "it terminates and serves no more"
	whySpokenFor = "; a newer slice of its pod gives the conditions"
)

// String gives one word or two for people.
func (r Reason) String() string {
	if int(r) >= len(reasons) {
		r = 0
	}
	return reasons[r].word
}

// Kept reports whether r puts an address into the Assignment.
func (r Reason) Kept() bool { return r == ReasonReady || r == ReasonFallback || r == ReasonDraining }

// Chosen reports whether r makes clients send new work to an address.
func (r Reason) Chosen() bool { return r == ReasonReady || r == ReasonFallback }

// Verdict is what Assign decided about one address and port of one slice, and why.
type Verdict struct {
	Cluster  string
	Slice    string
	UID      string // of the pod
	Addr     netip.AddrPort
	Reason   Reason
	Rule     string // that decided, as the design names it: "R3", "D12"
	Why      string // the rule in words
	Priority uint32 // where Reason keeps it; 0 is the client's own cluster, or all for a client of none
	Region   string // of its cluster
	// Addition is the address that it is an additional one of: that of the same pod in IPv4. Invalid when it stands alone.
	Addition netip.AddrPort
	Endpoint endpoint.Endpoint // as its slice has it
	// Conditions are those that counted: of the slice that speaks for the pod.
	Conditions endpoint.Conditions
	Version    endpoint.Version // of its slice
	Observed   time.Time        // when a watcher saw that version of its slice, zero when unknown
	Winner     *Winner          // who speaks instead; nil when it speaks for itself
}

// Winner is the endpoint that speaks for an address, or for a pod, instead of another.
type Winner struct {
	Cluster string
	Slice   string
	Version endpoint.Version // of Slice
	Addr    netip.Addr
	Pod     string // name of its target, "" when it has none
	UID     string // of the pod
}

// Explain gives the decision about every address that could be in Assign(svc, view, name), sorted by address, cluster
// and slice. Both come from the same decision.
func Explain(svc Service, view View, name Name) []Verdict {
	all, order := judge(svc, view, name)
	kept := placesOf(arrange(all, order, view, name))
	out := make([]Verdict, len(all))
	for i := range all {
		out[i] = all[i].verdict(kept)
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Slice, b.Slice), strings.Compare(a.UID, b.UID))
	})
	return out
}

// verdict gives what was decided about a candidate. kept has the addresses of the Assignment.
func (c *candidate) verdict(kept map[netip.AddrPort]placement) Verdict {
	v := Verdict{
		Cluster: c.from.sl.Key.Cluster, Slice: c.from.sl.Name, UID: c.ep.TargetUID, Addr: c.at, Reason: c.reason,
		Rule: reasons[c.reason].rule, Why: reasons[c.reason].why, Region: c.from.region, Endpoint: *c.ep,
		Conditions: c.cond, Version: c.from.sl.Version, Observed: c.from.sl.Observed,
	}
	if c.reason.Kept() {
		v.Priority, v.Addition = kept[c.at].priority, kept[c.at].of
	}
	serves := c.cond&endpoint.Serving != 0 && c.cond&endpoint.Terminating == 0
	switch {
	case c.reason == ReasonReady && !serves:
		v.Rule, v.Why = ruleUnready, whyUnready
	case c.reason == ReasonTerminating && c.cond&endpoint.Serving == 0:
		v.Rule, v.Why = ruleStopped, whyStopped
	}
	if by := c.by; by.from != nil {
		v.Winner = &Winner{
			Cluster: by.from.sl.Key.Cluster, Slice: by.from.sl.Name, Version: by.from.sl.Version, Addr: by.ep.Addr, Pod: by.ep.TargetName, UID: by.ep.TargetUID,
		}
		if c.reason != ReasonDuplicate && c.reason != ReasonMoved {
			v.Why += whySpokenFor
		}
	}
	return v
}

// placement is where an address is in an Assignment.
type placement struct {
	priority uint32
	of       netip.AddrPort // the address that it is an additional one of
}

func placesOf(a Assignment) map[netip.AddrPort]placement {
	out := map[netip.AddrPort]placement{}
	for i := range a.Localities {
		l := &a.Localities[i]
		for j := range l.Endpoints {
			t := &l.Endpoints[j]
			out[t.Addr] = placement{priority: l.Priority}
			for _, m := range t.More {
				out[m] = placement{l.Priority, t.Addr}
			}
		}
	}
	return out
}
