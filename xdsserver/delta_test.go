package xdsserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicecast/slicecast/internal/endpoint"
)

const cart = "cart.shop:http"

// cartAt gives the State of cart with one ready pod at an address.
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

func TestAFullWindowLeavesTheNewestStateForLater(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	var open []got
	open = append(open, c.recv())
	for i := range 10 {
		b.put(cartAt(uint64(10+i), fmt.Sprintf("10.0.1.%d", i)))
		if len(open) < window {
			open = append(open, c.recv())
		}
	}
	other := b.deltaClient()
	other.subscribe("eds", nil, cart)
	other.expect(map[string]string{cart: "p0 / w1 10.0.1.9:8080"})
	for _, g := range open {
		c.ack(g)
	}
	c.expect(map[string]string{cart: "p0 / w1 10.0.1.9:8080"})
	c.fence()
}

func TestLongAnswersAreCut(t *testing.T) {
	var states []endpoint.State
	var names []string
	for i := range 60 {
		st := bigService(1000).States[0]
		service := fmt.Sprintf("big-%02d", i)
		for j, sl := range st.Slices {
			st.Slices[j] = ofService(sl, "shop", service)
		}
		st.Key = st.Slices[0].Key
		states = append(states, st)
		names = append(names, service+".shop:http")
	}
	b := serving(t, states...)
	c := b.deltaClient()
	c.subscribe("eds", nil, names...)
	d := b.sotwClient()
	d.ask("eds", names...)
	for _, c := range []*client{c, d} {
		var seen []string
		responses := 0
		for len(seen) < len(names) {
			g := c.recv()
			if c.delta != nil {
				c.ack(g)
			} else {
				c.accept(g, names...)
			}
			if responses++; g.sizes > maxResponse {
				t.Errorf("%d bytes in one response", g.sizes)
			}
			seen = append(seen, g.names...)
		}
		if slices.Sort(seen); !slices.Equal(seen, names) || responses < 2 {
			t.Errorf("%d names in %d responses", len(seen), responses)
		}
	}
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

func TestClientsSeeWhatTheirPlaceShows(t *testing.T) {
	prod := stateOf(sliceOf("prod", "a", 7, hinted(ep("10.0.0.1 rs-@z1"), "z1", ""), hinted(ep("10.0.0.2 rs-@z2"), "z2", "")))
	edge := stateOf(sliceOf("edge", "b", 7, ep("10.1.0.1 rs-@z1")))
	b := newBench(t)
	b.bus.records["prod"] = recordOf("eu")
	b.bus.records["edge"] = recordOf("us")
	b.with(prod, edge)
	tests := []struct {
		cluster, region, zone string
		want                  string
	}{
		{"prod", "", "z1", "p0 eu/z1 w1 10.0.0.1:8080; p1 us/z1 w1 10.1.0.1:8080"},
		{"prod", "", "z2", "p0 eu/z2 w1 10.0.0.2:8080; p1 us/z1 w1 10.1.0.1:8080"},
		{"edge", "", "", "p0 us/z1 w1 10.1.0.1:8080; p1 eu/z1 w1 10.0.0.1:8080; p1 eu/z2 w1 10.0.0.2:8080"},
		{"", "", "", "p0 eu/z1 w1 10.0.0.1:8080; p0 eu/z2 w1 10.0.0.2:8080; p0 us/z1 w1 10.1.0.1:8080"},
	}
	for _, tt := range tests {
		c := b.deltaClient()
		c.node = nodeOf("envoy-"+tt.cluster+tt.zone, tt.cluster, tt.region, tt.zone)
		c.subscribe("eds", nil, cart)
		c.expect(map[string]string{cart: tt.want})
	}
	// A record may change: its region then shows.
	c := b.deltaClient()
	c.node = nodeOf("late", "prod", "", "z1")
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	b.putRecord("edge", recordOf("eu"))
	c.expect(map[string]string{cart: "p0 eu/z1 w1 10.0.0.1:8080; p1 eu/z1 w1 10.1.0.1:8080"})
}

func TestTooManyPlacesShareViews(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxViews = 2 }).with(cartAt(7, "10.0.0.1"))
	for i := range 5 {
		c := b.deltaClient()
		c.node = nodeOf(fmt.Sprint("envoy-", i), "prod", "", fmt.Sprint("z", i))
		c.node.Metadata.Fields[metadataNode] = structOf(map[string]string{"n": fmt.Sprint("node-", i)}).Fields["n"]
		c.subscribe("eds", nil, cart)
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	}
	b.server.hub.mu.Lock()
	defer b.server.hub.mu.Unlock()
	if n := len(b.server.hub.views); n != 3 {
		t.Errorf("%d views, want two of their own and one shared", n)
	}
}

func TestASilentClientIsEndedAndHoldsNobodyUp(t *testing.T) {
	b := newBench(t, func(c *Config) { c.SlowLimit = 200 * time.Millisecond }).with(cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.recv()
	if err := c.end(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v", err)
	}
	if n := counter(t, b.server.metrics.slow.WithLabelValues(slowAck)); n != 1 {
		t.Errorf("%v slow streams were counted, want 1", n)
	}
	d := b.deltaClient()
	d.subscribe("eds", nil, cart)
	d.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	d.fence()
}

func TestManyStreamsOpenAndCloseDuringPushes(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			b.put(cartAt(uint64(10+i), fmt.Sprintf("10.0.2.%d", i)))
		}
	}()
	for i := range 50 {
		c := b.deltaClient()
		c.subscribe("cds", nil)
		c.subscribe("eds", nil, cart)
		for g := c.ack(c.recv()); g.kind != "eds"; g = c.ack(c.recv()) {
		}
		if i%2 == 0 {
			c.cancel()
		}
	}
	<-done
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	if g := c.ack(c.recv()); !strings.Contains(g.res[cart], "10.0.2.199") {
		t.Errorf("got %q at the end", g.res[cart])
	}
}
