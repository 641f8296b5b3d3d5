package xdsserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
)

const cart = "cart.shop:http"

func cartAt(rv uint64, addrs ...string) endpoint.State {
	var eps []endpoint.Endpoint
	for _, a := range addrs {
		eps = append(eps, ep(a+" rs- "+a))
	}
	return stateOf(sliceOf("prod", "cart-x1", rv, eps...))
}

// otherAt gives the State of another service of the same cluster.
func otherAt(service string, rv uint64, addrs ...string) endpoint.State {
	st := cartAt(rv, addrs...)
	return stateOf(ofService(st.Slices[0], "shop", service))
}

func TestADeltaClientIsServedAndSeesChanges(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	g := c.ack(c.recv())
	if diff := cmp.Diff([]string{cart}, g.names); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	b.put(stateOf(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 -st a"), ep("10.0.0.2 rs- b"))))
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})
	b.put(stateOf(sliceOf("prod", "cart-x1", 9, ep("10.0.0.2 -st b"))))
	b.put(stateOf(sliceOf("prod", "cart-x1", 10)))
	for g := c.ack(c.recv()); g.res[cart] != ""; g = c.ack(c.recv()) {
		if g.res[cart] != "p0 / w1 10.0.0.2:8080" {
			t.Fatalf("got %q while the last one leaves", g.res[cart])
		}
	}
	c.fence()
}

func TestASubscriptionIsAnsweredAgainWhenItIsRepeated(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	for range 3 {
		c.subscribe("eds", nil, cart)
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
		c.subscribe("cds", nil, cart)
		if g := c.ack(c.recv()); !slices.Equal(g.names, []string{cart}) || g.kind != "cds" {
			t.Fatalf("got %+v, want the cluster again", g)
		}
		// The assignment follows its cluster.
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	}
	c.fence()
}

func TestUnknownAssignmentsAreEmptyAndUnknownClustersAreRemoved(t *testing.T) {
	b := serving(t, emptyState("prod", "shop", "empty", 7))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart, "empty.shop:http", "no name", "cart.shop.moon:http")
	c.expect(map[string]string{cart: "", "empty.shop:http": "", "no name": "", "cart.shop.moon:http": ""})
	c.subscribe("cds", nil, cart)
	if g := c.ack(c.recv()); len(g.names) > 0 || !slices.Equal(g.removed, []string{cart}) {
		t.Fatalf("got %+v, want the cluster removed", g)
	}
	b.put(cartAt(8, "10.0.0.1"))
	if g := c.ack(c.recv()); g.kind != "cds" || !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %+v, want the new cluster first", g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	c.fence()
}

func TestARejectedVersionIsParkedUntilItsContentChanges(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.nack(c.recv())
	c.fence()
	b.put(cartAt(8, "10.0.0.1")) // The same content at a newer version.
	c.fence()
	b.put(cartAt(9, "10.0.0.2"))
	c.nack(c.recv())
	c.fence()
	b.put(cartAt(10, "10.0.0.3"))
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.3:8080"})
	c.fence()
}

func TestAReconnectedClientIsSentOnlyWhatDiffers(t *testing.T) {
	one := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"), otherAt("old", 9, "10.0.0.5"))
	two := serving(t, otherAt("api", 8, "10.0.0.9"), cartAt(17, "10.0.0.1"), otherAt("new", 9, "10.0.0.7"))
	names := []string{cart, "api.shop:http"}
	c := one.deltaClient()
	c.subscribe("cds", nil)
	held := c.ack(c.recv()).vers
	c.subscribe("eds", nil, names...)
	heldEDS := c.ack(c.recv()).vers
	c.cancel()

	d := two.deltaClient()
	d.subscribe("cds", held)
	g := d.ack(d.recv())
	if !slices.Equal(g.names, []string{"new.shop:http"}) || len(g.removed) > 0 {
		t.Fatalf("got %+v, want the new cluster", g)
	}
	if g = d.ack(d.recv()); len(g.names) > 0 || !slices.Equal(g.removed, []string{"old.shop:http"}) {
		t.Fatalf("got %+v, want the old cluster removed", g)
	}
	heldEDS["api.shop:http"] = "another"
	d.subscribe("eds", heldEDS, names...)
	d.expect(map[string]string{"api.shop:http": "p0 / w1 10.0.0.9:8080"})
	d.fence()
	two.put(cartAt(20, "10.0.0.2"))
	d.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})
}

func TestAnAssignmentFollowsItsClusterUnasked(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	c.subscribe("cds", nil)
	if g := c.ack(c.recv()); g.kind != "cds" {
		t.Fatalf("got %+v, want the cluster", g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	// The cluster changes and its endpoints do not.
	b.put(stateOf(withPorts(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 rs- 10.0.0.1")), endpoint.Port{Name: "http", Number: 8080, AppProtocol: "grpc"})))
	if g := c.ack(c.recv()); g.kind != "cds" {
		t.Fatalf("got %+v, want the cluster", g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	c.fence()
}

func TestAnUnsubscribedNameIsNotSent(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart, "api.shop:http")
	c.ack(c.recv())
	c.unsubscribe("eds", cart, "never.shop")
	c.fence()
	b.put(cartAt(9, "10.0.0.2"))
	b.put(otherAt("api", 10, "10.0.0.8"))
	c.expect(map[string]string{"api.shop:http": "p0 / w1 10.0.0.8:8080"})
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})
}

func TestARemovedClusterIsTheLastToGo(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	c.ack(c.recv())
	c.subscribe("eds", nil, cart, "api.shop:http")
	c.ack(c.recv())
	b.server.store.mu.Lock() // Both changes are there before anything is sent.
	err1 := b.server.store.notice(stateNoticeAt(100, emptyState("prod", "shop", "cart", 20)))
	err2 := b.server.store.notice(stateNoticeAt(101, otherAt("api", 21, "10.0.0.8")))
	b.server.store.mu.Unlock()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	c.expect(map[string]string{cart: "", "api.shop:http": "p0 / w1 10.0.0.8:8080"})
	if g := c.ack(c.recv()); !slices.Equal(g.removed, []string{cart}) {
		t.Fatalf("got %+v, want the cluster removed", g)
	}
	b.put(cartAt(30, "10.0.0.1"))
	if g := c.ack(c.recv()); g.kind != "cds" || !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %+v, want the cluster back", g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
}

func TestAChangeOfOneServiceIsOneResourceToItsSubscribers(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	c, d := b.deltaClient(), b.deltaClient()
	c.subscribe("eds", nil, cart, "api.shop:http")
	c.ack(c.recv())
	d.subscribe("eds", nil, "api.shop:http")
	d.ack(d.recv())
	b.put(cartAt(9, "10.0.0.2"))
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})
	b.put(cartAt(10, "10.0.0.2")) // Nothing that shows.
	b.put(stateOf(sliceOf("prod", "cart-x1", 11, ep("10.0.0.2 rs- 10.0.0.2"), ep("10.0.0.3 --- n"))))
	c.fence()
	d.fence()
}

func TestATypeThatIsNotServedHarmsNothing(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", nil)
	c.subscribe("nonsense", nil, "x")
	c.subscribe("eds", nil, cart)
	c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	d := b.sotwClient()
	d.ask("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret")
	d.ask("eds", cart)
	if g := d.recv(); g.res[cart] != "p0 / w1 10.0.0.1:8080" {
		t.Errorf("got %+v", g)
	}
	if n := counter(t, b.server.metrics.refused); n != 3 {
		t.Errorf("%v refusals were counted, want 3", n)
	}
}
