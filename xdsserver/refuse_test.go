package xdsserver

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A client that asks for too much is told so in one line and counted; its neighbour on the same connection hears nothing of it.
func TestARequestForTooMuchEndsItsStreamAlone(t *testing.T) {
	many := make([]string, maxNames+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	long := strings.Repeat("n", maxNameSize+1)
	place := strings.Repeat("z", maxNodeText+1)
	for _, tt := range []struct {
		cause string
		code  codes.Code
		where string
		ask   func(*subscriber)
	}{
		{refusedName, codes.InvalidArgument, "eds: a name of 2049 bytes", func(p *subscriber) { p.want("eds", long) }},
		{refusedName, codes.InvalidArgument, "cds: a name of 2049 bytes", func(p *subscriber) { p.want("cds", cart, long) }},
		{refusedNames, codes.ResourceExhausted, "eds: a stream asks for 100001 names", func(p *subscriber) { p.want("eds", many...) }},
		{refusedNode, codes.InvalidArgument, "node.id", func(p *subscriber) { p.node.Id = place; p.want("eds", cart) }},
		{refusedNode, codes.InvalidArgument, "node.locality.zone", func(p *subscriber) { p.node = nodeOf("a", "", "", place); p.want("eds", cart) }},
		{refusedNode, codes.InvalidArgument, metadataCluster, func(p *subscriber) { p.node = nodeOf("a", place, "", ""); p.want("eds", cart) }},
	} {
		b := serving(t, cartAt(7, "10.0.0.1"))
		for i, open := range []func() *client{b.deltaClient, b.sotwClient} {
			neighbour := b.subscriber(t, b.deltaClient())
			neighbour.want("eds", cart)
			neighbour.takes(cart, "p0 / w1 10.0.0.1:8080")
			p := b.subscriber(t, open())
			tt.ask(p)
			err := p.end()
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.where) || len(err.Error()) > 300 {
				t.Errorf("got %v, want %s of %q", err, tt.code, tt.where)
			}
			if got := counter(t, b.server.metrics.refusals.WithLabelValues(tt.cause)); got != float64(i+1) {
				t.Errorf("%s: %v streams are counted, want %d", tt.cause, got, i+1)
			}
			neighbour.quiet()
		}
	}
}

// Names that come one request after the other count together, and a wildcard's do not.
func TestTheNamesOfAStreamAreCountedOverItsRequests(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	half := func(from int) []string {
		names := make([]string, maxNames/2)
		for i := range names {
			names[i] = fmt.Sprint("n", from+i)
		}
		return names
	}
	c.subscribe("lds", nil, half(0)...)
	c.subscribe("lds", nil, half(maxNames/2)...)
	c.subscribe("lds", nil, "one-more")
	if err := c.end(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	h := b.server.hub
	st := h.open(streamOptions{service: "ads", delta: true})
	defer h.end(st)
	h.request(st, request{kind: clusters, node: nodeOf("a", "", "", "")})
	names := append(half(0), half(maxNames/2)...)
	if f := h.refuse(st, request{kind: clusters, subscribe: names}); f != nil {
		t.Errorf("a client with a wildcard: %v", f.err)
	}
}
