package xdsserver

import (
	"slices"
	"time"
)

// entryID names a resource as one View sees it. Clusters are the same for all that
// may see them: their View has a Scope only.
type entryID struct {
	kind kind
	name string
	view View
}

// entry is a resource that somebody subscribes to.
type entry struct {
	id      entryID
	name    Name
	formed  bool      // name means something
	current *resource // nil: a cluster that is not there, or an assignment of which too little is known to answer
	subs    []*sub    // those that have something to say, or to hear
	settled numbers   // of the streams whose clients hold current, acknowledged, and have nothing else to say
	loose   numbers   // those of them that only a wildcard subscribes
	place   int       // in its group
	alive   []held    // the versions that some client has, or is on its way to have
}

// held counts who refers to one version.
type held struct {
	resource *resource
	n        int
}

// sub is a resource on a stream, while it is not settled.
type sub struct {
	st       *stream
	e        *entry
	at       int // place in e.subs
	named    bool
	gone     bool        // it was unsubscribed
	dirty    bool        // it is queued
	force    bool        // to be sent even if the client has it
	unknown  bool        // the client holds a version that this replica does not know
	told     bool        // it was sent something, or told that it holds something
	acked    *resource   // what the client acknowledged last
	sent     *resource   // what it was sent last
	flight   []*resource // what it was sent and has not answered
	rejected *resource   // what it rejected last: parked until the content changes
	cause    *change     // the oldest change that it has not been sent
}

// change is one change of one service on its way to its subscribers.
type change struct {
	received time.Time // when its State came
	observed time.Time // when a watcher saw it, zero when unknown
	waiting  int       // subscribers that have not acknowledged it
	reached  bool      // one has
}

// entry gives the resource of that name as a stream sees it, made at its first subscription.
func (h *Hub) entry(st *stream, k kind, name string) *entry {
	id := h.idOf(st, k, name)
	if e := h.entries[id]; e != nil {
		return e
	}
	e := &entry{id: id}
	parsed, err := ParseName(name)
	e.name, e.formed = parsed, err == nil
	h.entries[id] = e
	h.join(e)
	svc := e.name.service()
	if h.byService[svc] == nil {
		h.byService[svc] = map[*entry]struct{}{}
	}
	h.byService[svc][e] = struct{}{}
	h.setCurrent(e, h.make(e))
	switch known, hidden := h.isKnown(e); {
	case hidden:
		h.metrics.hiddenNames.Inc()
	case !known:
		h.metrics.unknownNames.Inc()
	}
	return e
}

// idOf gives the id of the resource of that name as a stream sees it.
func (h *Hub) idOf(st *stream, k kind, name string) entryID {
	id := entryID{kind: k, name: name}
	if k == assignments {
		id.view = st.view
	} else {
		id.view.Scope = st.view.Scope
	}
	return id
}

// isKnown reports whether a name resolves to a service that may be seen, and whether to one that is hidden.
func (h *Hub) isKnown(e *entry) (known, hidden bool) {
	svc, known := h.store.service(e.name.service())
	if !e.formed || !known {
		return false, false
	}
	seen := len(svc.within(e.id.view.Scope).States) > 0
	return seen || len(svc.States) == 0, !seen && len(svc.States) > 0
}

// make encodes a resource as it is now; nil when it cannot be answered or is not there.
func (h *Hub) make(e *entry) *resource {
	svc, _ := h.store.service(e.name.service())
	if e.id.kind.vanishes() {
		spec, there := specOf(svc.within(e.id.view.Scope), e.name)
		if !there || !e.formed {
			return nil
		}
		return encodeSpec(e.id.kind, spec)
	}
	a := Assignment{Name: e.id.name}
	if e.formed {
		a = Assign(svc, e.id.view, e.name)
	}
	if len(a.Localities) == 0 && e.current == nil && h.store.blind(e.name) {
		return nil
	}
	return h.share(e, encodeAssignment(a))
}

// encodeSpec makes a resource of a kind that depends on the spec of its cluster only.
func encodeSpec(k kind, spec clusterSpec) *resource {
	var r *resource
	var err error
	switch k {
	case listeners:
		r, err = encodeListener(spec.name)
	case routes:
		r, err = encodeRoute(spec.name)
	default:
		r, err = encodeCluster(spec)
	}
	if err != nil {
		panic("a " + k.String() + " resource made of constants does not encode: " + err.Error())
	}
	return r
}

// share gives the equal resource that another View has, so that it is kept once.
func (h *Hub) share(e *entry, r *resource) *resource {
	for other := range h.byService[e.name.service()] {
		if other.id.kind == e.id.kind && other.id.name == e.id.name && sameResource(other.current, r) {
			return other.current
		}
	}
	return r
}

