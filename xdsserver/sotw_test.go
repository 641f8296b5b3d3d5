package xdsserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const api = "api.shop:http"

// want fails unless a SotW response has these resources, and acknowledges it with the given names.
func (c *client) want(kind string, want map[string]string, names ...string) got {
	c.t.Helper()
	g := c.accept(c.recv(), names...)
	if diff := cmp.Diff(want, g.res); diff != "" || g.kind != kind {
		c.t.Fatalf("response %s of %s, want %s (-want +got):\n%s", g.nonce, g.kind, kind, diff)
	}
	return g
}

func TestASotWClientIsServedAndSeesChanges(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.sotwClient()
	c.ask("cds")
	c.want("cds", map[string]string{cart: "cluster", api: "cluster"})
	c.ask("eds", cart, api)
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.1:8080", api: "p0 / w1 10.0.0.9:8080"}, cart, api)
	// A change of one is sent alone.
	b.put(cartAt(9, "10.0.0.2"))
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.2:8080"}, cart, api)
	// Of clusters all are sent, since what is missing is deleted; the assignment of the new one is not asked for yet.
	b.put(otherAt("web", 10, "10.0.0.7"))
	c.want("cds", map[string]string{cart: "cluster", api: "cluster", "web.shop:http": "cluster"})
	b.put(emptyState("prod", "shop", "web", 20))
	c.want("cds", map[string]string{cart: "cluster", api: "cluster"})
	c.fence(cart, api)
}

func TestASotWClientIsAnsweredNameByName(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.sotwClient()
	// A statically configured cluster asks first, and only for itself.
	c.ask("eds", cart)
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.1:8080"}, cart)
	c.ask("cds")
	c.want("cds", map[string]string{cart: "cluster", api: "cluster"})
	// The assignment follows its cluster.
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.1:8080"}, cart)
	c.ask("eds", cart, api, "nobody.shop")
	c.want("eds", map[string]string{api: "p0 / w1 10.0.0.9:8080", "nobody.shop": ""}, cart, api, "nobody.shop")
	// A name that leaves and comes back is sent again.
	c.ask("eds", api)
	c.ask("eds", api, cart)
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.1:8080"}, api, cart)
	// No names are nothing.
	c.ask("eds")
	c.fence()
	b.put(cartAt(9, "10.0.0.2"))
	c.fence()
}

func TestASotWRejectionIsNotAnsweredUntilTheContentChanges(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.sotwClient()
	c.ask("cds")
	c.reject(c.recv())
	c.ask("eds", cart)
	for range 3 {
		c.reject(c.recv(), cart)
		c.fence(cart)
		c.ask("eds", cart)
		c.fence(cart)
		c.ask("eds")
		c.ask("eds", cart) // It asks anew, so it is answered anew.
	}
	c.reject(c.recv(), cart)
	b.put(cartAt(9, "10.0.0.2"))
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.2:8080"}, cart)
	b.put(otherAt("api", 10, "10.0.0.9"))
	c.want("cds", map[string]string{cart: "cluster", api: "cluster"})
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.2:8080"}, cart)
	settled(b, 1)
	if n := counter(t, b.server.metrics.nacks.WithLabelValues("eds")); n != 4 {
		t.Errorf("%v rejections were counted, want 4", n)
	}
}

func TestARequestWithAStaleNonceHasNoAnswer(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.sotwClient()
	c.ask("eds", cart)
	first := c.accept(c.recv(), cart)
	b.put(cartAt(9, "10.0.0.2"))
	second := c.recv()
	c.askAs("eds", first.version, first.nonce, nil, cart, api) // Sent before the second response was read.
	c.askAs("eds", first.version, "nonsense", nil, cart, api)
	c.ask("cds", cart) // A fence of another type: what was asked before it has no answer.
	if g := c.recv(); g.kind != "cds" {
		t.Fatalf("a request with a stale nonce was answered: %+v", g)
	}
	c.recv() // The assignment follows its cluster.
	c.accept(second, cart, api)
	c.accept(got{kind: "eds", version: second.version, nonce: c.nonces["eds"]}, cart, api)
	if g := c.recv(); g.res[api] == "" {
		t.Fatalf("got %+v, want the name that was added", g)
	}
}

func TestAReconnectedSotWClientIsSentAllItWants(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.sotwClient()
	c.ask("eds", cart, api)
	held := c.accept(c.recv(), cart, api)
	c.cancel()
	d := b.sotwClient()
	d.askAs("eds", held.version, "", nil, cart, api)
	if g := d.recv(); g.version != held.version || len(g.names) != 2 {
		t.Fatalf("got %+v, want version %s of both", g, held.version)
	}
}

func TestResponsesNameTheSameVersionOnEveryReplica(t *testing.T) {
	one := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	two := serving(t, otherAt("api", 18, "10.0.0.9"), cartAt(27, "10.0.0.1"))
	var versions []string
	for _, b := range []*bench{one, two} {
		c := b.sotwClient()
		c.ask("eds", cart, api)
		c.ask("cds", cart, api)
		versions = append(versions, c.recv().version, c.recv().version)
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) != 2 {
		t.Errorf("got versions %v, want two", versions)
	}
}
