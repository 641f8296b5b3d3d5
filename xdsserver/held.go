package xdsserver

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// orphan is an ended stream with what its client may hold.
type orphan struct {
	Orphan
	host   string // of the peer
	held   []*resource
	all    bool     // it may hold anything
	names  []string // of the assignments that it wanted
	shared bool     // another stream of the same node and host wanted one of them: nothing tells which client comes back
}

// grip says how a stream holds an address.
type grip uint8

const (
	gripNone grip = iota
	gripDraining
	gripFull
)

// gripOf says how a version holds an address that match tells.
func gripOf(r *resource, match func(netip.AddrPort) bool) grip {
	g := gripNone
	for i := range r.addrs {
		if !match(r.addrs[i].at) {
			continue
		}
		if !r.addrs[i].draining {
			return gripFull
		}
		g = gripDraining
	}
	return g
}

// holders gives the streams that may hold an address. It looks at each version that somebody holds once, whatever the
// number of streams.
func (h *Hub) holders(match func(netip.AddrPort) bool) []Holder {
	grips := map[*stream]grip{}
	for _, e := range h.entries {
		if e.id.kind != assignments {
			continue
		}
		for _, v := range e.alive {
			g := gripOf(v.resource, match)
			if g == gripNone {
				continue
			}
			for _, s := range e.subs {
				if s.mayHold(v.resource) {
					grips[s.st] = max(grips[s.st], g)
				}
			}
			if v.resource == e.current {
				for n := range e.settled.each {
					grips[h.numbered[n]] = max(grips[h.numbered[n]], g)
				}
			}
		}
	}
	var out []Holder
	for st := range h.streams {
		if !st.serves(assignments) {
			continue
		}
		g := grips[st]
		if st.types[assignments].unknown > 0 {
			g = gripFull
		}
		if g != gripNone || !st.acked {
			out = append(out, Holder{
				Stream: st.id, Node: st.node, Address: st.peer, Since: st.opened, Silent: st.silent(),
				Draining: g == gripDraining && st.acked, Unacked: g == gripNone,
			})
		}
	}
	slices.SortFunc(out, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address), strings.Compare(a.Stream, b.Stream))
	})
	return out
}

// mayHold reports whether the client acknowledged a version, was sent it, or will be.
func (s *sub) mayHold(r *resource) bool {
	return s.acked == r || s.dirty && s.e.current == r || slices.Contains(s.flight, r)
}

// remember keeps what the client of an ending stream may hold.
func (h *Hub) remember(st *stream) {
	h.forget()
	if !st.types[assignments].asked {
		return // It was sent no assignment; what its client had before is remembered of the stream that sent it.
	}
	o := &orphan{
		Orphan: Orphan{Stream: st.id, Node: st.node, Address: st.peer, Ended: h.now(), Clean: st.isClean()},
		host:   hostOf(st.peer),
		all:    !st.acked || st.types[assignments].unknown > 0,
	}
	held := map[*resource]struct{}{}
	for name, s := range st.types[assignments].subs {
		o.names = append(o.names, name)
		for _, v := range s.e.alive {
			if s.mayHold(v.resource) {
				held[v.resource] = struct{}{}
			}
		}
	}
	h.eachSettled(st, assignments, func(e *entry) {
		o.names = append(o.names, e.id.name)
		held[e.current] = struct{}{}
	})
	for r := range held {
		o.held = append(o.held, r)
	}
	o.shared = h.wanting(o) > 1
	h.orphans = append(h.orphans, o)
}

// wanting counts the open streams of an orphan's node and host that want one of its names.
func (h *Hub) wanting(o *orphan) (n int) {
	for st := range h.streams {
		if st.node == o.Node && hostOf(st.peer) == o.host && slices.ContainsFunc(o.names, func(name string) bool { return h.has(st, assignments, name) }) {
			n++
		}
	}
	return n
}

// forget drops orphans whose proxies count as lost.
func (h *Hub) forget() {
	now := h.now()
	h.orphans = slices.DeleteFunc(h.orphans, func(o *orphan) bool {
		return now.Sub(o.Ended) > h.lostFor || h.roll != nil && h.roll.isCleared(rollKey{h.own, o.Stream})
	})
}

// acknowledged notes that a client that has acknowledged all it wants proves what it holds: an earlier stream of it does
// not matter any more if it wants all that that one wanted. A client that has a stream per name proves nothing of the
// other names; of two clients with one node id, neither proves anything for the other.
func (h *Hub) acknowledged(st *stream) {
	t := &st.types[assignments]
	if !st.acked && t.asked && len(t.subs)+t.settled > 0 && t.dirty == 0 && t.unknown == 0 && len(t.window) == 0 {
		st.acked = holdsAll(t)
	}
	if len(h.orphans) == 0 || st.node == "" || !st.isClean() {
		return
	}
	host := hostOf(st.peer)
	h.orphans = slices.DeleteFunc(h.orphans, func(o *orphan) bool {
		return o.Node == st.node && o.host == host && !o.shared && !slices.ContainsFunc(o.names, func(name string) bool { return !h.has(st, assignments, name) }) &&
			h.wanting(o) <= 1
	})
}

// holdsAll reports whether a client holds the current version of everything it wants, by its own first request. What is
// settled it holds.
func holdsAll(t *subscription) bool {
	for _, s := range t.subs {
		if s.acked == nil || s.acked != s.e.current {
			return false
		}
	}
	return true
}

// orphansOf gives the ended streams whose clients may hold an address.
func (h *Hub) orphansOf(match func(netip.AddrPort) bool) []Orphan {
	h.forget()
	var out []Orphan
	if h.roll != nil {
		out = h.roll.orphans(h.now())
	}
	grips := map[*resource]bool{}
	for _, o := range h.orphans {
		holds := o.all
		for _, r := range o.held {
			if holds {
				break
			}
			hit, looked := grips[r]
			if !looked {
				hit = gripOf(r, match) != gripNone
				grips[r] = hit
			}
			holds = hit
		}
		if holds {
			out = append(out, o.Orphan)
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address), strings.Compare(a.Stream, b.Stream))
	})
	return out
}

func hostOf(peer string) string {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		return peer
	}
	return host
}
