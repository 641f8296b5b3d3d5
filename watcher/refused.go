package watcher

import (
	"context"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// refused takes in that the bus holds a message that nobody can read: it is as good as none, but for its sequence, which
// whoever writes over it has to expect. A slice is written again from the cache, or gets its tombstone; a checkpoint is
// written again when there is one to write. The record is written again as this session knew it: where it did not, a
// person has to tell which cluster this is, and nothing is written.
func (l *loop) refused(ctx context.Context, n ledger.Notice) {
	l.ledger.Advance(n.Seq)
	switch n.Of {
	case ledger.Changed:
		s, e := l.subject(Place{n.Key, n.Slice}), Entry{Seq: n.Seq}
		s.seen, s.right = e, 0
		if e.Seq >= s.known.Seq {
			s.known = e
		}
		l.lastSlice = max(l.lastSlice, n.Seq)
		l.ledger.Put(s.id, n.Seq, 0, ledger.Sum{})
		l.touch(s)
	case ledger.Certified:
		if n.Seq > l.certSeq {
			l.cert, l.certSeq, l.certLost, l.stirred = ledger.Checkpoint{}, n.Seq, 0, true
		}
	case ledger.Recorded:
		known := l.recordSeq != 0
		if known && n.Seq > l.recordSeq {
			l.recordSeq = n.Seq
			if !l.recording {
				l.putRecord(ctx, l.record)
			}
		}
	}
}
