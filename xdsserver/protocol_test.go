package xdsserver

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// demands are what the protocol asks of a server and others were measured not to do, by the row of the table of those
// measurements.
var demands = map[int]row{
	1:  {what: "a repeated subscription is answered again", run: demandAnsweredAgain},
	2:  {what: "an unknown name is removed, an unknown assignment is empty", run: demandUnknown},
	3:  {what: "what is rejected is not sent again", run: rowRejectedIsParked},
	4:  {what: "what the client holds by the word of another replica is not sent", run: demandHeld},
	5:  {what: "what the client holds and is gone is removed", run: demandHeldAndGone, delta: true},
	6:  {what: "what the client holds and does not want is not sent", run: demandHeldUnwanted, delta: true},
	7:  {what: "who asks for a part is answered", run: rowSubset},
	8:  {what: "a first response that is rejected is not sent again", run: demandFirstRejected},
	9:  {what: "the same content again is not sent", run: demandSameContent},
	10: {what: "who wants nothing any more is sent nothing", run: demandNothingWanted},
}

func TestDemandsOfTheProtocol(t *testing.T) {
	for _, n := range slices.Sorted(maps.Keys(demands)) {
		t.Run(fmt.Sprintf("D%02d %s", n, demands[n].what), demands[n].test)
	}
}

func TestEveryDemandOfTheProtocolHasOneRow(t *testing.T) {
	checkNumbers(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, demands)
}

func demandAnsweredAgain(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, cartAt(7, "10.0.0.1")))
	kinds := []string{"eds", "cds", "rds", "lds"}
	if p.delta == nil {
		kinds = []string{"eds", "rds"} // The others are sent whole, with every name.
	}
	for range 3 {
		for _, kind := range kinds {
			if p.delta == nil && len(p.names[kind]) > 0 {
				p.drop(kind, cart) // A SotW client that names it without a break still has it.
			}
			p.want(kind, cart)
			if g := p.take(kind); !slices.Equal(g.names, []string{cart}) {
				t.Fatalf("got %s %v, want %s", kind, g.names, cart)
			}
			if follower := map[string]string{"cds": "eds", "lds": "rds"}[kind]; follower != "" {
				p.take(follower)
			}
		}
	}
	p.quiet()
}

func demandUnknown(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t))
	for _, kind := range []string{"cds", "lds", "rds", "eds"} {
		p.want(kind, cart)
		switch {
		case kind == "eds":
			p.takes(cart, "")
		case p.delta != nil:
			if g := p.take(kind); len(g.names) > 0 || !slices.Equal(g.removed, []string{cart}) {
				t.Fatalf("%s: got %+v, want %s removed", kind, g, cart)
			}
		case kind == "rds": // SotW has no word for it.
		default:
			if g := p.take(kind); len(g.names) > 0 {
				t.Fatalf("%s: got %v, want none", kind, g.names)
			}
		}
	}
	p.quiet()
}

func demandHeld(t *testing.T, open func(*bench) *subscriber) {
	one, two := serving(t, cartAt(7, "10.0.0.1")), serving(t, cartAt(9, "10.0.0.1"))
	for _, kind := range []string{"cds", "eds", "lds", "rds"} {
		p, q := open(one), open(two)
		p.want(kind, cart)
		held := p.take(kind)
		if q.delta != nil {
			q.names[kind] = []string{cart}
			q.subscribe(kind, held.vers, cart)
			q.quiet()
			continue
		}
		// SotW: it is sent, at the version that the client has.
		q.want(kind, cart)
		if g := q.take(kind); g.version != held.version {
			t.Fatalf("%s: version %s, the other replica has %s", kind, g.version, held.version)
		}
	}
}

func demandHeldAndGone(t *testing.T, open func(*bench) *subscriber) {
	q := open(serving(t, emptyState("prod", "shop", "cart", 20)))
	for _, kind := range []string{"cds", "lds", "rds"} {
		q.subscribe(kind, map[string]string{cart: "before"}, cart)
		if g := q.take(kind); len(g.names) > 0 || !slices.Equal(g.removed, []string{cart}) {
			t.Fatalf("%s: got %+v, want %s removed", kind, g, cart)
		}
	}
	// An assignment is emptied, never removed: its hosts would stay.
	q.subscribe("eds", map[string]string{cart: "before"}, cart)
	q.takes(cart, "")
	q.quiet()
}

func demandHeldUnwanted(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	q := open(b)
	q.subscribe("eds", map[string]string{api: "before", "gone.shop:http": "before"}, cart)
	q.takes(cart, atOne)
	b.put(otherAt("api", 9, "10.0.0.8"))
	q.quiet()
}

func demandFirstRejected(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	for _, kind := range []string{"cds", "eds", "lds", "rds"} {
		p := open(b)
		p.want(kind, cart)
		p.refuse(kind)
		p.quiet()
		p.cancel()
	}
	p := open(b)
	p.want("eds", cart)
	p.refuse("eds")
	b.put(cartAt(8, "10.0.0.2"))
	p.takes(cart, atTwo)
}

func demandSameContent(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	for _, kind := range []string{"cds", "eds", "lds", "rds"} {
		p.want(kind, cart)
		p.take(kind)
	}
	for i := range 5 {
		b.put(cartAt(uint64(8+i), "10.0.0.1"))
		p.quiet()
	}
}

func demandNothingWanted(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	for _, kind := range []string{"eds", "rds"} {
		p.want(kind, cart, api)
		p.take(kind)
	}
	for kind := range maps.Clone(p.names) {
		p.drop(kind, cart, api)
	}
	p.quiet()
	b.put(emptyState("prod", "shop", "api", 20))
	b.put(cartAt(21, "10.0.0.2"))
	p.quiet()
	q := open(b) // Nor is who never wanted anything: no names are a wildcard of clusters and listeners alone.
	q.want("eds")
	q.want("rds")
	b.put(cartAt(22, "10.0.0.3"))
	q.quiet()
}
