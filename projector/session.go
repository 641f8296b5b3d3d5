// Pure: values in, values out.

package projector

import (
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// A view that has missed a message disagrees with its checkpoints, but so does the view of a reader that is merely
// late: the bus keeps the last message of each subject, so a message that has been replaced before it was read is never
// read, and the sums between the two are not those of the writer. The message that replaced it is still to come, so
// two checkpoints in a row that disagree, with no change after the first of them, prove a loss. Under constant
// change there is no such proof, and many in a row have to do. One alone may be the fault of its writer.
const (
	disagreeInQuiet  = 2
	disagreeInChange = 8
)

// session is one session with a stream, for one cluster: its ledger, and the newest checkpoint.
type session struct {
	ledger     *ledger.Ledger
	checkpoint ledger.Checkpoint
	seq        uint64 // of the checkpoint's message; 0 when there is none
	judged     bool   // the checkpoint has been judged
	changed    uint64 // sequence of the last change
	disagreed  int    // checkpoints that disagreed since the last one that agreed
	inQuiet    int    // those of them with no change since the first
	since      uint64 // position of the first of them
}

func newSession() session { return session{ledger: ledger.New()} }

// note records the parts of a notice that every stream has: its position, checkpoints, and the end of the snapshot.
func (s *session) note(n ledger.Notice) {
	switch n.Kind {
	case ledger.Complete:
		s.ledger.Complete(n.Seq)
	case ledger.Certified:
		s.ledger.Advance(n.Seq)
		if n.Seq > s.seq {
			s.checkpoint, s.seq, s.judged = n.Checkpoint, n.Seq, false
		}
	case ledger.Changed:
		s.ledger.Advance(n.Seq)
		s.changed = max(s.changed, n.Seq)
	case ledger.Recorded:
		s.ledger.Advance(n.Seq)
	}
}

// judge says what the ledger says of the newest checkpoint, once per checkpoint; Early at any other time.
func (s *session) judge() ledger.Verdict {
	if s.seq == 0 || s.judged {
		return ledger.Early
	}
	v := s.ledger.Judge(s.checkpoint)
	s.judged = v != ledger.Early
	switch v {
	case ledger.Agrees:
		s.disagreed, s.inQuiet = 0, 0
	case ledger.Disagree:
		s.disagreed++
		if s.inQuiet == 0 || s.changed > s.since {
			s.inQuiet, s.since = 0, s.checkpoint.AsOf
		}
		s.inQuiet++
	}
	return v
}

// lost reports whether the view has been found wrong and a new session is due.
func (s *session) lost() bool { return s.inQuiet >= disagreeInQuiet || s.disagreed >= disagreeInChange }
