package xdsserver

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// The keys of node metadata that place a client.
const (
	metadataCluster = "slicecast.io/cluster"
	metadataFamily  = "slicecast.io/ip-family"
	metadataNode    = "slicecast.io/node"
)

// allNames is the name that subscribes to everything.
const allNames = "*"

// request is a request of a client, of either protocol.
type request struct {
	kind    kind
	node    *corev3.Node
	nonce   string
	nack    bool
	detail  string // why the client rejected a response
	version string // SotW: what the client holds

	names  []string // SotW: all that it wants; not decoded when it is what it wanted before
	digest digest   // SotW: of names

	subscribe   []string // delta
	unsubscribe []string
	initial     map[string]string // delta, in the first request: what it holds
}

// viewOf reads where a client is.
func viewOf(n *corev3.Node) View {
	fields := n.GetMetadata().GetFields()
	text := func(key string) string { return fields[key].GetStringValue() }
	return View{
		Cluster: text(metadataCluster),
		Region:  n.GetLocality().GetRegion(),
		Zone:    n.GetLocality().GetZone(),
		Node:    text(metadataNode),
		Family:  ParseFamily(text(metadataFamily)),
	}
}

// request takes a request of a stream.
func (h *Hub) request(st *stream, r request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.ended {
		return
	}
	h.identify(st, r.node.GetId(), viewOf(r.node))
	t := &st.types[r.kind]
	first := !t.asked
	t.asked = true
	if r.nonce != "" {
		t.answers.note(r, h.now())
		h.settle(st, r)
	}
	if st.delta {
		h.requestDelta(st, t, r, first)
	} else {
		h.requestSotW(st, t, r, first)
	}
	h.acknowledged(st)
	h.enlist(st)
	st.rouse()
	h.signal()
}

// requestDelta changes the subscriptions of a delta stream. What is subscribed to again is sent again: the client may
// have forgotten it. Only what its first request says it holds is spared.
func (h *Hub) requestDelta(st *stream, t *subscription, r request, first bool) {
	if first && r.kind.whole() && len(r.subscribe) == 0 {
		t.legacy = true
		h.subscribeAll(st, t, r, first)
	}
	for _, name := range r.subscribe {
		if name == allNames {
			h.subscribeAll(st, t, r, first)
			continue
		}
		s := h.subscribe(st, r.kind, name)
		s.named = true
		h.ask(s, r, first)
	}
	for _, name := range r.unsubscribe {
		h.dropName(st, r.kind, name)
	}
	t.answer = t.answer || first && t.wildcard
}

// subscribeAll subscribes to everything that a wildcard means, and to what the client holds and is gone. Assignments and
// routes have no wildcard.
func (h *Hub) subscribeAll(st *stream, t *subscription, r request, first bool) {
	if !r.kind.whole() {
		return
	}
	t.wildcard = true
	for _, name := range h.sortedNames() {
		if r.kind != clusters || !h.lists(st, name) {
			continue
		}
		h.ask(h.subscribe(st, r.kind, name), r, first)
	}
	for name := range t.ghosts { // A client with a wildcard takes those too, and must be told that they are gone.
		h.ask(h.subscribe(st, r.kind, name), r, first)
	}
	if !first {
		return
	}
	for name := range r.initial {
		if !h.has(st, r.kind, name) {
			h.ask(h.subscribe(st, r.kind, name), r, first)
		}
	}
}

// ask queues a sub that the client asked for, unless the client's first request says that it holds what is current.
func (h *Hub) ask(s *sub, r request, first bool) {
	if version, holds := r.initial[s.e.id.name]; first && holds {
		h.adopt(s, version)
		return
	}
	s.force = true
	h.mark(s, nil)
}

// adopt takes over what a client holds from an earlier stream. A version that no entry knows may hold anything.
func (h *Hub) adopt(s *sub, version string) {
	s.told = true
	if current := s.e.current; current != nil && current.version == version {
		if s.acked == nil {
			s.acked, s.sent = current, current
			s.e.hold(current)
		}
		h.rest(s)
		return
	}
	for _, a := range s.e.alive {
		if a.resource.version == version && s.acked == nil {
			s.acked, s.sent = a.resource, a.resource
			s.e.hold(a.resource)
			h.mark(s, nil)
			return
		}
	}
	h.suspect(s)
	h.mark(s, nil)
}

// suspect notes that the client holds a version that this replica does not know.
func (h *Hub) suspect(s *sub) {
	if !s.unknown {
		s.unknown = true
		s.st.types[s.e.id.kind].unknown++
	}
}

