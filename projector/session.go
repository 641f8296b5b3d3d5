// Pure: values in, values out.

package projector

import (
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// session is one session with a stream, for one cluster: its ledger, and the newest checkpoint.
type session struct {
	ledger     *ledger.Ledger
	checkpoint ledger.Checkpoint
	seq        uint64 // of the checkpoint's message; 0 when there is none
	judged     bool   // the checkpoint has been judged
	changed    uint64 // sequence of the last message that is neither a checkpoint nor a record
	doubt      ledger.Doubt
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
		s.doubt.Changed(n.Seq)
		s.changed = n.Seq
	case ledger.Recorded:
		s.ledger.Advance(n.Seq)
	case ledger.Refused:
		s.ledger.Advance(n.Seq)
		s.doubt.Changed(n.Seq)
		s.changed = n.Seq
		if n.Of == ledger.Certified && n.Seq > s.seq {
			s.checkpoint, s.seq, s.judged = ledger.Checkpoint{}, n.Seq, true
		}
	}
}

// judge says what the ledger says of the newest checkpoint, once per checkpoint; Early at any other time.
func (s *session) judge() ledger.Verdict {
	if s.seq == 0 || s.judged {
		return ledger.Early
	}
	v := s.ledger.Judge(s.checkpoint)
	s.judged = v != ledger.Early
	s.doubt.Take(v, s.checkpoint)
	return v
}

// lost reports whether the view has been found wrong and a new session is due.
func (s *session) lost() bool { return s.doubt.Lost() }
