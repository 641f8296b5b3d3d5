package xdsserver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// world is a hub with model clients, all in one goroutine: what a client holds is known, so what the hub says and sends
// can be compared with it.
type world struct {
	t     *testing.T
	r     endpointtest.Random
	hub   *Hub
	seq   uint64
	rv    uint64
	peers []*peerModel
	next  int // number of the next client
}

// peerModel is a client that takes responses when it likes.
type peerModel struct {
	st     *stream
	node   string
	asked  [kinds]bool
	nonce  [kinds]string // of the last response it has answered
	wants  [kinds]map[string]bool
	named  map[kind]digest // SotW: of the last request
	has    [kinds]map[string]*resource
	inbox  []parcel
	closed bool
	kept   map[string]bool // clusters whose removal it rejected last; all of them after a rejected whole response
}

// parcel is a response on its way.
type parcel struct {
	kind  kind
	nonce string
	items map[string]*resource // nil for a removal
}

func newWorld(t *testing.T, seed uint64) *world {
	m, err := newMetrics(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu := &sync.Mutex{}
	w := &world{t: t, r: endpointtest.NewRandom(seed), hub: newHub(mu, newStore(mu, nil, failoverAny), m, 10, time.Hour), rv: 10}
	w.tell(ledger.Notice{Kind: ledger.Opened})
	w.tell(ledger.Notice{Kind: ledger.Complete})
	for _, cluster := range []string{"edge", "prod"} {
		empty := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: w.rv}}
		w.tell(ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Checkpoint: empty})
	}
	return w
}

func (w *world) tell(n ledger.Notice) {
	w.t.Helper()
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if err := w.hub.store.notice(n); err != nil {
		w.t.Fatal(err)
	}
}

var worldServices = []string{"api", "cart", "web"}

// change publishes a random State of a random service.
func (w *world) change() {
	w.rv++
	w.seq++
	var eps []endpoint.Endpoint
	for i := range w.r.IntN(4) {
		eps = append(eps, ep(fmt.Sprintf("10.0.0.%d %s@z%d pod-%d", i, w.r.Conditions(), i%2, i)))
	}
	sl := withLabels(sliceOf(endpointtest.OneOf(w.r, "prod", "edge"), "a", w.rv, eps...), endpointtest.OneOf(w.r, "", "", "drain"), "")
	if w.r.UintN(8) == 0 {
		sl = withPorts(sl)
	}
	w.tell(stateNoticeAt(w.seq, stateOf(ofService(sl, "shop", endpointtest.OneOf(w.r, worldServices...)))))
}

// connect opens a client, sometimes one that comes back with what it held.
func (w *world) connect() {
	var old *peerModel
	for _, p := range w.peers {
		if p.closed && w.r.UintN(2) == 0 {
			old = p
		}
	}
	p := &peerModel{node: fmt.Sprint("envoy-", w.next), kept: map[string]bool{}, named: map[kind]digest{}}
	w.next++
	for k := range kinds {
		p.wants[k], p.has[k] = map[string]bool{}, map[string]*resource{}
	}
	if old != nil {
		p.node, p.has = old.node, old.has
		w.peers = slices.DeleteFunc(w.peers, func(o *peerModel) bool { return o == old })
	}
	p.st = w.hub.open(streamOptions{service: "ads", delta: old != nil && old.st.delta || old == nil && w.r.UintN(2) == 0, peer: "192.0.2.1:1"})
	w.peers = append(w.peers, p)
}

func (w *world) name() string {
	return endpointtest.OneOf(w.r, worldServices...) + endpointtest.OneOf(w.r, ".shop:http", ".shop.prod:http", ".shop:8080", ".nowhere")
}

// ask changes what a client wants, in the words of its protocol.
func (w *world) ask(p *peerModel) {
	k := kind(w.r.UintN(uint(kinds)))
	req := request{kind: k, node: nodeOf(p.node, "prod", "", "z1"), nonce: p.nonce[k]}
	first := !p.asked[k]
	p.asked[k] = true
	add, drop := w.name(), w.name()
	if k == clusters && w.r.UintN(2) == 0 {
		add = allNames
	}
	if add == drop {
		drop = ""
	}
	if first {
		drop = ""
		for name := range p.has[k] {
			p.wants[k][name] = true // It comes back for what it has.
			req.subscribe = append(req.subscribe, name)
		}
		if p.st.delta {
			req.initial = map[string]string{}
			for name, r := range p.has[k] {
				req.initial[name] = r.version
			}
		} else if len(p.has[k]) > 0 {
			req.version = "held"
		}
	}
	p.wants[k][add] = true
	req.subscribe = append(req.subscribe, add)
	if drop != "" && p.wants[k][drop] {
		delete(p.wants[k], drop)
		req.unsubscribe = []string{drop}
		if !(k == clusters && p.wants[k][allNames]) {
			delete(p.has[k], drop)
		}
	}
	if p.st.delta {
		req.nonce = ""
	} else {
		req.subscribe, req.unsubscribe = nil, nil
		p.name(&req)
	}
	w.hub.request(p.st, req)
}

