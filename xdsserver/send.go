package xdsserver

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// next gives the next response for a stream, nil when there is nothing to send now. Clusters go before assignments and
// removed clusters last, so that nothing is taken away before what replaces it is there.
func (h *Hub) next(st *stream) (*response, *frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var r *response
	switch {
	case !st.known || st.ended:
		return nil, nil
	case st.delta:
		r = h.nextDelta(st)
	default:
		r = h.nextSotW(st)
	}
	if r == nil {
		return nil, nil
	}
	t := &st.types[r.kind]
	r.at = h.now()
	t.nonce, t.answer = r.nonce, false
	t.window = append(t.window, r)
	h.metrics.count(r)
	h.signal()
	f := r.frame
	r.frame = nil // It is in the hands of the sender, and the window need not keep it.
	return r, f
}

// roomIn reports whether the window of a kind lets another response out. A stall is counted when it begins.
func (h *Hub) roomIn(t *subscription) bool {
	if len(t.window) < window {
		t.stalled = false
		return true
	}
	if !t.stalled {
		t.stalled = true
		h.metrics.stalls.Inc()
	}
	return false
}

// nextDelta gives the next delta response.
func (h *Hub) nextDelta(st *stream) *response {
	for k := range kinds {
		t := &st.types[k]
		if (t.dirty > 0 || t.answer) && h.roomIn(t) {
			items := h.takeDirty(t)
			if len(items) > 0 || t.answer && len(t.removals) == 0 {
				return h.deltaResponse(st, k, items)
			}
		}
	}
	for _, k := range removalOrder {
		if r := h.removalsOf(st, k); r != nil {
			return r
		}
	}
	return nil
}

// removalsOf tells a delta stream of the resources of a kind that are gone.
func (h *Hub) removalsOf(st *stream, k kind) *response {
	t := &st.types[k]
	if len(t.removals) == 0 || !h.roomIn(t) {
		return nil
	}
	var items []item
	for _, s := range t.removals {
		if !s.gone && h.target(s) == nil {
			items = append(items, h.take(s))
		}
	}
	t.removals = nil
	if len(items) == 0 && !t.answer {
		return nil
	}
	return h.deltaResponse(st, k, items)
}

// takeDirty takes marked subs off the queue, up to the size of a response. Those that are gone are set aside.
func (h *Hub) takeDirty(t *subscription) (items []item) {
	size, n := 0, 0
	for ; n < len(t.queue) && size < maxResponse; n++ {
		s := t.queue[n]
		if s.gone || !s.dirty {
			continue
		}
		current := h.target(s)
		switch {
		case s.e.id.kind.vanishes() && current == nil:
			h.clean(s)
			if (s.told || s.force) && (s.e.current != nil || s.sent != nil || h.deniable(s)) {
				t.removals = append(t.removals, s)
			}
		case !h.due(s):
			h.clean(s)
			h.settleChange(s.cause, false)
			s.cause = nil
			h.rest(s)
		default:
			if size > 0 && size+current.size() > maxResponse {
				t.queue = slices.Delete(t.queue, 0, n)
				return items
			}
			size += current.size()
			items = append(items, h.take(s))
		}
	}
	t.queue = slices.Delete(t.queue, 0, n)
	if len(t.queue) == 0 && cap(t.queue) > keptSubs {
		t.queue = nil
	}
	return items
}

// deniable reports whether a client can be told that a resource, which this replica never knew, is not there. What the
// client holds from another replica it keeps while the service has slices that name no port: that one knew better.
func (h *Hub) deniable(s *sub) bool {
	return !h.store.blind(s.e.name) && !(s.unknown && h.store.portless(s.e.name, s.e.id.view.Scope))
}

// target gives what a client should have of a sub. A wildcard means merged clusters only.
func (h *Hub) target(s *sub) *resource {
	if k := s.e.id.kind; !s.named && k.vanishes() && (k != clusters || !h.isMerged(s.e)) {
		return nil
	}
	return s.e.current
}

// isMerged reports whether a resource is a merged service port, which wildcards mean.
func (h *Hub) isMerged(e *entry) bool {
	_, merged := h.catalog[e.name.service()][e.id.name]
	return merged
}

// due reports whether a marked sub has something to send: content that the client was not sent last and did not reject,
// or any content when it asked again.
func (h *Hub) due(s *sub) bool {
	current := h.target(s)
	switch {
	case current == nil:
		return false
	case s.force:
		return true
	default:
		return !sameResource(current, s.sent) && !sameResource(current, s.rejected)
	}
}

