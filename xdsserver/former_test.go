package xdsserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// cartWithoutPods gives the State of cart as Kubernetes has it while there are no pods: one slice, no port.
func cartWithoutPods(rv uint64) endpoint.State {
	return stateOf(withPorts(sliceOf("prod", "cart-x1", rv)))
}

// gone receives what a client is told when a cluster went: nothing is left.
func (p *subscriber) gone(name string) {
	p.t.Helper()
	g := p.take("cds")
	if slices.Contains(g.names, name) || p.delta != nil && !slices.Equal(g.removed, []string{name}) {
		p.t.Fatalf("got %v, removed %v, want %s removed", g.names, g.removed, name)
	}
}

func TestAServiceWithoutPodsKeepsItsClusters(t *testing.T) {
	row{run: func(t *testing.T, open func(*bench) *subscriber) {
		b := serving(t, grpcCart(7, true, "10.0.0.1"), otherAt("api", 7, "10.0.0.9"))
		p := open(b)
		p.want("cds")
		p.take("cds")
		p.want("eds", cart)
		p.takes(cart, atOne)
		b.put(cartWithoutPods(8))
		p.takes(cart, "")
		p.quiet()
		late := open(b)
		late.want("cds")
		if g := late.take("cds"); g.res[cart] != http2Cluster {
			t.Fatalf("a client that came meanwhile: got %v, want %s", g.res, cart)
		}
		named := open(b)
		names := []string{"cart.shop.prod:8080", "cart.shop.prod:http", "cart.shop:8080"}
		named.want("cds", names...)
		if g := named.take("cds"); !slices.Equal(slices.Sorted(slices.Values(g.names)), names) {
			t.Fatalf("by name: got %v, want %v", g.names, names)
		}
		b.put(grpcCart(9, true, "10.0.0.1"))
		p.takes(cart, atOne)
		p.quiet()
		b.put(cartWithoutPods(10))
		p.takes(cart, "")
		b.put(emptyState("prod", "shop", "cart", 20)) // The service itself is gone.
		p.gone(cart)
		p.quiet()
	}}.test(t)
}

func TestAPortThatOthersReplacedIsGone(t *testing.T) {
	row{run: func(t *testing.T, open func(*bench) *subscriber) {
		b := serving(t, cartAt(7, "10.0.0.1"))
		b.put(cartWithoutPods(8))
		p := open(b)
		p.want("cds")
		p.take("cds")
		b.put(stateOf(withPorts(sliceOf("prod", "cart-x1", 9, ep("10.0.0.1 rs- a")), endpoint.Port{Name: "web", Number: 8080})))
		if g := p.take("cds"); !slices.Equal(g.names, []string{"cart.shop:web"}) {
			t.Fatalf("got %v, want the new port", g.names)
		}
		if p.delta != nil {
			p.gone(cart)
		}
	}}.test(t)
}

func TestAReplicaThatNeverKnewThePortsTakesNoneAway(t *testing.T) {
	row{delta: true, run: func(t *testing.T, open func(*bench) *subscriber) {
		p := open(serving(t, cartAt(7, "10.0.0.1")))
		p.want("cds")
		held := p.take("cds").vers
		b := serving(t, cartWithoutPods(8)) // It started when the pods were gone.
		q, r := open(b), open(b)
		for _, c := range []*subscriber{q, r} {
			c.subscribe("cds", held)
			if g := c.take("cds"); len(g.names)+len(g.removed) > 0 {
				t.Fatalf("got %v, removed %v, want nothing", g.names, g.removed)
			}
		}
		r.subscribe("cds", nil, "cart.shop:web") // of this one the client holds nothing
		r.gone("cart.shop:web")
		r.cancel()
		b.put(cartAt(9, "10.0.0.1"))
		if g := q.take("cds"); !slices.Equal(g.names, []string{cart}) {
			t.Fatalf("got %v, want %s", g.names, cart)
		}
		b = serving(t, cartWithoutPods(8))
		q = open(b)
		q.subscribe("cds", held)
		q.take("cds")
		b.put(emptyState("prod", "shop", "cart", 20))
		q.gone(cart)
		q.quiet()
	}}.test(t)
}

func TestFormerPortsAreThoseOfTheNewestSliceFirst(t *testing.T) {
	http := func(n uint16) endpoint.Port { return endpoint.Port{Name: "http", Number: n} }
	before := stateOf(withPorts(sliceOf("prod", "a", 7), http(80), endpoint.Port{Name: "web", Number: 1}), withPorts(sliceOf("prod", "b", 8), http(81)))
	after, none := cartWithoutPods(9), emptyState("prod", "shop", "cart", 10)
	f := Former{}
	f.see(&none, &before)
	f.see(&before, &after)
	want := Former{before.Key: {http(81), http(80), {Name: "web", Number: 1}}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("after all pods went (-want +got):\n%s", diff)
	}
	f.see(&after, &after)
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("after another change without pods (-want +got):\n%s", diff)
	}
	f.see(&after, &before)
	if len(f) > 0 {
		t.Errorf("got %v while slices name ports", f)
	}
	f.see(&before, &after)
	f.see(&after, &none)
	if len(f) > 0 {
		t.Errorf("got %v of a service without slices", f)
	}
}