// name says all that a SotW client wants; a list that is that of the request before is not decoded.
func (p *peerModel) name(req *request) {
	names := slices.Sorted(maps.Keys(p.wants[req.kind]))
	req.digest = digestOfNames(names)
	if last, asked := p.named[req.kind]; !asked || last != req.digest {
		req.names = names
	}
	p.named[req.kind] = req.digest
}

// take lets the hub send one response to a client.
func (w *world) take(p *peerModel) bool {
	r, _ := w.hub.next(p.st)
	if r == nil {
		return false
	}
	out := parcel{kind: r.kind, nonce: r.nonce, items: map[string]*resource{}}
	for _, it := range r.items {
		out.items[it.sub.e.id.name] = it.resource
	}
	p.inbox = append(p.inbox, out)
	for k := range kinds {
		if n := len(p.st.types[k].window); n > window {
			w.t.Fatalf("%d responses of %s are open", n, k)
		}
	}
	return true
}

// read lets a client take its oldest response, and accept or reject it.
func (w *world) read(p *peerModel, reject bool) {
	in := p.inbox[0]
	p.inbox = p.inbox[1:]
	p.nonce[in.kind] = in.nonce
	if reject {
		p.keep(in)
	} else {
		p.apply(in)
	}
	req := request{kind: in.kind, nonce: in.nonce, nack: reject}
	if !p.st.delta {
		p.name(&req)
	}
	w.hub.request(p.st, req)
}

// keep notes what a rejected response would have removed: it is not told again.
func (p *peerModel) keep(in parcel) {
	if in.kind != clusters {
		return
	}
	for name := range p.has[clusters] {
		if r, told := in.items[name]; r == nil && (told || !p.st.delta) {
			p.kept[name] = true
		}
	}
}

func (p *peerModel) apply(in parcel) {
	if in.kind == clusters && !p.st.delta {
		p.has[in.kind] = map[string]*resource{}
		clear(p.kept)
	}
	for name, r := range in.items {
		switch {
		case r == nil:
			delete(p.has[in.kind], name)
		case p.wants[in.kind][name] || in.kind == clusters && p.wants[in.kind][allNames]:
			p.has[in.kind][name] = r
		}
	}
}

// step does one random thing.
func (w *world) step() {
	if len(w.peers) == 0 || w.r.UintN(20) == 0 {
		w.connect()
	}
	p := endpointtest.OneOf(w.r, w.peers...)
	switch n := w.r.UintN(10); {
	case n < 3:
		w.change()
	case p.closed:
	case n < 5:
		w.ask(p)
	case n < 7:
		w.take(p)
	case n == 7 && w.r.UintN(4) == 0:
		w.hub.end(p.st)
		p.closed, p.inbox = true, nil
	case len(p.inbox) > 0:
		w.read(p, w.r.UintN(5) == 0)
	}
}

// checkHolders compares who may hold each address with who does.
func (w *world) checkHolders() {
	w.t.Helper()
	for i := range 4 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
		held := map[string]Holder{}
		for _, h := range w.hub.Holders([]netip.AddrPort{at}) {
			held[h.Stream] = h
		}
		lost := map[string]bool{}
		for _, o := range w.hub.Orphans([]netip.AddrPort{at}) {
			lost[o.Node] = true
		}
		for _, p := range w.peers {
			g := gripNone
			for _, r := range p.has[assignments] {
				g = max(g, gripOf(r, func(a netip.AddrPort) bool { return a == at }))
			}
			h, known := held[p.st.id]
			switch {
			case g == gripNone:
			case p.closed && !lost[p.node]:
				w.t.Fatalf("%s has ended and holds %s, and is not among the lost", p.node, at)
			case !p.closed && !known:
				w.t.Fatalf("%s holds %s and is not among the holders", p.node, at)
			case !p.closed && g == gripFull && h.Draining:
				w.t.Fatalf("%s holds %s and is said to hold it as draining", p.node, at)
			}
		}
	}
}

// checkCounts counts anew who refers to each version.
func (w *world) checkCounts() {
	w.t.Helper()
	for _, e := range w.hub.entries {
		n := map[*resource]int{}
		if e.current != nil {
			n[e.current]++
		}
		if len(e.subs) == 0 && e.settled.empty() {
			w.t.Fatalf("%s is kept without a subscriber", e.id.name)
		}
		for i, s := range e.subs {
			if s.at != i || s.gone || s.st.types[e.id.kind].subs[e.id.name] != s {
				w.t.Fatalf("%s: a sub is out of place", e.id.name)
			}
			for _, r := range append(slices.Clone(s.flight), s.acked) {
				if r != nil {
					n[r]++
				}
			}
		}
		for _, v := range e.alive {
			if n[v.resource] != v.n {
				w.t.Fatalf("%s: a version is counted %d times and referred to %d times", e.id.name, v.n, n[v.resource])
			}
			delete(n, v.resource)
		}
		if len(n) > 0 {
			w.t.Fatalf("%s: %d versions are not counted", e.id.name, len(n))
		}
	}
}

