package main

import (
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/xdsserver"
)

// missing reports whether a client is missing in an answer.
func missing(a xdsserver.DrainAnswer, node string) bool {
	for _, p := range a.Missing {
		if p.Node == node {
			return true
		}
	}
	return false
}

func TestAGateWaitsForTheProxiesOfEveryReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Minute)
	a, b := f.node("a"), f.node("b")
	near, far := f.holding("near", a), f.holding("far", b)
	w := a.ask(40 * time.Second)
	w.stands("the pod is ready")
	f.leaving(true)
	near.ack(near.recv())
	m := far.recv()
	w.stands("the proxy at the other replica has not acknowledged")
	far.ack(m)
	answer := w.says(true)
	replicas := map[string]bool{}
	for _, p := range answer.Proxies {
		replicas[p.Node+" at "+strings.TrimRight(p.Replica, "0123456789")] = true
	}
	if len(answer.Proxies) != 2 || len(replicas) != 2 {
		t.Errorf("got proxies %+v, want one at each replica", answer.Proxies)
	}
}

// Counterexample: a client between two replicas, held by neither.
func TestAClientBetweenTwoReplicasBlocksUntilItHasAcknowledgedAtTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Minute)
	a, b := f.node("a"), f.node("b")
	c := f.holding("mover", a)
	w := b.ask(50 * time.Second)
	c.quit()
	f.leaving(true)
	w.stands("the client has no stream and still sends")
	c = f.client("mover", b, map[string]string{"web.shop:http": "what it had"})
	m := c.recv()
	w.stands("the client has a stream and has not acknowledged")
	c.ack(m)
	w.says(true) // Long before it would count as lost.
}

// Where two live streams share a node id, one proves nothing for the other.
func TestOfTwoClientsWithOneNodeIDNoneProvesForTheOtherAtAnotherReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a, b := f.node("a"), f.node("b")
	first, second := f.holding("twin", a), f.holding("twin", b)
	time.Sleep(time.Second) // Longer than a handover: they were there together.
	first.quit()
	f.leaving(true)
	second.ack(second.recv())
	until(t, "the first twin to be missing", func() bool {
		answer, err := askDrain(t.Context(), b.drain, time.Second)
		if err == nil && answer.Drained {
			t.Fatalf("got %+v, want the first twin waited for", answer)
		}
		return err == nil && missing(answer, "twin")
	})
	b.ask(40 * time.Second).says(true)
}

func TestAGateIsAnsweredByTheRestWhenAReplicaIsKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a, b := f.node("a"), f.node("b")
	mover, stayer := f.holding("mover", a), f.holding("stayer", b)
	w := b.ask(40 * time.Second)
	a.kill()
	f.leaving(true)
	stayer.ack(stayer.recv())
	_ = mover.ended()
	mover = f.client("mover", b, map[string]string{"web.shop:http": "what it had"})
	mover.ack(mover.recv())
	w.stands("a replica that is registered does not answer")
	w.says(true)
}

// What a replica that was killed has told its clients is known to those that are left, until the clients are lost.
func TestTheProxiesOfAVanishedReplicaAreOrphansUntilTheyAreLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a, b := f.node("a"), f.node("b")
	c := f.holding("lost", a)
	f.leaving(true)
	c.recv()
	a.kill()
	w := b.ask(time.Second)
	if answer := w.says(false); !strings.Contains(answer.Missing[0].Node, "does not answer") {
		t.Errorf("got missing %+v, want a replica that does not answer", answer.Missing)
	}
	until(t, "the proxy to be an orphan", func() bool {
		answer, err := askDrain(t.Context(), b.drain, time.Second)
		return err == nil && !answer.Drained && missing(answer, "lost") && answer.Missing[0].Ended && answer.Missing[0].Replica == a.id
	})
	b.ask(40 * time.Second).says(true)
	until(t, "the list to forget it", func() bool {
		for _, e := range f.list() {
			if e.replica == a.id {
				return false
			}
		}
		return true
	})
}

// Counterexample: a replica that was restarted, took over and forgot its clients.
func TestARestartedReplicaKnowsTheClientsOfItsEarlierLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t, soon)
	a := f.node("a")
	c := f.holding("client", a)
	f.leaving(true)
	c.recv()
	a.kill()
	again := f.node("a")
	until(t, "the proxy to be an orphan", func() bool {
		answer, err := askDrain(t.Context(), again.drain, time.Second)
		if err == nil && answer.Drained {
			t.Errorf("got %+v, want the client of the earlier life waited for", answer)
		}
		return err == nil && missing(answer, "client")
	})
	c = f.client("client", again, map[string]string{"web.shop:http": "what it had"})
	c.ack(c.recv())
	again.ask(40 * time.Second).says(true)
}

func TestAReplicaThatStopsHandsItsClientsOverWithAWord(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Minute)
	a, b := f.node("a"), f.node("b")
	c := f.holding("mover", a)
	a.stop()
	_ = c.ended()
	f.leaving(true)
	w := b.ask(50 * time.Second)
	w.stands("the client has no stream")
	c = f.client("mover", b, map[string]string{"web.shop:http": "what it had"})
	c.ack(c.recv())
	w.says(true)
}

// A replica that is not heard blocks, and a gate that cannot read who is registered does not guess.
func TestAGateThatDoesNotHearTheBusSaysNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Minute)
	a := f.node("a")
	c := f.holding("client", a)
	f.leaving(true)
	c.ack(c.recv())
	a.ask(20 * time.Second).says(true)
	a.toBus.cut(true)
	if answer := a.ask(3 * time.Second).says(false); answer.Reason != "unknown" {
		t.Errorf("got %+v, want unknown", answer)
	}
}
