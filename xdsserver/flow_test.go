package xdsserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicecast/slicecast/internal/endpoint"
)

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

func TestAnAcknowledgementOfTheNewestIsOneOfThoseBefore(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.sotwClient()
	c.ask("eds", cart)
	last := c.recv()
	for i := range window - 1 {
		b.put(cartAt(uint64(10+i), fmt.Sprintf("10.0.1.%d", i)))
		last = c.recv()
	}
	b.put(cartAt(20, "10.0.0.20")) // The window is full.
	for deadline := time.Now().Add(10 * time.Second); counter(t, b.server.metrics.stalls) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v stalls were counted, want 1", counter(t, b.server.metrics.stalls))
		}
	}
	c.accept(last, cart)
	c.want("eds", map[string]string{cart: "p0 / w1 10.0.0.20:8080"}, cart)
	c.fence(cart)
}

func TestAClientThatDoesNotReadIsEnded(t *testing.T) {
	var states []endpoint.State
	var names []string
	for i := range 80 {
		st := bigService(1000).States[0]
		for j, sl := range st.Slices {
			st.Slices[j] = ofService(sl, "shop", fmt.Sprint("big-", i))
		}
		st.Key = st.Slices[0].Key
		states, names = append(states, st), append(names, fmt.Sprintf("big-%d.shop:http", i))
	}
	b := newBench(t, func(c *Config) { c.SlowLimit = 200 * time.Millisecond }).with(states...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeAssignment, ResourceNamesSubscribe: names}); err != nil {
		t.Fatal(err)
	}
	opened(b, 1)
	opened(b, 0)
	if n := counter(t, b.server.metrics.slow.WithLabelValues(slowSend)); n != 1 {
		t.Errorf("%v blocked sends were counted, want 1", n)
	}
}