// checkSettled counts the settled subscriptions anew.
func (w *world) checkSettled() {
	w.t.Helper()
	n := map[*stream][kinds]int{}
	for _, e := range w.hub.entries {
		for place := range e.settled.each {
			st := w.hub.numbered[place]
			if st == nil || st.types[e.id.kind].subs[e.id.name] != nil || e.current == nil {
				w.t.Fatalf("%s: stream %d has it settled, and should not", e.id.name, place)
			}
			counts := n[st]
			counts[e.id.kind]++
			n[st] = counts
		}
	}
	for st := range w.hub.streams {
		for k := range kinds {
			if st.types[k].settled != n[st][k] {
				w.t.Fatalf("%d of %s are settled, %d are counted", n[st][k], k, st.types[k].settled)
			}
		}
	}
}

// checkRest fails if a sub of a client that has accepted everything takes memory and has nothing to say.
func (w *world) checkRest(p *peerModel) {
	w.t.Helper()
	for k := range kinds {
		for name, s := range p.st.types[k].subs {
			if s.e.current != nil && s.acked == s.e.current && s.rejected == nil {
				w.t.Fatalf("%s (delta %t) rests with %s of %s and has a sub of it", p.node, p.st.delta, name, k)
			}
		}
	}
}

// settle lets every open client take and accept everything, then compares what it has with what is.
func (w *world) settle() {
	w.t.Helper()
	for _, p := range w.peers {
		for !p.closed && (w.take(p) || len(p.inbox) > 0) {
			if len(p.inbox) > 0 {
				w.read(p, false)
			}
		}
	}
	for _, p := range w.peers {
		if p.closed {
			continue
		}
		w.checkRest(p)
		for name := range p.wants[assignments] {
			s := w.hub.find(p.st, assignments, name)
			if s == nil {
				w.t.Fatalf("%s wants %s and is not subscribed", p.node, name)
			}
			has := p.has[assignments][name]
			if !sameResource(has, s.e.current) && !sameResource(s.rejected, s.e.current) {
				w.t.Fatalf("%s (delta %t) lacks what %s is now", p.node, p.st.delta, name)
			}
			if s.e.current != nil && s.e.current.version != w.fresh(s).version {
				w.t.Fatalf("%s is not what its service gives", name)
			}
		}
		w.checkClusters(p)
	}
}

func (w *world) fresh(s *sub) *resource {
	svc, _ := w.hub.store.service(s.e.name.service())
	a := Assignment{Name: s.e.id.name}
	if s.e.formed {
		a = Assign(svc, s.e.id.view, s.e.name)
	}
	return encodeAssignment(a)
}

func (w *world) checkClusters(p *peerModel) {
	w.t.Helper()
	if !p.asked[clusters] {
		return // It has come back and not asked for clusters yet.
	}
	want := map[string]bool{}
	if p.wants[clusters][allNames] {
		for _, name := range w.hub.sortedNames() {
			want[name] = true
		}
	}
	for name := range p.wants[clusters] {
		if s := w.hub.find(p.st, clusters, name); s != nil && s.e.current != nil {
			want[name] = true
		}
	}
	for name := range want {
		if s := w.hub.find(p.st, clusters, name); p.has[clusters][name] == nil && (s == nil || s.rejected == nil) {
			w.t.Fatalf("%s (delta %t) lacks the cluster %s", p.node, p.st.delta, name)
		}
	}
	for name := range p.has[clusters] {
		if !want[name] && !p.kept[name] {
			w.t.Fatalf("%s (delta %t) has the cluster %s, which is gone", p.node, p.st.delta, name)
		}
	}
}

func TestRandomClientsEndUpWithWhatIsThere(t *testing.T) {
	for seed := range uint64(150) {
		w := newWorld(t, seed)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w.t = t
			for i := range 300 {
				w.step()
				w.checkHolders()
				if i%50 == 0 {
					w.checkCounts()
					w.checkSettled()
				}
			}
			w.settle()
			w.checkHolders()
			for _, p := range w.peers {
				if !p.closed {
					w.hub.end(p.st)
				}
			}
			if n := len(w.hub.entries) + len(w.hub.byService) + len(w.hub.streams) + len(w.hub.views) + len(w.hub.groups); n > 0 {
				t.Errorf("%d things are left behind", n)
			}
		})
		if !ok {
			t.Fatal(strings.Repeat("-", 20), "seed", seed)
		}
	}
}
