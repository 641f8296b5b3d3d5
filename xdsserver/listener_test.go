package xdsserver

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"google.golang.org/grpc"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// cartGone gives the State of cart without its slice.
func cartGone(rv uint64) endpoint.State {
	return endpoint.State{Key: cartAt(rv).Key, Gone: []endpoint.Ref{{Name: "cart-x1", Version: endpoint.Version{Generation: 1, Resource: rv}}}}
}

func TestListenersAndRoutesAreValid(t *testing.T) {
	l, err := listenerOf(cart)
	must(t, err)
	for _, err := range []error{l.ValidateAll(), routeOf(cart).ValidateAll()} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestADeltaClientIsToldOfListenersAndRoutesThatComeAndGo(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	const pay = "pay.shop:http"
	c.subscribe("lds", nil, cart, pay)
	c.expect(map[string]string{cart: "listener"})
	if g := c.ack(c.recv()); g.kind != "lds" || !slices.Equal(g.removed, []string{pay}) {
		t.Fatalf("an unknown listener: got %+v, want it removed", g)
	}
	c.subscribe("rds", nil, cart)
	c.expect(map[string]string{cart: "route to " + cart})

	b.put(otherAt("pay", 8, "10.0.1.1"))
	c.expect(map[string]string{pay: "listener"})
	b.put(cartGone(9))
	for _, kind := range []string{"lds", "rds"} {
		if g := c.ack(c.recv()); g.kind != kind || !slices.Equal(g.removed, []string{cart}) {
			t.Fatalf("got %+v, want %s without %s", g, kind, cart)
		}
	}
	b.put(cartAt(10, "10.0.0.2"))
	c.expect(map[string]string{cart: "listener"})
	c.expect(map[string]string{cart: "route to " + cart})
	c.fence()
}

func TestASotWClientHasAllItsListenersInEveryResponse(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("pay", 7, "10.0.1.1"))
	c := b.sotwClient()
	const pay = "pay.shop:http"
	c.ask("lds", cart, pay, "nobody.shop")
	if g := c.accept(c.recv(), cart, pay, "nobody.shop"); !slices.Equal(g.names, []string{cart, pay}) {
		t.Fatalf("got %q, want both listeners", g.names)
	}
	c.ask("rds", cart, "nobody.shop")
	if g := c.accept(c.recv(), cart, "nobody.shop"); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %q, want one route", g.names)
	}
	b.put(cartGone(9))
	if g := c.accept(c.recv(), cart, pay, "nobody.shop"); g.kind != "lds" || !slices.Equal(g.names, []string{pay}) {
		t.Fatalf("got %+v, want the listener that is left", g)
	}
}

func TestAWildcardOfListenersIsAnsweredWithNone(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	d := b.deltaClient()
	d.subscribe("lds", nil)
	if g := d.ack(d.recv()); g.kind != "lds" || len(g.names)+len(g.removed) > 0 {
		t.Errorf("delta: got %+v, want an empty answer", g)
	}
	s := b.sotwClient()
	s.ask("lds")
	if g := s.accept(s.recv()); g.kind != "lds" || len(g.names) > 0 {
		t.Errorf("SotW: got %+v, want an empty answer", g)
	}
	b.put(otherAt("pay", 8, "10.0.1.1"))
	d.fence()
	s.fence()
}

func TestListenersAndRoutesHaveServicesOfTheirOwn(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	lds, rds := listenerservice.NewListenerDiscoveryServiceClient(b.conn), routeservice.NewRouteDiscoveryServiceClient(b.conn)
	type (
		delta = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
		sotw  = grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	)
	ld, err := lds.DeltaListeners(t.Context())
	must(t, err)
	rd, err := rds.DeltaRoutes(t.Context())
	must(t, err)
	for name, g := range map[string]delta{typeListener: ld, typeRoute: rd} {
		must(t, g.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{cart}}))
		if r, err := g.Recv(); err != nil || r.TypeUrl != name || len(r.Resources) != 1 {
			t.Errorf("delta %s: got %v, error %v", name, r, err)
		}
	}
	ls, err := lds.StreamListeners(t.Context())
	must(t, err)
	rs, err := rds.StreamRoutes(t.Context())
	must(t, err)
	for name, g := range map[string]sotw{typeListener: ls, typeRoute: rs} {
		must(t, g.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{cart}}))
		if r, err := g.Recv(); err != nil || r.TypeUrl != name || len(r.Resources) != 1 {
			t.Errorf("SotW %s: got %v, error %v", name, r, err)
		}
	}
}
