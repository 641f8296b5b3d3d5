package projector

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

var update = flag.Bool("update", false, "rewrite the states in the shared traces")

const (
	a10 = "cart-a rv=10 http:80  10.0.0.1[rs-]"
	a11 = "cart-a rv=11 http:80  10.0.0.1[-st]"
	b20 = "cart-b rv=20 http:80  10.0.0.2[rs-]"
)

var cart = endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}

func set(slice string) string { return "set prod/shop/cart " + slice }

func TestTheMachineHoldsWhatTheTracesSay(t *testing.T) {
	endpointtest.Run(t, *update, map[string]endpointtest.Answer{"state": func(told []endpointtest.Step, asked endpointtest.Section) (endpointtest.Section, error) {
		key, err := endpoint.ParseKey(strings.Fields(asked.Head)[1])
		if err != nil {
			return endpointtest.Section{}, err
		}
		b := matched(t)
		for _, s := range told {
			switch {
			case s.Event != nil && s.Event.Slice.Key.Cluster == key.Cluster:
				b.event(*s.Event)
			case s.Open == key.Cluster:
				b.open()
			case s.Checkpoint == key.Cluster:
				b.certify(s.Complete.String())
			}
			b.settle()
		}
		memory := b.m.services[key].fold(b.m.floor)
		if stored := b.states[key].state; !stored.SameSlices(memory) {
			t.Errorf("stored %v, memory %v", endpointtest.FormatState(stored), endpointtest.FormatState(memory))
		}
		return endpointtest.FormatState(memory), nil
	}})
}

func TestNothingIsWrittenBeforeTheFirstMatch(t *testing.T) {
	b := newBench(t)
	b.tell(set(a10))
	if ws := b.want(); len(ws) != 0 {
		t.Fatalf("got %d writes before a checkpoint, want none", len(ws))
	}
	b.certify("10")
	b.settle()
	b.holds(a10)
}

func TestNothingIsWrittenBeforeTheSnapshotOfStatesIsDone(t *testing.T) {
	b := matched(t)
	b.m.state(ledger.Notice{Kind: ledger.Opened})
	b.tell(set(a10))
	if ws := b.want(); len(ws) != 0 {
		t.Fatalf("got %d writes within a snapshot, want none", len(ws))
	}
	b.m.state(ledger.Notice{Kind: ledger.Complete})
	b.settle()
	b.holds(a10)
}

func TestAStaleEventIsDropped(t *testing.T) {
	b := matched(t)
	b.tell(set(a11), set(a10))
	b.settle()
	b.holds(a11)
}

// Counterexample 3 of the protocol.
func TestASliceNewerThanTheCheckpointStays(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), set(b20))
	b.settle()
	b.open()
	b.certify("15") // The view is empty and complete as of 15: a@10 is gone, of b@20 it knows nothing.
	b.settle()
	b.holds(b20)
}

// Counterexample 4.
func TestALaggingWatcherDoesNotBringADeletedSliceBack(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), "gone prod/shop/cart cart-a rv=12")
	b.certify("15")
	b.settle()
	b.tell(set("cart-a rv=13 http:80  10.0.0.1[rs-]"))
	b.settle()
	b.holds()
	b.tell(set("cart-a rv=16 http:80  10.0.0.9[rs-]"))
	b.settle()
	b.holds("cart-a rv=16 http:80  10.0.0.9[rs-]")
}

// Counterexample 8.
func TestTheFirstEventOfANewGenerationRemovesNothing(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), set(b20))
	b.certify("20")
	b.tell(set("cart-a rv=2/5 http:80  10.0.0.1[rs-]"))
	b.settle()
	b.holds("cart-a rv=2/5 http:80  10.0.0.1[rs-]", b20)
}

