package xdsserver

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// rollCall is a roll and a clock, which is that of the bus and of everybody.
type rollCall struct {
	t   *testing.T
	r   *roll
	now time.Time
}

func newRollCall(t *testing.T, alive ...string) *rollCall {
	c := &rollCall{t: t, r: newRoll(10 * time.Second), now: time.Unix(1000, 0)}
	c.r.open()
	c.alive(alive...)
	c.r.completed(c.now)
	return c
}

func (c *rollCall) pass(d time.Duration) { c.now = c.now.Add(d) }

// alive says that these replicas, and no others, are registered, and heard of just now.
func (c *rollCall) alive(ids ...string) {
	heard := map[string]time.Time{}
	for _, id := range ids {
		heard[id] = c.now
	}
	c.r.replicas(heard, c.now)
}

// vanished says that these are left, and that nothing was heard of the others since they were heard last.
func (c *rollCall) left(ids ...string) { c.alive(ids...) }

// open puts a stream that began so long ago on the list.
func (c *rollCall) open(replica, stream, node string, age time.Duration, clean bool) {
	l := listing{Node: node, Address: "192.0.2.1:5000", Since: c.now.Add(-age), Clean: clean, Written: c.now}
	c.r.put(rollKey{replica, stream}, l, c.now, c.now)
}

// end says that a stream which began at age has ended so long ago.
func (c *rollCall) end(replica, stream, node string, age, ago time.Duration) {
	l := listing{Node: node, Address: "192.0.2.1:6000", Since: c.now.Add(-age), Ended: c.now.Add(-ago), Written: c.now}
	c.r.put(rollKey{replica, stream}, l, c.now, c.now)
}

func (c *rollCall) orphans(want ...string) {
	c.t.Helper()
	var got []string
	for _, o := range c.r.orphans(c.now) {
		got = append(got, o.Stream)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.t.Fatalf("got orphans %q, want %q", got, want)
	}
}

func TestStreamsOfAVanishedReplicaAreOrphansUntilTheyAreLost(t *testing.T) {
	c := newRollCall(t, "a", "b")
	c.open("a", "1", "n1", time.Minute, true)
	c.open("b", "1", "n2", time.Minute, true)
	c.pass(5 * time.Second)
	c.orphans()
	c.left("b")
	c.orphans("a.1")
	c.pass(10 * time.Second)
	c.orphans("a.1")
	c.pass(time.Second)
	c.orphans()
	if left := c.r.sweep(c.now); len(left) != 1 || left[0] != (rollKey{"a", "1"}) {
		t.Errorf("got %v to take off the list, want that of a", left)
	}
}

func TestAClientThatHasAcknowledgedElsewhereIsNoOrphan(t *testing.T) {
	c := newRollCall(t, "a", "b", "me")
	c.open("a", "1", "n", time.Minute, true)
	c.pass(2 * time.Second)
	c.open("b", "7", "n", time.Second, false)
	c.left("b", "me")
	c.orphans("a.1") // It has a stream, and has not acknowledged.
	c.open("b", "7", "n", time.Second, true)
	c.orphans()
	c.end("b", "7", "n", time.Minute, 0) // What it held since is b's to say.
	c.orphans()
}

func TestAnotherHostOrNoNodeIDProvesNothing(t *testing.T) {
	c := newRollCall(t, "a", "b")
	c.open("a", "1", "", time.Minute, true)
	c.open("a", "2", "n", time.Minute, true)
	c.left("b")
	c.open("b", "1", "", 0, true)
	l := listing{Node: "n", Address: "192.0.2.2:5000", Since: c.now, Clean: true, Written: c.now}
	c.r.put(rollKey{"b", "2"}, l, c.now, c.now)
	c.orphans("a.1", "a.2")
}

func TestWhereTwoLiveStreamsShareANodeIDOnlyTimeClears(t *testing.T) {
	t.Run("at the replica that vanished", func(t *testing.T) {
		c := newRollCall(t, "a", "b")
		c.open("a", "1", "n", time.Minute, true)
		c.open("a", "2", "n", time.Second*30, true)
		c.pass(time.Second)
		c.left("b")
		c.open("b", "1", "n", 0, true)
		c.orphans("a.1", "a.2")
	})
	t.Run("at another one", func(t *testing.T) {
		c := newRollCall(t, "a", "b")
		c.open("a", "1", "n", time.Minute, true)
		c.open("b", "1", "n", time.Minute, true)
		c.pass(time.Second)
		c.alive("a", "b")
		c.left("b")
		c.orphans("a.1")
		c.open("b", "1", "n", time.Minute, true)
		c.orphans("a.1")
	})
	t.Run("now, of which one may be the client's", func(t *testing.T) {
		c := newRollCall(t, "a", "b")
		c.open("a", "1", "n", time.Minute, true)
		c.left("b")
		c.open("b", "1", "n", 0, false)
		c.open("b", "2", "n", 0, true)
		c.orphans("a.1")
	})
	t.Run("more than are told apart", func(t *testing.T) {
		c := newRollCall(t, "a", "b")
		for i := range maxStreamsOfClient + 1 {
			c.end("a", fmt.Sprint(i), "n", time.Minute, time.Minute-time.Second*time.Duration(i))
		}
		c.left("b")
		c.open("b", "1", "n", 0, true)
		if n := len(c.r.orphans(c.now)); n != maxStreamsOfClient+1 {
			t.Errorf("got %d orphans, want all", n)
		}
	})
}

func TestAHandoverThatTwoReplicasNoticeAtDifferentMomentsIsNoSharing(t *testing.T) {
	c := newRollCall(t, "a", "me")
	c.open("me", "1", "n", time.Minute, true)
	c.open("a", "1", "n", 0, true) // a writes first
	c.pass(200 * time.Millisecond)
	c.end("me", "1", "n", time.Minute, 0)
	if !c.r.isCleared(rollKey{"me", "1"}) {
		t.Error("the stream that ended is not cleared")
	}
	c.pass(5 * time.Second)
	c.end("a", "1", "n", 5*time.Second+200*time.Millisecond, 0)
	c.pass(time.Second)
	c.open("me", "2", "n", time.Second/2, true)
	if !c.r.isCleared(rollKey{"a", "1"}) {
		t.Error("the way back is not cleared")
	}
}

func TestAReplicaThatComesBackAnswersForItsStreamsItself(t *testing.T) {
	c := newRollCall(t, "a", "b")
	c.open("a", "1", "n", time.Minute, true)
	c.end("a", "2", "m", time.Minute, 0)
	c.left("b")
	c.orphans("a.1", "a.2")
	c.alive("a", "b")
	c.orphans()
	c.pass(20 * time.Second)
	c.left("b")
	c.orphans("a.1") // Now, and again for as long as a proxy is waited for.
}

func TestAListThatWasLostIsNotForgottenAtOnce(t *testing.T) {
	c := newRollCall(t, "a", "b")
	c.open("a", "1", "n", time.Minute, true)
	c.left("b")
	c.r.open()
	if c.r.known() {
		t.Error("a list that is being read is known")
	}
	c.r.completed(c.now)
	c.orphans("a.1")
	c.r.drop(rollKey{"a", "1"}, c.now) // Somebody else took it off, by another clock.
	c.orphans("a.1")
	c.pass(11 * time.Second)
	c.orphans()
	c.r.sweep(c.now)
	if len(c.r.streams)+len(c.r.clients) > 0 {
		t.Errorf("got %v left", c.r.streams)
	}
	c.left("b")
	if len(c.r.heard) != 1 {
		t.Errorf("got %v heard of, want b only", c.r.heard)
	}
}
