package xdsserver

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/internal/endpoint"
)

const (
	gateName  = "cart.shop:http"
	otherName = "front.shop:http"
)

// gateState is the State of the service cart at a resourceVersion.
func gateState(rv uint64, eps ...string) endpoint.State {
	list := make([]endpoint.Endpoint, 0, len(eps))
	for _, e := range eps {
		list = append(list, ep(e))
	}
	return stateOf(sliceOf("prod", "cart-x1", rv, list...))
}

// asking is a question to the gate of a real hub.
type asking struct {
	t    *testing.T
	done chan struct{}
	a    DrainAnswer
	err  error
}

// askGate asks whether the pod p1, at 10.0.0.1, may stop.
func askGate(b *bench) *asking {
	b.t.Helper()
	return ask(b, DrainRequest{Namespace: "shop", Pod: "p1", UID: "p1", IP: "10.0.0.1"})
}

func ask(b *bench, r DrainRequest) *asking {
	b.t.Helper()
	g, err := NewGate(b.server.Hub(), GateConfig{
		Name: "r1", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Floor: func(context.Context, string) (endpoint.Version, error) {
			return endpoint.Version{Generation: 1, Resource: b.rv}, nil
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	w := &asking{t: b.t, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(w.done)
		w.a, w.err = g.Drain(ctx, r)
	}()
	b.t.Cleanup(func() { cancel(); <-w.done })
	return w
}

// stands fails the test if there is an answer. It can only miss one that comes late.
func (w *asking) stands(why string) {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("%s: got %+v (%v), want no answer yet", why, w.a, w.err)
	case <-time.After(30 * time.Millisecond):
	}
}

// drained waits for the answer, for less than what an ended stream blocks.
func (w *asking) drained() DrainAnswer {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(9 * time.Second):
		w.t.Fatal("no answer came")
	}
	if w.err != nil || !w.a.Drained {
		w.t.Fatalf("got %+v (%v), want drained", w.a, w.err)
	}
	return w.a
}

// holding gives a delta client that has acknowledged all of names.
func holding(b *bench, names ...string) *client {
	b.t.Helper()
	c := b.deltaClient()
	c.subscribe("eds", nil, names...)
	for seen := 0; seen < len(names); {
		seen += len(c.ack(c.recv()).res)
	}
	settled(b, 1)
	return c
}

// settled waits until n streams have acknowledged all they want.
func settled(b *bench, n int) {
	b.t.Helper()
	for end := time.Now().Add(9 * time.Second); ; time.Sleep(time.Millisecond) {
		clean := 0
		b.server.hub.mu.Lock()
		for st := range b.server.hub.streams {
			if st.isClean() {
				clean++
			}
		}
		b.server.hub.mu.Unlock()
		if clean >= n {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d streams have acknowledged all they want, want %d", clean, n)
		}
	}
}

// opened waits until n streams are open.
func opened(b *bench, n int) {
	b.t.Helper()
	for end := time.Now().Add(9 * time.Second); ; time.Sleep(time.Millisecond) {
		b.server.hub.mu.Lock()
		got := len(b.server.hub.streams)
		b.server.hub.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d streams are open, want %d", got, n)
		}
	}
}

func TestAPodWithoutAUIDIsWhoeverHasItsAddress(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	w := ask(b, DrainRequest{IP: "10.0.0.1"})
	w.stands("the pod at its address is ready")
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	g := c.recv()
	w.stands("its removal is not acknowledged")
	c.ack(g)
	if a := w.drained(); a.Reason != "acknowledged" || len(a.Services) != 1 {
		t.Errorf("got %+v, want acknowledged, of one service port", a)
	}
	b.put(gateState(9, "10.0.0.1 -st p1", "10.0.0.2 -st p2"))
	b.put(gateState(10, "10.0.0.1 -st p1", "10.0.0.2 -st p2", "10.0.0.3 -st p3"))
	g = c.ack(c.recv())
	if text := g.res[gateName]; strings.Contains(text, "10.0.0.1") {
		t.Errorf("got %s, want the promise kept for who was at the address", text)
	}
}

func TestAPodIsDrainedWhenTheClientAcknowledgesItsRemoval(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	w := askGate(b)
	w.stands("it is ready")
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	g := c.recv()
	w.stands("its removal is not acknowledged")
	c.ack(g)
	a := w.drained()
	if len(a.Proxies) != 1 || a.Proxies[0].Node != "envoy-1" || len(a.Services) != 1 || a.Services[0].Number != 8080 {
		t.Errorf("got %+v, want the proxy envoy-1 and port 8080", a)
	}
}

func TestTheFallbackDoesNotGiveBackAPodThatWasCalledDrained(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	askGate(b).drained()
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 -st p2"))
	// What the client gets next is of both changes, or of the second.
	b.put(gateState(9, "10.0.0.1 -st p1", "10.0.0.2 -st p2", "10.0.0.3 -st p3"))
	g := c.ack(c.recv())
	if text := g.res[gateName]; strings.Contains(text, "10.0.0.1") || !strings.Contains(text, "10.0.0.3") {
		t.Errorf("got %s, want the other two by fallback", text)
	}
}

func TestAPodThatTheFallbackChoosesIsNotDrained(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 -st p1", "10.0.0.2 -st p2"))
	c := holding(b, gateName)
	w := askGate(b)
	w.stands("it serves by fallback")
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 -st p2", "10.0.0.3 rs- p3"))
	c.ack(c.recv())
	w.drained()
}

func TestARejectedRemovalLeavesThePodWhereItWas(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	w := askGate(b)
	c.nack(c.recv())
	w.stands("the removal was rejected")
	b.put(gateState(9, "10.0.0.1 -st p1", "10.0.0.2 rs- p2", "10.0.0.3 rs- p3"))
	c.ack(c.recv())
	w.drained()
}

