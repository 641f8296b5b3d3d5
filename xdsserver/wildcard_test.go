package xdsserver

import (
	"slices"
	"testing"
)

func TestTheFirstWildcardOfClustersIsAnsweredEvenIfNothingDiffers(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	held := c.ack(c.recv()).vers
	d := b.deltaClient()
	d.subscribe("cds", held, allNames)
	if g := d.ack(d.recv()); g.kind != "cds" || len(g.names)+len(g.removed) > 0 {
		t.Fatalf("got %+v, want an empty response", g)
	}
	d.fence()
	empty := serving(t)
	e := empty.deltaClient()
	e.subscribe("cds", nil)
	if g := e.ack(e.recv()); g.kind != "cds" || len(g.names)+len(g.removed) > 0 {
		t.Fatalf("got %+v, want an empty response", g)
	}
}

func TestAWildcardAndNamesLiveBesideEachOther(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("cds", nil, allNames, "cart.shop.prod:8080")
	if g := c.ack(c.recv()); !slices.Equal(slices.Sorted(slices.Values(g.names)), []string{"cart.shop.prod:8080", cart}) {
		t.Fatalf("got %v, want the merged cluster and the pinned one", g.names)
	}
	c.subscribe("cds", nil, cart)
	c.ack(c.recv())
	// Not named any more, but the wildcard wants it: it is sent again.
	c.unsubscribe("cds", cart)
	if g := c.ack(c.recv()); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %+v, want the cluster again", g)
	}
	b.put(otherAt("api", 8, "10.0.0.9"))
	if g := c.ack(c.recv()); !slices.Equal(g.names, []string{"api.shop:http"}) {
		t.Fatalf("got %+v, want the new cluster", g)
	}
	c.unsubscribe("cds", allNames)
	c.fence()
	b.put(otherAt("web", 9, "10.0.0.9"))
	c.fence()
	b.put(emptyState("prod", "shop", "cart", 20))
	if g := c.ack(c.recv()); !slices.Equal(g.removed, []string{"cart.shop.prod:8080"}) || len(g.names) > 0 {
		t.Fatalf("got %+v, want the pinned cluster removed", g)
	}
	c.fence()
}

func TestSotWClustersByNameAndByWildcard(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.sotwClient()
	c.ask("cds", cart, "nobody.shop")
	c.want("cds", map[string]string{cart: "cluster"}, cart, "nobody.shop")
	c.ask("cds", cart, allNames)
	c.want("cds", map[string]string{cart: "cluster", api: "cluster"}, cart, allNames)
	c.ask("cds", "cart.shop.prod:8080", allNames)
	c.want("cds", map[string]string{cart: "cluster", api: "cluster", "cart.shop.prod:8080": "cluster"}, "cart.shop.prod:8080", allNames)
	c.ask("cds", api)
	c.want("cds", map[string]string{api: "cluster"}, api)
	b.put(otherAt("web", 10, "10.0.0.7"))
	c.fence()
	// Names have been given: no names are nothing now.
	c.ask("cds")
	c.want("cds", map[string]string{})
	c.fence()
	// A name that was unknown is sent when it comes to be.
	d := b.sotwClient()
	d.ask("cds", "late.shop:http")
	d.want("cds", map[string]string{}, "late.shop:http")
	b.put(otherAt("late", 11, "10.0.0.6"))
	d.want("cds", map[string]string{"late.shop:http": "cluster"}, "late.shop:http")
}
