package xdsserver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

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
