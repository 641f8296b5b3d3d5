package xdsserver

import (
	"fmt"
	"testing"
)

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
