package xdsserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const cart = "cart.shop:http"

func TestADeltaClientIsServedAndSeesChanges(t *testing.T) {
	b := serving(t, stateOf(sliceOf("prod", "cart-x1", 7, ep("10.0.0.1 rs- a"))))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	g := c.ack(c.recv())
	if diff := cmp.Diff([]string{cart}, g.names); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	c.subscribe("eds", nil, cart)
	g = c.ack(c.recv())
	if want := "p0 / w1 10.0.0.1:8080"; g.res[cart] != want {
		t.Errorf("got %q, want %q", g.res[cart], want)
	}
	b.put(stateOf(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 -st a"), ep("10.0.0.2 rs- b"))))
	g = c.ack(c.recv())
	if want := "p0 / w1 10.0.0.2:8080"; g.res[cart] != want {
		t.Errorf("got %q, want %q", g.res[cart], want)
	}
}
