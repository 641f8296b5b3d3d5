package xdsserver

import (
	"math/bits"
	"slices"
)

// A subscription whose client has acknowledged what there is needs no memory of its own: it is one bit of its entry, by
// the number of its stream. It becomes a sub again when there is something to say. So a stream with 10,000 names that
// rests costs 10,000 bits.

// keptSubs is how many subs, or places in the queue, a stream at rest may have memory for.
const keptSubs = 64

// numbers is a set of small numbers.
type numbers []uint64

func (b numbers) has(n uint32) bool { return int(n/64) < len(b) && b[n/64]&(1<<(n%64)) != 0 }

func (b *numbers) add(n uint32) {
	for int(n/64) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b numbers) remove(n uint32) {
	if int(n/64) < len(b) {
		b[n/64] &^= 1 << (n % 64)
	}
}

func (b numbers) empty() bool {
	return !slices.ContainsFunc(b, func(w uint64) bool { return w != 0 })
}

// each gives the numbers, lowest first. Those that are removed meanwhile may come.
func (b numbers) each(yield func(uint32) bool) {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			if !yield(uint32(64*i + bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}

// groupID is what the entries that one stream may have of a kind have in common.
type groupID struct {
	kind kind
	view View
}

// group gives the entries that a stream may have of a kind.
func (h *Hub) group(st *stream, k kind) []*entry {
	id := h.idOf(st, k, "")
	return h.groups[groupID{id.kind, id.view}]
}

// join puts an entry into its group.
func (h *Hub) join(e *entry) {
	id := groupID{e.id.kind, e.id.view}
	e.place = len(h.groups[id])
	h.groups[id] = append(h.groups[id], e)
}

// leave takes an entry out of its group.
func (h *Hub) leave(e *entry) {
	id := groupID{e.id.kind, e.id.view}
	g := h.groups[id]
	last := len(g) - 1
	g[e.place] = g[last]
	g[e.place].place = e.place
	g[last] = nil
	if h.groups[id] = g[:last]; last == 0 {
		delete(h.groups, id)
	}
}

// number gives a stream the lowest number that is free.
func (h *Hub) number(st *stream) {
	i := slices.Index(h.numbered, nil)
	if i < 0 {
		i = len(h.numbered)
		h.numbered = append(h.numbered, nil)
	}
	st.place, h.numbered[i] = uint32(i), st //nolint:gosec // far fewer streams than that
}

// find gives the sub of a name, nil if the stream does not subscribe to it.
func (h *Hub) find(st *stream, k kind, name string) *sub {
	t := &st.types[k]
	if s := t.subs[name]; s != nil {
		return s
	}
	if e := h.settledOn(st, k, name); e != nil {
		return h.revive(st, e)
	}
	return nil
}

// has reports whether a stream subscribes to a name.
func (h *Hub) has(st *stream, k kind, name string) bool {
	return st.types[k].subs[name] != nil || h.settledOn(st, k, name) != nil
}

// settledOn gives the entry of a name if the stream has it as settled.
func (h *Hub) settledOn(st *stream, k kind, name string) *entry {
	if st.types[k].settled == 0 {
		return nil
	}
	e := h.entries[h.idOf(st, k, name)]
	if e == nil || !e.settled.has(st.place) {
		return nil
	}
	return e
}

// eachSettled gives the entries that a stream has as settled. Those may be revived or dropped meanwhile.
func (h *Hub) eachSettled(st *stream, k kind, do func(*entry)) {
	if st.types[k].settled == 0 {
		return
	}
	g := h.group(st, k)
	for i := len(g) - 1; i >= 0; i-- { // An entry that is dropped makes place for the last one.
		if g[i].settled.has(st.place) {
			do(g[i])
		}
	}
}

// rest makes a sub that has nothing to say a bit.
func (h *Hub) rest(s *sub) {
	switch {
	case s.gone || s.dirty || s.force || s.unknown || !s.told || len(s.flight) > 0 || s.rejected != nil || s.cause != nil:
		return
	case s.acked == nil || s.acked != s.e.current || s.sent != s.acked:
		return
	}
	e, t := s.e, &s.st.types[s.e.id.kind]
	e.drop(s)
	t.delete(e.id.name)
	e.release(s.acked)
	e.settled.add(s.st.place)
	if !s.named {
		e.loose.add(s.st.place)
	}
	t.settled++
	s.gone = true // Where it is still queued, it is passed over.
}

// revive makes a sub of a bit.
func (h *Hub) revive(st *stream, e *entry) *sub {
	s := &sub{st: st, e: e, named: !e.loose.has(st.place), told: true, acked: e.current, sent: e.current}
	e.hold(e.current)
	h.unrest(st, e)
	e.add(s)
	st.types[e.id.kind].put(s)
	return s
}

// put and delete keep the subs that are not settled. A map does not shrink: one that held many and is empty is dropped.
func (t *subscription) put(s *sub) {
	t.subs[s.e.id.name] = s
	t.most = max(t.most, len(t.subs))
}

func (t *subscription) delete(name string) {
	delete(t.subs, name)
	if len(t.subs) == 0 && t.most > keptSubs {
		t.subs, t.most = map[string]*sub{}, 0
	}
}

// reviveAll makes subs of all that a stream has as settled.
func (h *Hub) reviveAll(st *stream, k kind) {
	h.eachSettled(st, k, func(e *entry) { h.revive(st, e) })
}

// unrest clears the bit.
func (h *Hub) unrest(st *stream, e *entry) {
	e.settled.remove(st.place)
	e.loose.remove(st.place)
	st.types[e.id.kind].settled--
}

// leaveSettled ends a settled subscription.
func (h *Hub) leaveSettled(st *stream, e *entry) {
	h.unrest(st, e)
	h.discard(e)
}

// settledNames lists the names that a stream has as settled and asked for itself.
func (h *Hub) settledNames(st *stream, k kind) (names []string) {
	h.eachSettled(st, k, func(e *entry) {
		if !e.loose.has(st.place) {
			names = append(names, e.id.name)
		}
	})
	return names
}