// Counterexample 9.
func TestALostWriteIsJoinedWithWhatWon(t *testing.T) {
	b := matched(t)
	b.tell(set(a11), set(b20))
	ws := b.want()
	if len(ws) != 1 {
		t.Fatalf("got %d writes, want 1", len(ws))
	}
	// Another projector knew less of cart-a and a third slice.
	c30 := "cart-c rv=30 http:80  10.0.0.3[rs-]"
	other := endpointtest.States([]endpointtest.Step{step(t, set(a10)), step(t, set(b20)), step(t, set(c30))})[0]
	b.seq++
	b.states[cart] = storedState{b.seq, other}
	b.m.read(ws[0], ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: b.seq, Key: cart, State: &other})
	b.stated(cart)
	b.settle()
	b.holds(a11, b20, c30)
}

// Counterexample 13.
func TestAnEndpointThatMovesBetweenSlicesDoesNotBlink(t *testing.T) {
	b := matched(t)
	b.tell(set("cart-a rv=10 http:80  10.0.0.1[rs-]  10.0.0.2[rs-]"), set("cart-b rv=11 peers=cart-a@10 http:80  10.0.0.3[rs-]"))
	b.settle()
	// cart-b gained 10.0.0.1 at 13, cart-a lost it at 14; 14 is read first.
	b.tell(set("cart-a rv=14 peers=cart-b@13 http:80  10.0.0.2[rs-]"))
	if ws := b.want(); len(ws) != 0 || b.m.counts[open] != 1 {
		t.Fatalf("got %d writes and %d open keys while a peer is missing, want 0 and 1", len(ws), b.m.counts[open])
	}
	b.tell(set("cart-b rv=13 peers=cart-a@10 http:80  10.0.0.1[rs-]  10.0.0.3[rs-]"))
	b.settle()
	b.holds("cart-a rv=14 http:80  10.0.0.2[rs-]", "cart-b rv=13 http:80  10.0.0.1[rs-]  10.0.0.3[rs-]")
	if len(b.writes) != 2 {
		t.Errorf("got %d writes, want 2: before the move and after it", len(b.writes))
	}
}

func TestAMissingPeerIsWaitedForUntilTheFloorCoversIt(t *testing.T) {
	b := matched(t)
	b.tell(set("cart-a rv=14 peers=cart-b@13 http:80  10.0.0.2[rs-]"))
	b.settle()
	b.holds()
	if _, _, ok := b.m.certify(); ok {
		t.Error("the machine certifies states while a key is open")
	}
	b.certify("13")
	b.settle()
	b.holds("cart-a rv=14 http:80  10.0.0.2[rs-]")
}

func TestATombstoneClosesAPeerToo(t *testing.T) {
	b := matched(t)
	b.tell(set("cart-a rv=14 peers=cart-b@13 http:80  10.0.0.2[rs-]"), "gone prod/shop/cart cart-b rv=15")
	b.settle()
	b.holds("cart-a rv=14 http:80  10.0.0.2[rs-]")
}

// Counterexample 16.
func TestATombstoneAndALiveSliceOfOneVersionHaveOneOutcome(t *testing.T) {
	// State that the bus holds is complete as of 10 and has no cart-a; memory has it live at 10, from before a restore.
	b := newBench(t)
	b.seq++
	b.states[cart] = storedState{b.seq, endpoint.State{Key: cart, Floor: endpoint.Version{Generation: 1, Resource: 10}}}
	b.openStates()
	b.certify("5")
	b.tell(set(a10))
	b.settle()
	b.holds()
	if b.m.counts[behind] != 1 {
		t.Errorf("counts %v, want the key behind", b.m.counts)
	}
	b.tell(set(a11))
	b.settle()
	b.holds(a11)
}

// Counterexample 12, on the side of STATE.
func TestNoCheckpointIsWrittenWhileWritesArePending(t *testing.T) {
	b := matched(t)
	certifies := func(want bool, when string) {
		t.Helper()
		if _, _, ok := b.m.certify(); ok != want {
			t.Errorf("%s: certifies %v, want %v", when, ok, want)
		}
	}
	certifies(true, "nothing is there")
	b.tell(set(a10))
	certifies(false, "a key was not looked at")
	w := b.want()[0]
	certifies(false, "a write is on its way")
	b.m.failed(w)
	certifies(false, "a write has failed")
	w = b.want()[0]
	b.seq++
	b.states[cart] = storedState{b.seq, w.state}
	b.m.done(w, b.seq)
	b.want()
	certifies(false, "the session has not read the write")
	b.stated(cart)
	certifies(true, "all is read")
	cp, expect, _ := b.m.certify()
	count, sum := ledger.OfState(w.state)
	if want := (ledger.Checkpoint{AsOf: b.seq, Count: count, Sum: sum}); cp != want || expect != 0 {
		t.Errorf("got %+v expecting %d, want %+v expecting 0", cp, expect, want)
	}
}

