package xdsserver

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// nameRows are the faults about which names a client is answered.
var nameRows = map[int]row{
	63: {what: "who asked too early never hears of it", run: rowUnknownComesLater},
	65: {what: "what went while the client was away stays", run: rowGoneWhileAway},
	66: {what: "an update of one service removes another", run: rowOthersUntouched},
	68: {what: "a name that is asked for again has no answer", run: rowAskedAgain},
	70: {what: "who asks for fewer names than there are has no answer", run: rowSubset},
	73: {what: "a subscription is overwritten by what was sent", run: rowSubscriptionSurvives},
	74: {what: "nothing is answered until all names are asked for", run: rowPartialAnswers},
	79: {what: "a service waits until all others are there", run: rowOthersAreNotWaitedFor},
}

func rowUnknownComesLater(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t)
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, "")
	p.want("cds", cart)
	if p.delta != nil {
		if g := p.take("cds"); !slices.Equal(g.removed, []string{cart}) {
			t.Fatalf("got %+v, want the cluster named as removed", g)
		}
	} else if g := p.take("cds"); len(g.names) > 0 {
		t.Fatalf("got %+v, want no cluster", g)
	}
	b.put(cartAt(8, "10.0.0.1"))
	if g := p.take("cds"); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %+v, want the cluster", g)
	}
	p.takes(cart, atOne)
	p.quiet()
}

func rowGoneWhileAway(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	held := p.take("cds")
	p.cancel()
	b.put(emptyState("prod", "shop", "api", 20))
	q := open(b)
	if q.delta == nil {
		q.askAs("cds", held.version, "", nil)
		if g := q.take("cds"); !slices.Equal(g.names, []string{cart}) {
			t.Fatalf("got %v, want %s alone", g.names, cart)
		}
		return
	}
	q.subscribe("cds", held.vers)
	if g := q.take("cds"); len(g.names) > 0 || !slices.Equal(g.removed, []string{api}) {
		t.Fatalf("got %+v, want %s removed", g, api)
	}
}

func rowOthersUntouched(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api)
	p.take("eds")
	b.put(cartAt(9, "10.0.0.2"))
	p.takes(cart, atTwo)
	b.put(otherAt("web", 10, "10.0.0.3"))
	want := []string{"web.shop:http"}
	if p.delta == nil {
		want = []string{api, cart, "web.shop:http"} // a name that is missing would be removed
	}
	if g := p.take("cds"); !slices.Equal(slices.Sorted(slices.Values(g.names)), want) || len(g.removed) > 0 {
		t.Fatalf("got %v, removed %v, want %v", g.names, g.removed, want)
	}
	p.quiet() // The assignments of clusters that are as they were do not follow.
}

func rowAskedAgain(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9")))
	p.want("eds", cart, api)
	p.take("eds")
	for range 3 {
		if p.delta == nil {
			p.drop("eds", cart) // A SotW client that names it without a break still has it.
		}
		p.want("eds", cart)
		p.takes(cart, atOne)
	}
	p.quiet()
}

func rowSubset(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	b.put(otherAt("api", 9, "10.0.0.8"))
	p.quiet()
	b.put(cartAt(10, "10.0.0.2"))
	p.takes(cart, atTwo)
	p.quiet()
}

func rowSubscriptionSurvives(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart, api)
	p.take("eds")
	for i := range 3 {
		at := fmt.Sprintf("10.0.1.%d", i)
		b.put(cartAt(uint64(10+2*i), at))
		p.takes(cart, "p0 / w1 "+at+":8080")
		b.put(otherAt("api", uint64(11+2*i), at))
		p.takes(api, "p0 / w1 "+at+":8080")
	}
}

func rowPartialAnswers(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9")))
	p.want("eds", api) // of a cluster that the client was configured with
	p.takes(api, atNine)
	p.want("cds")
	p.take("cds")
	p.takes(api, atNine)
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.quiet()
}

func rowOthersAreNotWaitedFor(t *testing.T, open func(*bench) *subscriber) {
	b := newBench(t, func(c *Config) { c.Expected, c.StartTimeout = []string{"edge"}, 50*time.Millisecond })
	b.bus.store(stateNotice(cartAt(7, "10.0.0.1")), false)
	b.start()
	b.dial()
	p := open(b)
	p.want("eds", api, cart) // Nothing is known of edge, and so nothing of api yet.
	p.takes(cart, atOne)
	b.put(cartAt(8, "10.0.0.2"))
	p.takes(cart, atTwo)
	b.put(otherAt("api", 9, "10.0.0.9"))
	p.takes(api, atNine)
	p.want("eds", "web.shop:http") // Nor of web, until edge is.
	b.put(cartAt(10, "10.0.0.1"))
	p.takes(cart, atOne)
	b.bus.store(b.bus.checkpointOf("edge", 1), true)
	p.takes("web.shop:http", "")
	p.quiet()
}
