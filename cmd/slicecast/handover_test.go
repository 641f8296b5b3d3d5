package main

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refused opens a stream and reports whether it is refused.
func (f *fleet) refused(n *node) bool {
	f.t.Helper()
	c := f.client("asking", n, nil)
	defer c.quit()
	select {
	case <-c.in:
		return false
	case err := <-c.end:
		return status.Code(err) == codes.Unavailable
	case <-time.After(20 * time.Second):
		f.t.Fatal("the stream neither begins nor ends")
		return false
	}
}

func TestAReplicaThatIsCutOffHandsItsStreamsOverAndTakesThemAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a, b := f.node("a"), f.node("b")
	c := f.holding("client", a)
	stayer := f.holding("stayer", b)
	a.toBus.cut(true)
	if err := c.ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if a.healthy() {
		t.Error("it says that it is healthy")
	}
	if !f.refused(a) {
		t.Error("it takes a stream")
	}
	// Its clients are at the other one by then, and gates need not wait for it for ever.
	moved := f.client("client", b, map[string]string{"web.shop:http": "what it had"})
	moved.ack(moved.recv())
	f.leaving(true)
	moved.ack(moved.recv())
	stayer.ack(stayer.recv())
	b.ask(40 * time.Second).says(true)

	a.toBus.cut(false)
	until(t, "it to take streams again", func() bool { return a.healthy() && !f.refused(a) })
}

func TestAReplicaThatIsAloneKeepsItsStreamsWithoutTheBus(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	a := f.node("a")
	c := f.holding("client", a)
	a.toBus.cut(true)
	select {
	case err := <-c.end:
		t.Errorf("the stream ended with %v", err)
	case <-time.After(4 * time.Second): // Twice the time to live.
	}
	if !a.healthy() || f.refused(a) {
		t.Error("it takes no streams")
	}
}

func TestAReplicaThatIsNotInSyncTakesNoStreamWhileAnotherIsCurrent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a := f.node("a", "nowhere") // It waits in vain for a cluster, and serves after its start timeout.
	if f.refused(a) {
		t.Error("nobody else is there, and it takes no stream")
	}
	b := f.node("b")
	until(t, "the one that is behind to refuse", func() bool { return f.refused(a) })
	if f.refused(b) || !a.healthy() {
		t.Error("the current one refuses, or the other one says that it is ill")
	}
	b.stop()
	until(t, "the one that is behind to take streams again", func() bool { return !f.refused(a) })
}
