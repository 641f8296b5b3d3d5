package xdsserver

import (
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// both gives a service whose pods have an address of each family, in a slice each.
func both(rv uint64, v4, v6 []endpoint.Endpoint) endpoint.State {
	return stateOf(sliceOf("prod", "v4", rv, v4...), sliceOf("prod", "v6", rv+1, v6...))
}

func TestTheFamiliesAreDecidedOneByOne(t *testing.T) {
	a4, b4 := hinted(ep("10.0.0.1 rs- a"), "z1", ""), hinted(ep("10.0.0.2 rs- b"), "z2", "")
	a6, b6 := hinted(ep("fd00::1 rs- a"), "z1", ""), hinted(ep("fd00::2 rs- b"), "z2", "")
	node6 := hinted(ep("fd00::2 rs- b"), "z2", "n2")
	list := func(e ...endpoint.Endpoint) []endpoint.Endpoint { return e }
	for _, tt := range []struct {
		name   string
		view   View
		v4, v6 []endpoint.Endpoint
		want   string
	}{
		{"hints of both", View{Zone: "z1"}, list(a4, b4), list(a6, b6), "p0 / w1 10.0.0.1:8080+[fd00::1]:8080"},
		{"one family has an endpoint without hints", View{Zone: "z1"}, list(a4, b4), list(a6, ep("fd00::2 rs- b")), "p0 / w2 10.0.0.1:8080+[fd00::1]:8080 [fd00::2]:8080"},
		{"node hints in one family, zone hints in the other", View{Zone: "z1", Node: "n2"}, list(a4, b4), list(hinted(ep("fd00::1 rs- a"), "z1", "n1"), node6),
			"p0 / w2 10.0.0.1:8080 [fd00::2]:8080"},
		{"hints of one family do not reach a client of the other", View{Zone: "z1", Family: IPv6}, list(a4, b4), list(ep("fd00::1 rs- a"), ep("fd00::2 rs- b")),
			"p0 / w2 [fd00::1]:8080 [fd00::2]:8080"},
		{"the fallback of one family", View{}, list(ep("10.0.0.1 -st a")), list(ep("fd00::1 -st a"), ep("fd00::2 rs- b")), "p0 / w2 10.0.0.1:8080 [fd00::2]:8080"},
		{"the second address has not come yet", View{}, list(ep("10.0.0.1 rs- a")), nil, "p0 / w1 10.0.0.1:8080"},
		{"the second address is out of its slice already", View{}, list(ep("10.0.0.1 rs- a"), ep("10.0.0.2 rs- b")), list(ep("fd00::2 rs- b")),
			"p0 / w2 10.0.0.1:8080 10.0.0.2:8080+[fd00::2]:8080"},
		{"endpoints of no pod are not put together", View{}, list(ep("10.0.0.1 rs-")), list(ep("fd00::1 rs-")), "p0 / w2 10.0.0.1:8080 [fd00::1]:8080"},
		{"nor are those in two zones", View{}, list(ep("10.0.0.1 rs-@z1 a")), list(ep("fd00::1 rs-@z2 a")), "p0 /z1 w1 10.0.0.1:8080; p0 /z2 w1 [fd00::1]:8080"},
		{"a client of IPv4", View{Family: IPv4}, list(a4, b4), list(a6, b6), "p0 / w2 10.0.0.1:8080 10.0.0.2:8080"},
		{"a client of IPv6", View{Family: IPv6}, list(a4, b4), list(a6, b6), "p0 / w2 [fd00::1]:8080 [fd00::2]:8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(Assign(Service{States: []endpoint.State{both(1, tt.v4, tt.v6)}}, tt.view, mustName(t, cart))); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestOnePodOfTwoClustersIsTwoEndpoints(t *testing.T) {
	west := sliceOf("west", "v6", 1, ep("fd00::1 rs- a"))
	svc := Service{States: []endpoint.State{stateOf(sliceOf("prod", "v4", 1, ep("10.0.0.1 rs- a"))), stateOf(west)}}
	if got, want := text(Assign(svc, View{}, mustName(t, cart))), "p0 / w2 10.0.0.1:8080 [fd00::1]:8080"; got != want {
		t.Errorf("got %q, want %q: uids of two clusters mean nothing to each other", got, want)
	}
}

func TestAPodIsDrainedOnlyWithItsAdditionalAddress(t *testing.T) {
	list := func(e ...string) (out []endpoint.Endpoint) {
		for _, text := range e {
			out = append(out, ep(text))
		}
		return out
	}
	b := serving(t, both(1, list("10.0.0.1 rs- p1", "10.0.0.2 rs- p2"), list("fd00::1 rs- p1", "fd00::2 rs- p2")))
	c := holding(b, gateName)
	w := ask(b, DrainRequest{Namespace: "shop", Pod: "p1", UID: "p1", IP: "10.0.0.1"}) // It does not say its other address.
	w.stands("it is ready")
	b.put(both(8, list("10.0.0.1 -st p1", "10.0.0.2 rs- p2"), list("fd00::1 rs- p1", "fd00::2 rs- p2")))
	g := c.ack(c.recv())
	if text := g.res[gateName]; strings.Contains(text, "10.0.0.1") || !strings.Contains(text, "fd00::1") {
		t.Fatalf("got %s, want the IPv6 address alone", text)
	}
	w.stands("its IPv6 address is still used")
	b.put(both(10, list("10.0.0.1 -st p1", "10.0.0.2 rs- p2"), list("fd00::1 -st p1", "fd00::2 rs- p2")))
	g = c.recv()
	w.stands("the removal of its IPv6 address is not acknowledged")
	c.ack(g)
	w.drained()

	w = ask(b, DrainRequest{Namespace: "shop", Pod: "p2", UID: "p2", IP: "10.0.0.2"})
	b.put(both(12, list("10.0.0.2 rs- p2", "10.0.0.3 rs- p3"), list("fd00::2 rs- p2", "fd00::3 rs- p3")))
	c.ack(c.recv())
	// Both addresses of p2 go in one step: the one that was additional is held until that is acknowledged.
	b.put(both(14, list("10.0.0.2 -st p2", "10.0.0.3 rs- p3"), list("fd00::2 -st p2", "fd00::3 rs- p3")))
	g = c.recv()
	w.stands("the client holds it as an additional address")
	c.ack(g)
	w.drained()
}
