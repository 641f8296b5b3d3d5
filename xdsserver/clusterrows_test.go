package xdsserver

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// clusterRows are the faults about clusters and the assignments that go with them.
var clusterRows = map[int]row{
	39: {what: "requests go to pods that are not ready, since the cluster panics", run: rowUnusableAreNotChosen},
	57: {what: "a service without endpoints has no answer", run: rowEmptyIsAnswered},
	58: {what: "a changed cluster waits for its assignment for ever", run: rowAssignmentFollowsCluster},
	59: {what: "hosts are gone after an edit of their cluster", run: rowHostsStayThroughClusterEdits},
	60: {what: "all clusters warm at once, their assignments late", run: rowManyClustersChange},
	61: {what: "a cluster after its assignment waits for ever", run: rowClusterAfterAssignment},
	69: {what: "a cluster that comes back has no endpoints", run: rowClusterComesBack},
	83: {what: "a new cluster without endpoints warms for minutes", run: rowNewClusterWithoutEndpoints},
	89: {what: "an assignment is there before its cluster", run: rowOrder},
}

// grpcCart gives the State of cart as HTTP/2 or not, so that its cluster changes.
func grpcCart(rv uint64, http2 bool, addrs ...string) endpoint.State {
	port := endpoint.Port{Name: "http", Number: 8080}
	if http2 {
		port.AppProtocol = "grpc"
	}
	st := cartAt(rv, addrs...)
	return stateOf(withPorts(st.Slices[0], port))
}

func rowEmptyIsAnswered(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, emptyState("prod", "shop", "cart", 7)))
	p.want("eds", cart)
	p.takes(cart, "")
	p.want("eds", "never.shop:http")
	p.takes("never.shop:http", "")
	p.quiet()
}

func rowAssignmentFollowsCluster(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	b.put(grpcCart(8, true, "10.0.0.1"))
	p.take("cds")
	p.takes(cart, atOne) // unasked, though it is as it was
	p.want("eds", cart)
	if p.delta != nil {
		p.takes(cart, atOne)
	}
	p.quiet()
}

func rowHostsStayThroughClusterEdits(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	for i := range 6 {
		b.put(grpcCart(uint64(8+i), i%2 == 0, "10.0.0.1"))
		for kinds := 0; kinds != 3; {
			g := p.recv()
			if p.delta != nil {
				p.ack(g)
			} else {
				p.accept(g, p.names[g.kind]...)
			}
			switch text, has := g.res[cart]; {
			case len(g.removed) > 0 || !has || text == "":
				t.Fatalf("edit %d: got %s %v, removed %v", i, g.kind, g.res, g.removed)
			case g.kind == "cds":
				kinds |= 1
			default:
				kinds |= 2
			}
		}
	}
	// Nor when the client is behind with its acknowledgements.
	p.quiet()
	for i, http2 := range []bool{true, false, true} {
		b.put(grpcCart(uint64(20+i), http2, "10.0.0.1"))
		for _, want := range []string{"cds", "eds"} {
			if g := p.recv(); g.kind != want || g.res[cart] == "" {
				t.Fatalf("edit %d: got %s %v, want %s", i, g.kind, g.res, want)
			}
		}
	}
}

func rowManyClustersChange(t *testing.T, open func(*bench) *subscriber) {
	const n = 50
	state := func(i int, rv uint64, http2 bool) endpoint.State {
		return stateOf(ofService(grpcCart(rv, http2, "10.0.0.1").Slices[0], "shop", fmt.Sprintf("svc-%02d", i)))
	}
	var states []endpoint.State
	var names []string
	for i := range n {
		states = append(states, state(i, 7, false))
		names = append(names, fmt.Sprintf("svc-%02d.shop:http", i))
	}
	b := serving(t, states...)
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", names...)
	p.take("eds")
	for i := range n {
		b.put(state(i, 8, true))
	}
	// Every cluster that was sent anew has its assignment after it.
	due, changed := map[string]bool{}, map[string]bool{}
	for len(changed) < n || len(due) > 0 {
		g := p.recv()
		if p.delta != nil {
			p.ack(g)
		} else {
			p.accept(g, p.names[g.kind]...)
		}
		for _, name := range g.names {
			switch {
			case g.kind == "cds" && g.res[name] == http2Cluster && !changed[name]:
				due[name], changed[name] = true, true
			case g.kind == "eds" && g.res[name] != atOne:
				t.Fatalf("%s has %q", name, g.res[name])
			case g.kind == "eds":
				delete(due, name)
			}
		}
	}
}

