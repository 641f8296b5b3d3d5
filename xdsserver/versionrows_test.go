package xdsserver

import (
	"fmt"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// versionRows are the faults about what a client is taken to hold.
var versionRows = map[int]row{
	77: {what: "an update is lost since another replica counts alike", run: rowReplicasCountAlike},
	78: {what: "a rejected response is sent again and again", run: rowRejectedIsParked},
	81: {what: "who comes back has what was there before", run: rowReconnect},
	85: {what: "an assignment is empty for a moment", run: rowNeverEmptyBetween},
}

func rowReplicasCountAlike(t *testing.T, open func(*bench) *subscriber) {
	one, two := serving(t, cartAt(7, "10.0.0.1")), serving(t, cartAt(7, "10.0.0.2")) // the same position, other content
	p := open(one)
	p.want("eds", cart)
	held := p.take("eds")
	q := open(two)
	q.names["eds"] = []string{cart}
	if q.delta != nil {
		q.subscribe("eds", held.vers, cart)
	} else {
		q.askAs("eds", held.version, "", nil, cart)
	}
	q.takes(cart, atTwo)
}

func rowRejectedIsParked(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	for i := range 3 {
		b.put(cartAt(uint64(8+i), fmt.Sprintf("10.0.2.%d", i)))
		p.refuse("eds")
		p.quiet()
	}
	b.put(cartAt(20, "10.0.2.2")) // What was rejected, at another version of the slice.
	p.quiet()
	b.put(cartAt(21, "10.0.0.2"))
	p.takes(cart, atTwo)
	b.put(cartAt(22, "10.0.2.2")) // What was rejected, after something else.
	p.quiet()
	b.put(cartAt(23, "10.0.0.1"))
	p.takes(cart, atOne)
	if n := counter(t, b.server.metrics.nacks.WithLabelValues("eds")); n != 3 {
		t.Errorf("%v rejections were counted, want 3", n)
	}
}

func rowReconnect(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("eds", cart, api)
	held := p.take("eds")
	p.cancel()
	b.put(cartAt(9, "10.0.0.2"))
	q := open(b)
	q.names["eds"] = []string{cart, api}
	if q.delta != nil {
		q.subscribe("eds", held.vers, cart, api)
		q.takes(cart, atTwo)
		q.quiet()
		return
	}
	q.askAs("eds", held.version, "", nil, cart, api)
	if g := q.take("eds"); g.res[cart] != atTwo || g.res[api] != atNine {
		t.Fatalf("got %v", g.res)
	}
}

func rowNeverEmptyBetween(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, stateOf(sliceOf("prod", "a", 7, ep("10.0.0.1 rs- a"))))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	steps := []endpoint.State{ // A pod is replaced; its successor is in another slice, ready before the old one is gone.
		stateOf(sliceOf("prod", "a", 7, ep("10.0.0.1 rs- a")), sliceOf("prod", "b", 8, ep("10.0.0.2 --- b"))),
		stateOf(sliceOf("prod", "a", 9, ep("10.0.0.1 -st a")), sliceOf("prod", "b", 8, ep("10.0.0.2 --- b"))),
		stateOf(sliceOf("prod", "a", 9, ep("10.0.0.1 -st a")), sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
		stateOf(sliceOf("prod", "a", 11), sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
		stateOf(sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
	}
	for _, st := range steps {
		b.put(st)
	}
	for {
		g := p.take("eds")
		if g.res[cart] == "" {
			t.Fatal("the assignment is empty while a pod is usable")
		}
		if g.res[cart] == atTwo {
			break
		}
	}
	p.quiet()
}
