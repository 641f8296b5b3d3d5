package xdsserver

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

type world struct {
	t     *testing.T
	r     endpointtest.Random
	hub   *Hub
	seq   uint64
	rv    uint64
	peers []*peerModel
	next  int // number of the next client
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

func (p *peerModel) name(req *request) {
	names := slices.Sorted(maps.Keys(p.wants[req.kind]))
	req.digest = digestOfNames(names)
	if last, asked := p.named[req.kind]; !asked || last != req.digest {
		req.names = names
	}
	p.named[req.kind] = req.digest
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
