package bus

import (
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// A reader that is behind the leader has no say.
func TestACrowdIsReadOnceItHasReachedTheSequence(t *testing.T) {
	c := (&Bus{cfg: Config{ClaimTTL: time.Minute}}).crowd()
	at := func(seq uint64) bool { _, at, _ := c.reached(seq); return at }
	heartbeat := func(seq uint64) {
		m := entryMessage{message{header: header{hSince: {time.Now().UTC().Format(time.RFC3339Nano)}}}, seq, time.Now()}
		c.message("a", m)
	}
	c.notice(ledger.Opened)
	heartbeat(7)
	if at(7) {
		t.Error("its snapshot is not complete")
	}
	c.notice(ledger.Complete)
	if !at(7) || at(8) {
		t.Errorf("got at 7 %t, at 8 %t, want the first only", at(7), at(8))
	}
	_, _, moved := c.reached(8)
	heartbeat(8)
	if <-moved; !at(8) {
		t.Error("it has heard 8")
	}
	c.notice(ledger.Opened)
	c.notice(ledger.Complete)
	if at(8) {
		t.Error("another session has to hear it again")
	}
}