func rowClusterAfterAssignment(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.want("cds")
	p.take("cds")
	p.takes(cart, atOne)
	p.quiet()
}

func rowClusterComesBack(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api)
	p.take("eds")
	b.put(emptyState("prod", "shop", "cart", 20))
	if p.delta != nil {
		p.takes(cart, "")
		p.take("cds")
	} else { // A SotW response is all that there is, and so cannot come last.
		p.take("cds")
		p.takes(cart, "")
	}
	p.drop("eds", cart)
	p.quiet()
	b.put(cartAt(21, "10.0.0.1"))
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.quiet()
}

func rowNewClusterWithoutEndpoints(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t)
	p := open(b)
	p.want("cds")
	p.take("cds")
	b.put(stateOf(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 --- a"))))
	if g := p.take("cds"); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %v, want the cluster", g.names)
	}
	p.want("eds", cart)
	p.takes(cart, "")
	b.put(grpcCart(9, true))
	p.take("cds")
	p.takes(cart, "")
	b.put(grpcCart(10, true, "10.0.0.1"))
	p.takes(cart, atOne)
	p.quiet()
}

func rowOrder(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api, "web.shop:http")
	p.take("eds")
	b.server.store.mu.Lock() // All three are there before anything is sent.
	var err error
	for i, st := range []endpoint.State{cartAt(20, "10.0.0.2"), emptyState("prod", "shop", "api", 21), otherAt("web", 22, "10.0.0.3")} {
		if e := b.server.store.notice(stateNoticeAt(uint64(100+i), st)); e != nil {
			err = e
		}
	}
	b.server.store.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	first := p.take("cds")
	if !slices.Contains(first.names, "web.shop:http") || len(first.removed) > 0 {
		t.Fatalf("got %v, removed %v first, want the new cluster", first.names, first.removed)
	}
	seen := map[string]string{}
	for len(seen) < 3 {
		maps.Copy(seen, p.take("eds").res)
	}
	want := map[string]string{cart: atTwo, api: "", "web.shop:http": "p0 / w1 10.0.0.3:8080"}
	if !maps.Equal(seen, want) {
		t.Fatalf("got %v, want %v", seen, want)
	}
	if p.delta != nil {
		if g := p.take("cds"); !slices.Equal(g.removed, []string{api}) {
			t.Fatalf("got %+v, want the old cluster removed last", g)
		}
	}
}

func rowUnusableAreNotChosen(t *testing.T, open func(*bench) *subscriber) {
	mostly := sliceOf("prod", "cart-x1", 7, ep("10.0.0.1 rs- a"), ep("10.0.0.2 --- b"), ep("10.0.0.3 --- c"), ep("10.0.0.4 --t d"))
	b := serving(t, stateOf(mostly))
	p := open(b)
	p.want("cds")
	p.take("cds") // Every cluster that comes is looked at: none may panic.
	p.want("eds", cart)
	p.takes(cart, atOne)
	// What is sent though it takes nothing new is marked, for the threshold to be of use.
	b.put(stateOf(withLabels(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 rs- a"), ep("10.0.0.2 -st b"), ep("10.0.0.3 -st c")), "drain", "")))
	p.takes(cart, "p0 / w1 10.0.0.1:8080 10.0.0.2:8080(draining) 10.0.0.3:8080(draining)")
	p.quiet()
}
