package xdsserver

import (
	"slices"
	"sync"
	"time"
)

// The limits of what a client is sent.
const (
	window      = 4       // unacknowledged responses of one type on one stream
	maxResponse = 1 << 20 // bytes of resources, but for a SotW response that must be whole
)

// Hub knows every stream, what it subscribes to and what it holds, and keeps every resource that is subscribed to
// encoded. mu guards everything in it; the methods in lower case expect it to be held, but for request, next, sent and
// end, which are called by the goroutines of a stream.
type Hub struct {
	mu       *sync.Mutex // shared with Store
	store    *Store
	metrics  *metrics
	now      func() time.Time
	maxViews int
	lostFor  time.Duration // how long an ended stream is remembered

	entries   map[entryID]*entry
	groups    map[groupID][]*entry
	numbered  []*stream // by number; nil where none is open
	byService map[serviceID]map[*entry]struct{}
	catalog   map[serviceID]map[string]clusterSpec // the merged ports of each service, by resource name
	streams   map[*stream]struct{}
	views     map[View]int // streams of each
	orphans   []*orphan
	opened    uint64 // streams, for their ids
	changed   chan struct{}
	watched   bool // somebody waits for changed

	own    string  // this replica, among others
	lister *lister // nil: there is no list of proxies
	roll   *roll   // nil likewise
	peers  []Peer  // the other replicas that are registered
}

func newHub(mu *sync.Mutex, store *Store, m *metrics, maxViews int, lostFor time.Duration) *Hub {
	h := &Hub{
		mu: mu, store: store, metrics: m, now: time.Now, maxViews: maxViews, lostFor: lostFor,
		entries: map[entryID]*entry{}, groups: map[groupID][]*entry{}, byService: map[serviceID]map[*entry]struct{}{},
		catalog: map[serviceID]map[string]clusterSpec{}, streams: map[*stream]struct{}{}, views: map[View]int{},
		changed: make(chan struct{}),
	}
	store.touched = h.refresh
	store.inUse = h.inUse
	return h
}

// signal tells who waits that something has changed.
func (h *Hub) signal() {
	if h.watched {
		close(h.changed)
		h.changed, h.watched = make(chan struct{}), false
	}
}

// refresh makes every resource of the touched services anew and marks those that differ for their subscribers.
func (h *Hub) refresh(touched []touch) {
	now := h.now()
	for _, t := range touched {
		if t.id == (serviceID{}) {
			h.answerOpen()
			continue
		}
		var cause *change
		if t.live {
			cause = &change{received: now, observed: t.observed}
		}
		h.refreshCatalog(t.id, cause)
		for e := range h.byService[t.id] {
			h.refreshEntry(e, cause)
		}
	}
	h.signal()
}

// refreshEntry makes one resource anew.
func (h *Hub) refreshEntry(e *entry, cause *change) {
	r := h.make(e)
	if sameResource(r, e.current) {
		for _, s := range e.subs {
			if r == nil && s.unknown { // It may be time to say that what the client holds is not there.
				h.mark(s, nil)
			}
		}
		return
	}
	h.setCurrent(e, r)
	for _, s := range e.subs {
		h.mark(s, cause)
	}
}

// answerOpen looks again at what could not be answered because too little was known.
func (h *Hub) answerOpen() {
	for _, e := range h.entries {
		if e.current == nil {
			h.refreshEntry(e, nil)
			for _, s := range e.subs {
				h.mark(s, nil)
			}
		}
	}
}

// refreshCatalog brings the merged ports of a service up to date, and subscribes wildcards to new ones.
func (h *Hub) refreshCatalog(id serviceID, cause *change) {
	svc, _ := h.store.service(id)
	before, after := h.catalog[id], map[string]clusterSpec{}
	for port, http2 := range mergedPorts(svc.States, svc.Former) {
		name := Name{Service: id.service, Namespace: id.namespace, Port: port}.String()
		after[name] = clusterSpec{name, http2}
	}
	if len(after) == 0 {
		delete(h.catalog, id)
	} else {
		h.catalog[id] = after
	}
	for name := range after {
		_, known := before[name]
		for st := range h.streams {
			// A port that is not new may be new to a client that does not see all clusters.
			t := &st.types[clusters]
			if t.wildcard && (!known || st.scope.access != nil && !h.has(st, clusters, name)) && h.lists(st, name) {
				h.mark(h.subscribe(st, clusters, name), cause)
			}
		}
	}
}

// lists reports whether a cluster of the catalog is there for a stream.
func (h *Hub) lists(st *stream, name string) bool {
	if st.scope.access == nil {
		return true
	}
	n, err := ParseName(name)
	if err != nil {
		return false
	}
	svc, _ := h.store.service(n.service())
	_, there := specOf(svc.within(st.scope), n)
	return there
}

// inUse lists the Views and names, beyond the merged ports, that streams are served of a service.
func (h *Hub) inUse(id serviceID) (uses []use) {
	for e := range h.byService[id] {
		if e.id.kind == assignments && e.formed && !h.isMerged(e) {
			uses = append(uses, use{e.id.view, e.name})
		}
	}
	return uses
}

// view gives the View that a client shares: its own, or, where there are too many, one without node, then one without
// zone.
func (h *Hub) view(v View) View {
	full := func(v View) bool { return h.views[v] == 0 && len(h.views) >= h.maxViews }
	if full(v) {
		v.Node = ""
	}
	if full(v) {
		v.Zone = ""
	}
	return v
}

// open registers a stream.
func (h *Hub) open(o streamOptions) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened++
	st := newStream(o, h.opened, h.now())
	h.streams[st] = struct{}{}
	h.number(st)
	h.metrics.streams.WithLabelValues(o.service, o.protocol()).Inc()
	h.signal()
	return st
}

// end removes a stream, and remembers what its client may hold.
func (h *Hub) end(st *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st.ended = true
	h.remember(st)
	h.delist(st)
	for k := range kinds {
		for _, s := range st.types[k].subs {
			h.unsubscribe(s)
		}
		h.eachSettled(st, k, func(e *entry) { h.leaveSettled(st, e) })
		for _, r := range st.types[k].window {
			for _, it := range r.items {
				h.settleChange(it.cause, false)
			}
			r.items = nil
		}
	}
	delete(h.streams, st)
	h.numbered[st.place] = nil
	if st.known {
		if h.views[st.view]--; h.views[st.view] == 0 {
			delete(h.views, st.view)
		}
		h.metrics.views.Set(float64(len(h.views)))
	}
	h.metrics.streams.WithLabelValues(st.service, st.protocol()).Dec()
	h.signal()
}

// identify takes the node of a stream's first request.
func (h *Hub) identify(st *stream, node string, v View) {
	if st.known {
		return
	}
	v.Scope = st.scope
	st.known, st.node, st.view = true, node, h.view(v)
	h.views[st.view]++
	h.metrics.views.Set(float64(len(h.views)))
}

// sortedNames lists the catalog.
func (h *Hub) sortedNames() []string {
	var names []string
	for _, specs := range h.catalog {
		for name := range specs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