func sameResource(a, b *resource) bool {
	return a == b || a != nil && b != nil && a.version == b.version
}

// setCurrent replaces the current version of a resource.
func (h *Hub) setCurrent(e *entry, r *resource) {
	for n := range e.settled.each { // They hold what was current.
		h.revive(h.numbered[n], e)
	}
	e.hold(r)
	e.release(e.current)
	if e.current != nil && e.current.fallback {
		h.metrics.fallback.Dec()
	}
	if r != nil && r.fallback {
		h.metrics.fallback.Inc()
	}
	e.current = r
}

// hold and release count who refers to a version.
func (e *entry) hold(r *resource) {
	if r == nil {
		return
	}
	for i := range e.alive {
		if e.alive[i].resource == r {
			e.alive[i].n++
			return
		}
	}
	e.alive = append(e.alive, held{r, 1})
}

func (e *entry) release(r *resource) {
	if r == nil {
		return
	}
	for i := range e.alive {
		if e.alive[i].resource != r {
			continue
		}
		if e.alive[i].n--; e.alive[i].n == 0 {
			e.alive = slices.Delete(e.alive, i, i+1)
		}
		return
	}
}

// subscribe gives the sub of a name, a new one if need be.
func (h *Hub) subscribe(st *stream, k kind, name string) *sub {
	t := &st.types[k]
	if s := h.find(st, k, name); s != nil {
		return s
	}
	e := h.entry(st, k, name)
	s := &sub{st: st, e: e}
	e.add(s)
	t.put(s)
	if _, ghost := t.ghosts[name]; ghost {
		t.inherit(s)
	}
	return s
}

// inherit gives a new sub what is still on its way to the client from an earlier one of the same name: the client will
// take it.
func (t *subscription) inherit(s *sub) {
	for _, r := range t.window {
		for i := range r.items {
			if it := &r.items[i]; it.sub.gone && it.sub.e.id.name == s.e.id.name {
				it.sub, s.told = s, true
				s.flight = append(s.flight, it.resource)
				s.e.hold(it.resource)
			}
		}
	}
	delete(t.ghosts, s.e.id.name)
}

// unsubscribe removes a sub; the resource goes with its last one.
func (h *Hub) unsubscribe(s *sub) {
	e, t := s.e, &s.st.types[s.e.id.kind]
	h.clean(s)
	s.gone = true
	if len(s.flight) > 0 {
		t.ghosts[e.id.name] = struct{}{}
	}
	e.drop(s)
	e.release(s.acked)
	for _, r := range s.flight {
		e.release(r)
	}
	if s.unknown {
		t.unknown--
	}
	h.settleChange(s.cause, false)
	s.cause = nil
	t.delete(e.id.name)
	h.discard(e)
}

// add and drop keep the subs of an entry that have something to say.
func (e *entry) add(s *sub) {
	s.at = len(e.subs)
	e.subs = append(e.subs, s)
}

func (e *entry) drop(s *sub) {
	last := len(e.subs) - 1
	e.subs[s.at] = e.subs[last]
	e.subs[s.at].at = s.at
	e.subs[last] = nil
	if e.subs = e.subs[:last]; last == 0 {
		e.subs = nil
	}
}

// discard removes an entry that nobody subscribes to.
func (h *Hub) discard(e *entry) {
	if len(e.subs) > 0 || !e.settled.empty() {
		return
	}
	h.setCurrent(e, nil)
	h.leave(e)
	delete(h.entries, e.id)
	svc := e.name.service()
	delete(h.byService[svc], e)
	if len(h.byService[svc]) == 0 {
		delete(h.byService, svc)
	}
}

// mark queues a sub to be sent; it stays where it is in the queue when it was queued before.
func (h *Hub) mark(s *sub, cause *change) {
	if cause != nil && s.cause == nil {
		s.cause = cause
		cause.waiting++
	}
	t := &s.st.types[s.e.id.kind]
	t.stale = true
	if !s.dirty {
		s.dirty = true
		t.dirty++
		t.queue = append(t.queue, s)
	}
	s.st.rouse()
}

// clean takes the mark of a sub away; its place in the queue means nothing then.
func (h *Hub) clean(s *sub) {
	if s.dirty {
		s.dirty = false
		s.st.types[s.e.id.kind].dirty--
	}
}

// settleChange counts one subscriber of a change as done.
func (h *Hub) settleChange(c *change, acked bool) {
	if c == nil {
		return
	}
	c.waiting--
	c.reached = c.reached || acked
	if c.waiting == 0 && c.reached && !c.observed.IsZero() {
		h.metrics.total.Observe(h.now().Sub(c.observed).Seconds())
	}
}