func TestAnAcknowledgementOfAnOlderPushIsNoneOfTheRemoval(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	b.put(gateState(8, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	added := c.recv()
	b.put(gateState(9, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	removed := c.recv()
	w := askGate(b)
	w.stands("a push with the address is not acknowledged")
	c.ack(added)
	w.stands("its removal is not acknowledged")
	c.ack(removed)
	w.drained()
}

func TestANameThatWasUnsubscribedDoesNotCount(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	c := holding(b, gateName)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	w := askGate(b)
	c.recv()
	w.stands("its removal is not acknowledged")
	c.unsubscribe("eds", gateName)
	w.drained()
}

func TestAClientBetweenTwoStreamsHoldsThePodUntilItHasAcknowledgedAgain(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	first := holding(b, gateName)
	first.cancel()
	opened(b, 0)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	w := askGate(b)
	w.stands("the client has no stream and still sends")
	second := b.deltaClient()
	second.subscribe("eds", map[string]string{gateName: "what the first had"}, gateName)
	g := second.recv()
	w.stands("the client has a stream and has not acknowledged")
	second.ack(g)
	w.drained()
}

func TestAnotherStreamOfTheSameNodeProvesNothingOfNamesThatItDoesNotWant(t *testing.T) {
	// A client without ADS has a stream per cluster.
	front := stateOf(ofService(sliceOf("prod", "front-x1", 7, ep("10.0.1.1 rs- f1")), "shop", "front"))
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"), front)
	first := holding(b, gateName)
	first.cancel()
	opened(b, 0)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	holding(b, otherName)
	w := askGate(b)
	w.stands("the stream of the service is still to come back")
	second := b.deltaClient()
	second.subscribe("eds", nil, gateName)
	second.ack(second.recv())
	w.drained()
}

func TestTwoClientsOfOneNodeIDDoNotProveForEachOther(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	first := holding(b, gateName)
	second := holding(b, gateName)
	third := holding(b, gateName)
	settled(b, 3)
	first.cancel()
	opened(b, 2)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	second.ack(second.recv())
	third.ack(third.recv())
	settled(b, 2)
	askGate(b).stands("the first has no stream and still sends")
}

func TestADrainingEndpointCountsAsDrained(t *testing.T) {
	state := func(rv uint64, cond string) endpoint.State {
		return stateOf(withLabels(sliceOf("prod", "cart-x1", rv, ep("10.0.0.1 "+cond+" p1"), ep("10.0.0.2 rs- p2")), "drain", ""))
	}
	b := serving(t, state(7, "rs-"))
	c := holding(b, gateName)
	b.put(state(8, "-st"))
	w := askGate(b)
	g := c.recv()
	w.stands("it is held as healthy")
	c.ack(g)
	if a := w.drained(); a.Mode != "draining" {
		t.Errorf("got mode %q, want draining", a.Mode)
	}
}

func TestASotWClientDrainsToo(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 rs- p1", "10.0.0.2 rs- p2"))
	c := b.sotwClient()
	c.ask("eds", gateName)
	c.accept(c.recv(), gateName)
	settled(b, 1)
	b.put(gateState(8, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	w := askGate(b)
	g := c.recv()
	w.stands("its removal is not acknowledged")
	c.accept(g, gateName)
	w.drained()
}

func TestAPodThatIsNowhereIsDrainedFromTheFloorOn(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.2 rs- p2"))
	holding(b, gateName)
	b.rv++
	w := askGate(b)
	w.stands("the floor is below what the API server had")
	b.bus.store(b.bus.checkpointOf("prod", b.rv), true)
	if a := w.drained(); string(a.Reason) != "no-service" {
		t.Errorf("got reason %q, want no-service", a.Reason)
	}
}

func TestAnotherPodOnTheNodesAddressIsNotThePod(t *testing.T) {
	// p1 is on the host network and in no service; its node's address is that of another pod.
	b := serving(t, gateState(7, "10.0.0.1 rs- p9"))
	holding(b, gateName)
	if a := askGate(b).drained(); string(a.Reason) != "no-service" {
		t.Errorf("got reason %q, want no-service", a.Reason)
	}
}

func TestAStreamThatEndsWithoutAnyRequestBlocksNobody(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	c := b.deltaClient()
	opened(b, 1)
	c.cancel()
	opened(b, 0)
	askGate(b).drained()
}

func TestAPromiseThatTwoWaitsHaveEndsWithTheLastThatTakesItBack(t *testing.T) {
	b := serving(t, gateState(7, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	promised := func() (is bool) {
		b.server.hub.Look(func(s Sight) { is = s.Pod("prod", "p1", nil).Promised })
		return is
	}
	b.server.hub.Look(func(s Sight) {
		s.PromiseTo("w1", "prod", "p1")
		s.PromiseTo("w2", "prod", "p1")
		s.ReleaseFrom("w1", "prod", "p1")
		s.ReleaseFrom("w1", "prod", "p1") // It has none any more.
	})
	if !promised() {
		t.Error("the promise ended while a wait has it")
	}
	b.server.hub.Look(func(s Sight) { s.ReleaseFrom("w2", "prod", "p1") })
	if promised() {
		t.Error("the promise stands though nobody has it")
	}
	b.server.hub.Look(func(s Sight) { s.PromiseTo("w3", "prod", "p1") })
	b.put(gateState(8, "10.0.0.2 rs- p2"))
	b.server.hub.mu.Lock()
	defer b.server.hub.mu.Unlock()
	if n := len(b.server.store.promises); n != 0 {
		t.Errorf("%d pods are remembered that are in no slice", n)
	}
}
