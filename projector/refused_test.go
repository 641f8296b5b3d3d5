package projector

import (
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// refuse lets the machine hear that the bus holds an event that cannot be read, of which the headers say what the line
// says, or nothing.
func (b *bench) refuse(line string, headers bool) {
	b.t.Helper()
	step, err := endpointtest.ParseStep(line)
	if err != nil {
		b.t.Fatal(err)
	}
	b.events++
	n := noticeOf(*step.Event, b.events)
	n.Kind, n.Of, n.Event = ledger.Refused, ledger.Changed, nil
	if !headers {
		n.Version, n.Hash, n.Translator = endpoint.Version{}, endpoint.Hash{}, 0
	}
	b.view[n.Key.String()+"/"+n.Slice] = n
	if !headers {
		delete(b.view, n.Key.String()+"/"+n.Slice) // It adds nothing to a sum.
	}
	if b.m.event(n) {
		b.t.Fatal("a refused message made the machine ask for a new session")
	}
}

func TestASliceThatCannotBeReadStaysAsItWasAndTheOthersLive(t *testing.T) {
	for _, headers := range [...]bool{false, true} {
		b := matched(t)
		b.tell(set(a10), set(b20))
		b.certify("20")
		b.settle()
		b.refuse(set("cart-a rv=30 http:80  10.0.0.7[rs-]"), headers)
		b.tell(set("cart-b rv=31 http:80  10.0.0.8[rs-]"))
		b.certify("31")
		b.settle()
		b.holds(a10, "cart-b rv=31 http:80  10.0.0.8[rs-]")
		b.tell(set("cart-a rv=40 http:80  10.0.0.9[rs-]"))
		b.settle()
		b.holds("cart-a rv=40 http:80  10.0.0.9[rs-]", "cart-b rv=31 http:80  10.0.0.8[rs-]")
	}
}

func TestANewSessionDoesNotRemoveWhatItCannotRead(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), set(b20))
	b.certify("20")
	b.settle()
	b.open()
	b.refuse(set("cart-a rv=30 http:80  10.0.0.7[rs-]"), true)
	b.tell(set(b20))
	b.certify("35")
	b.settle()
	b.holds(a10, b20)
	b.tell("gone prod/shop/cart cart-a rv=36")
	b.settle()
	b.holds(b20)
}

func TestAFreshMachineProjectsBesideWhatItCannotReadAndTakesItLater(t *testing.T) {
	b := newBench(t)
	b.refuse(set(a10), true)
	b.tell(set(b20))
	b.certify("25")
	b.settle()
	b.holds(b20)
	if cp, _, ok := b.m.certify(); !ok || cp.Complete.Resource != 9 {
		t.Errorf("got a checkpoint of STATE as of %s, %v, want one just below what cannot be read", cp.Complete, ok)
	}
	b.tell(set(a10)) // written again at its own version
	b.certify("25")
	b.settle()
	b.holds(a10, b20)
	if cp, _, ok := b.m.certify(); !ok || cp.Complete.Resource != 25 {
		t.Errorf("got a checkpoint of STATE as of %s, %v, want 25", cp.Complete, ok)
	}
}

func TestAFreshMachineWaitsForWhatSaysNothing(t *testing.T) {
	b := newBench(t)
	b.refuse(set(a10), false)
	b.tell(set(b20))
	b.certify("25")
	if ws := b.want(); len(ws) != 0 {
		t.Fatalf("got %d writes, want none: nobody knows since when the slice has been there", len(ws))
	}
	b.tell(set(a10))
	b.certify("25")
	b.settle()
	b.holds(a10, b20)
}

// spoil lets the machine hear that the bus holds a State that cannot be read.
func (b *bench) spoil(key endpoint.Key) {
	b.seq++
	b.states[key] = storedState{seq: b.seq}
	b.m.state(ledger.Notice{Kind: ledger.Refused, Of: ledger.Changed, Cluster: "prod", Key: key, Seq: b.seq})
}

func TestAStateThatCannotBeReadIsWrittenAgain(t *testing.T) {
	b := matched(t)
	b.tell(set(a10), set(b20))
	b.certify("20")
	b.settle()
	b.holds(a10, b20)
	before, _, ok := b.m.certify()
	if !ok {
		t.Fatal("no checkpoint of STATE")
	}
	b.seq++
	b.m.state(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: b.seq, Checkpoint: before})
	b.spoil(cart)
	if _, _, ok := b.m.certify(); ok {
		t.Error("a checkpoint while a State cannot be read")
	}
	b.settle()
	b.holds(a10, b20)
	after, _, ok := b.m.certify()
	if !ok || after.Sum != before.Sum || after.AsOf <= before.AsOf {
		t.Errorf("got checkpoint %+v, %v after %+v, want the same content certified at its new place", after, ok, before)
	}
	fresh := matched(t)
	fresh.states, fresh.seq = b.states, b.seq
	fresh.spoil(cart) // A service of which the machine knows nothing is a known, empty one.
	fresh.settle()
	fresh.holds()
}

func TestAConflictWithAStateThatCannotBeReadIsWrittenOver(t *testing.T) {
	b := matched(t)
	b.tell(set(a10))
	ws := b.want()
	if len(ws) != 1 {
		t.Fatalf("got %d writes, want 1", len(ws))
	}
	b.seq++
	b.states[cart] = storedState{seq: b.seq}
	b.m.read(ws[0], ledger.Notice{Kind: ledger.Refused, Of: ledger.Changed, Cluster: "prod", Key: cart, Seq: b.seq})
	b.settle()
	b.holds(a10)
}

func TestACheckpointThatCannotBeReadIsWrittenOver(t *testing.T) {
	b := matched(t)
	b.tell(set(a10))
	b.certify("10")
	b.settle()
	b.seq++
	if b.m.state(ledger.Notice{Kind: ledger.Refused, Of: ledger.Certified, Cluster: "prod", Seq: b.seq}) {
		t.Error("asked for a new session")
	}
	if _, expect, ok := b.m.certify(); !ok || expect != b.seq {
		t.Errorf("got a checkpoint that expects %d, %v, want one that expects %d", expect, ok, b.seq)
	}
}