func TestACheckpointOfStatesIsWrittenOnlyWhenItIsNews(t *testing.T) {
	b := matched(t)
	b.certify("20")
	cp, _, ok := b.m.certify()
	if !ok {
		t.Fatal("no first checkpoint")
	}
	b.seq++
	b.m.state(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: b.seq, Checkpoint: cp})
	if _, _, ok := b.m.certify(); ok {
		t.Error("the same checkpoint twice")
	}
	b.certify("21")
	b.want()
	next, expect, ok := b.m.certify()
	if !ok || next.Complete != versionOf(t, "21") || expect != b.seq {
		t.Errorf("got %+v, %d, %v after a higher floor, want one of 21 expecting %d", next, expect, ok, b.seq)
	}
	b.seq++
	next.Complete = versionOf(t, "40")
	b.m.state(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: b.seq, Checkpoint: next})
	if _, _, ok := b.m.certify(); ok {
		t.Error("a checkpoint of a lower floor than the one that is there")
	}
}

func TestAHigherFloorAloneCausesNoWrite(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), set(b20))
	b.certify("20")
	b.tell("gone prod/shop/cart cart-b rv=21")
	b.settle()
	before := len(b.writes)
	for _, v := range []string{"21", "30"} {
		b.certify(v)
		if ws := b.want(); len(ws) != 0 {
			t.Errorf("got %d writes at floor %s, want none", len(ws), v)
		}
	}
	if got := len(b.writes) - before; got != 0 {
		t.Errorf("got %d writes, want none", got)
	}
}

func TestAnEmptyServiceKeepsAnEmptyState(t *testing.T) {
	b := matched(t)
	b.tell(set(a10))
	b.settle()
	b.tell("gone prod/shop/cart cart-a rv=12")
	b.certify("12")
	b.settle()
	b.holds()
	if st, known := b.states[cart]; !known || st.seq != 2 {
		t.Errorf("got %+v, want a second, empty state", st)
	}
}

func TestAStateOfWhichTheClusterKnowsNothingIsEmptied(t *testing.T) {
	b := newBench(t)
	b.seq++
	b.states[cart] = storedState{b.seq, endpointtest.States([]endpointtest.Step{step(t, set(a10)), step(t, set(b20))})[0]}
	b.openStates()
	b.certify("15")
	b.settle()
	b.holds(b20)
	b.certify("20")
	b.settle()
	b.holds()
}

func TestAServiceOfWhichNothingIsLeftIsForgotten(t *testing.T) {
	b := matched(t)
	b.tell("gone prod/shop/cart cart-a rv=12")
	b.settle()
	if len(b.m.services) != 1 {
		t.Fatalf("got %d services, want the tombstone's", len(b.m.services))
	}
	b.certify("12")
	b.settle()
	if len(b.m.services) != 0 || b.m.counts != [statuses]int{} {
		t.Errorf("got %d services, counts %v, want none", len(b.m.services), b.m.counts)
	}
}

func TestAStaleEventOfAnUnknownServiceHoldsNoCheckpointUp(t *testing.T) {
	b := matched(t)
	b.certify("15")
	b.tell(set(a10))
	b.want()
	if _, _, ok := b.m.certify(); !ok {
		t.Errorf("no checkpoint, counts %v", b.m.counts)
	}
}