// dropName ends the subscription to a name. While there is a wildcard, the client is told what that makes of it: the
// resource again, or its removal.
func (h *Hub) dropName(st *stream, k kind, name string) {
	t := &st.types[k]
	if name == allNames {
		t.wildcard, t.legacy = false, false
		for _, s := range t.subs {
			if !s.named {
				h.unsubscribe(s)
			}
		}
		h.eachSettled(st, k, func(e *entry) {
			if e.loose.has(st.place) {
				h.leaveSettled(st, e)
			}
		})
		return
	}
	s := h.find(st, k, name)
	switch {
	case s == nil:
	case t.wildcard:
		s.named, s.force = false, true
		h.mark(s, nil)
	default:
		h.unsubscribe(s)
	}
}

// requestSotW changes the subscriptions of a SotW stream to the names of a request. No names are a wildcard of
// clusters or listeners, until names have been given, and nothing for the other kinds. A request that answers an older response is not
// answered itself, since the answer to the newest follows; its names count, or a name that is dropped and back by then
// would be taken for one that the client holds.
func (h *Hub) requestSotW(st *stream, t *subscription, r request, first bool) {
	stale := r.nonce != "" && r.nonce != t.nonce
	if r.kind.whole() && r.digest.length == 0 && (first || t.legacy) {
		t.legacy = true
		if first {
			h.subscribeAll(st, t, r, first)
			t.answer = true
		}
		return
	}
	if !first && r.digest == t.digest {
		if !t.partial {
			return
		}
		r.names = h.wanted(st, r.kind)
	}
	t.legacy, t.digest, t.partial = false, r.digest, stale
	h.setWildcard(st, t, r, slices.Contains(r.names, allNames), first)
	for _, name := range r.names {
		if name == allNames {
			continue
		}
		if e := h.settledOn(st, r.kind, name); e != nil {
			e.loose.remove(st.place)
			continue
		}
		s := h.subscribe(st, r.kind, name)
		s.named = true
		if s.sent == nil && !s.dirty && !stale {
			h.mark(s, nil)
		}
		if first && r.version != "" {
			h.suspect(s)
		}
	}
	t.answer = t.answer || r.kind.whole() && !stale
}

// setWildcard drops what a SotW request does not want any more, and subscribes to everything if it begins to.
func (h *Hub) setWildcard(st *stream, t *subscription, r request, all, first bool) {
	was := t.wildcard
	t.wildcard = all && r.kind.whole()
	wanted := make(map[string]struct{}, len(r.names))
	for _, name := range r.names {
		wanted[name] = struct{}{}
	}
	for name, s := range t.subs {
		if _, keep := wanted[name]; keep || t.wildcard && r.kind == clusters && h.isMerged(s.e) {
			s.named = keep
		} else {
			h.unsubscribe(s)
		}
	}
	h.eachSettled(st, r.kind, func(e *entry) {
		_, keep := wanted[e.id.name]
		switch {
		case keep:
			e.loose.remove(st.place)
		case t.wildcard && r.kind == clusters && h.isMerged(e):
			e.loose.add(st.place)
		default:
			h.leaveSettled(st, e)
		}
	})
	if t.wildcard && !was {
		h.subscribeAll(st, t, r, first)
	}
}

// settle takes the client's answer to a response. Clients of SotW may answer only the newest of several: those before
// it are acknowledged with it.
func (h *Hub) settle(st *stream, r request) {
	t := &st.types[r.kind]
	at := -1
	for i := range t.window {
		if t.window[i].nonce == r.nonce {
			at = i
		}
	}
	if at < 0 {
		return
	}
	if !st.delta {
		for _, earlier := range t.window[:at] {
			h.answered(st, earlier, false)
		}
	}
	h.answered(st, t.window[at], r.nack)
	if st.delta {
		t.window = slices.Delete(t.window, at, at+1)
	} else {
		t.window = slices.Delete(t.window, 0, at+1)
	}
	if len(t.window) == 0 {
		clear(t.ghosts)
	}
}

// answered counts one response as acknowledged or rejected: what its subs hold, and how long it took.
func (h *Hub) answered(st *stream, r *response, nack bool) {
	h.metrics.answered(r, nack, h.now())
	for _, it := range r.items {
		h.settleChange(it.cause, !nack)
		s := it.sub
		if s.gone {
			continue
		}
		s.landed(it.resource)
		if nack {
			s.rejected = it.resource
			if h.due(s) {
				h.mark(s, nil) // It was parked for an earlier rejection of something else.
			}
			continue
		}
		s.e.hold(it.resource)
		s.e.release(s.acked)
		s.acked = it.resource
		if s.unknown {
			s.unknown = false
			st.types[r.kind].unknown--
		}
		h.rest(s)
	}
	if r.kind == assignments && !nack {
		st.acked = true
	}
	r.items = nil
}

// landed takes a version out of flight.
func (s *sub) landed(r *resource) {
	for i, f := range s.flight {
		if f == r {
			s.flight = slices.Delete(s.flight, i, i+1)
			s.e.release(r)
			return
		}
	}
}