// latest gives what the client holds once it has taken all that is on its way, nil when that is nothing.
func (s *sub) latest() *resource {
	switch n := len(s.flight); {
	case s.sent == nil: // It was told that there is nothing, if anything.
		return nil
	case n > 0:
		return s.flight[n-1]
	default:
		return s.acked
	}
}

// take makes the item of a sub and takes its mark away. What follows it is sent again.
func (h *Hub) take(s *sub) item {
	it := item{s, h.target(s), s.cause}
	renewed := s.force || !sameResource(s.latest(), it.resource)
	h.clean(s)
	s.cause, s.force, s.told = nil, false, true
	s.sent = it.resource
	s.flight = append(s.flight, it.resource)
	s.e.hold(it.resource)
	if k, has := s.e.id.kind.follower(); has && it.resource != nil && renewed {
		if a := h.find(s.st, k, s.e.id.name); a != nil {
			a.force = true
			h.mark(a, nil)
		}
	}
	return it
}

// deltaResponse makes a response of items.
func (h *Hub) deltaResponse(st *stream, k kind, items []item) *response {
	r := st.response(k, items)
	f := &frame{}
	var tail []byte
	for _, it := range items {
		if it.resource == nil {
			tail = appendText(tail, 6, it.sub.e.id.name)
			h.dropWild(it.sub)
			continue
		}
		f.add(it.resource.delta)
		f.add(it.resource.body)
	}
	tail = appendText(tail, 1, strconv.FormatUint(h.store.applied, 10))
	f.add(appendText(appendText(tail, 4, k.typeURL()), 5, r.nonce))
	r.frame = f
	return r
}

// dropWild forgets a removed cluster that only a wildcard asked for.
func (h *Hub) dropWild(s *sub) {
	if !s.named && !s.gone {
		h.unsubscribe(s)
	}
}

// nextSotW gives the next state-of-the-world response.
func (h *Hub) nextSotW(st *stream) *response {
	for k := range kinds {
		t := &st.types[k]
		var r *response
		switch {
		case k.whole() && (t.stale || t.answer) && h.roomIn(t):
			r = h.wholeResponse(st, t, k)
		case !k.whole() && t.dirty > 0 && h.roomIn(t):
			if items := h.takeDirty(t); len(items) > 0 {
				r = sotwResponse(st, k, items)
			}
			t.removals = nil // SotW has no word for a route that is gone.
		}
		if r != nil {
			return r
		}
	}
	return nil
}

// wholeResponse gives all resources of a kind that a stream wants, nil when none of them has changed.
func (h *Hub) wholeResponse(st *stream, t *subscription, k kind) *response {
	due := t.answer
	for _, s := range t.subs {
		if s.dirty && (h.due(s) || h.target(s) == nil && s.told && s.sent != nil) {
			due = true
		}
	}
	t.stale, t.queue = false, t.queue[:0]
	if !due {
		for _, s := range t.subs {
			h.clean(s)
		}
		return nil
	}
	h.reviveAll(st, k)
	var items []item
	for _, s := range t.subs {
		if h.target(s) != nil {
			items = append(items, h.take(s))
			continue
		}
		h.clean(s)
		s.sent = nil
		h.dropWild(s)
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.sub.e.id.name, b.sub.e.id.name) })
	return sotwResponse(st, k, items)
}

func sotwResponse(st *stream, k kind, items []item) *response {
	r := st.response(k, items)
	f := &frame{}
	for _, it := range items {
		f.add(it.resource.sotw)
		f.add(it.resource.body)
	}
	tail := appendText(nil, 1, joinedVersion(items))
	f.add(appendText(appendText(tail, 4, k.typeURL()), 5, r.nonce))
	r.frame = f
	return r
}

// joinedVersion is the version of a SotW response: that of its only resource, or a hash over those of all.
func joinedVersion(items []item) string {
	if len(items) == 1 {
		return items[0].resource.version
	}
	sum := sha256.New()
	for _, it := range items {
		sum.Write([]byte(it.resource.version))
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
}

// response begins a response with the next nonce.
func (st *stream) response(k kind, items []item) *response {
	st.nonce++
	r := &response{kind: k, nonce: strconv.FormatUint(st.nonce, 10), items: items}
	for _, it := range items {
		if it.cause != nil && !slices.Contains(r.causes, it.cause) {
			r.causes = append(r.causes, it.cause)
		}
	}
	return r
}