func TestTwoCheckpointsThatDisagreeEndTheSession(t *testing.T) {
	for _, side := range []string{"events", "states"} {
		b := matched(t)
		tell := b.m.event
		if side == "states" {
			tell = b.m.state
		}
		wrong := func() bool {
			b.events++
			return tell(ledger.Notice{Kind: ledger.Certified, Seq: b.events, Checkpoint: ledger.Checkpoint{Complete: versionOf(t, "9"), Count: 7}})
		}
		if wrong() {
			t.Errorf("%s: one checkpoint that disagrees ended the session", side)
		}
		if !wrong() {
			t.Errorf("%s: two checkpoints that disagree did not end the session", side)
		}
		if !b.m.floor.IsZero() {
			t.Errorf("%s: a checkpoint that disagrees raised the floor to %s", side, b.m.floor)
		}
		tell(ledger.Notice{Kind: ledger.Opened})
		tell(ledger.Notice{Kind: ledger.Complete})
		if wrong() {
			t.Errorf("%s: the count of the session before goes on", side)
		}
	}
}

func TestALateReaderIsNotTakenForOneThatLostSomething(t *testing.T) {
	b := matched(t)
	// A hot slice: each message has been replaced before the machine reads it, so every sum is wrong when it is read.
	for v := 10; v < 24; v++ {
		wrong := ledger.Checkpoint{Complete: versionOf(t, fmt.Sprint(v)), AsOf: b.events, Count: 9}
		b.events++
		resync := b.m.event(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: b.events, Checkpoint: wrong})
		if want := v-10 >= 7; resync != want {
			t.Fatalf("checkpoint %d under change: new session %v, want %v", v-10, resync, want)
		} else if want {
			break
		}
		b.tell(set(fmt.Sprintf("cart-a rv=%d -", v)))
	}
}

func TestAWriteOfAnEarlierSessionSaysNothingOfSequences(t *testing.T) {
	b := matched(t)
	b.tell(set(a10))
	w := b.want()[0]
	b.openStates() // The stream was lost and made anew, empty.
	b.m.done(w, 900)
	b.settle()
	b.holds(a10)
	if b.states[cart].seq != 1 {
		t.Errorf("got sequence %d, want 1", b.states[cart].seq)
	}
}

func TestAConflictWithNothingIsWrittenAnew(t *testing.T) {
	b := matched(t)
	b.tell(set(a10))
	b.settle()
	b.tell(set(a11))
	w := b.want()[0]
	delete(b.states, cart) // Lost by the bus, which the session does not know yet.
	b.m.read(w, ledger.Notice{Kind: ledger.Absent, Cluster: "prod", Key: cart})
	ws := b.want()
	if len(ws) != 1 || ws[0].expect != 0 {
		t.Fatalf("got %+v, want one write expecting nothing", ws)
	}
	b.accept(ws[0])
	b.want()
	if _, _, ok := b.m.certify(); !ok {
		t.Error("no checkpoint although the session has read past the loss")
	}
}

func TestOneChangedSliceFoldsOneService(t *testing.T) {
	b := matched(t)
	for _, key := range []string{"a", "b", "c"} {
		b.tell("set prod/shop/" + key + " s rv=5 -")
	}
	b.settle()
	b.certify("5")
	b.settle()
	before := b.m.tally.folds
	b.tell("set prod/shop/b s rv=6 http:80")
	b.want()
	if got := b.m.tally.folds - before; got != 1 {
		t.Errorf("got %d folds, want 1", got)
	}
	if len(b.m.restless) != 1 {
		t.Errorf("got %d services that the next match looks at, want 1", len(b.m.restless))
	}
}

func TestAnUnreadableBodyChangesNothing(t *testing.T) {
	b := matched(t)
	b.m.event(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: 9, Key: cart, Slice: "cart-a", Version: versionOf(t, "3")})
	b.m.state(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: 9, Key: cart})
	b.m.event(ledger.Notice{Kind: ledger.Recorded, Cluster: "prod", Seq: 10})
	if ws := b.want(); len(ws) != 0 || len(b.m.services) != 0 {
		t.Errorf("got %d writes, %d services, want none", len(ws), len(b.m.services))
	}
}

func step(t *testing.T, line string) endpointtest.Step {
	t.Helper()
	s, err := endpointtest.ParseStep(line)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
