package watcher

import (
	"context"
	"time"

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

// scrub is the part of the loop that reads what others wrote. The session brings headers alone, which may be good where
// the body is not; readers would then never get the slice. So each message of another process is read once, one at a
// time and when there is nothing to write.
type scrub struct {
	unsure  []*subject // whose last message is to be read
	reading bool
	created time.Time // of the stream that subjects are sure of
}

// unread begins the scrub of a session. Of the same stream nothing is read twice.
func (l *loop) unread(created time.Time) {
	l.unsure = nil
	if !created.Equal(l.created) {
		l.created = created
		for _, s := range l.subjects {
			s.sure = 0
		}
	}
}

// read reads the next message that needs it.
func (l *loop) read(ctx context.Context) {
	for len(l.unsure) > 0 && !l.reading {
		s := l.unsure[0]
		l.unsure = l.unsure[1:]
		if s.seen.Seq == 0 || s.seen.Seq == s.sure || s.known != s.seen || s.writing || l.subjects[s.place] != s {
			continue // It is known by now, or a newer one is on its way.
		}
		l.reading = true
		w, number, seq := l.w, l.number, s.seen.Seq
		l.group.Go(func() error {
			rctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
			defer cancel()
			n, err := w.cfg.Events.Get(rctx, s.place.Key, s.place.Slice)
			w.send(ctx, func(ctx context.Context, l *loop) {
				l.reading = false
				switch {
				case err != nil || number != l.number || s.seen.Seq != seq:
				case n.Kind != ledger.Absent && n.Seq < seq:
					l.unsure = append(l.unsure, s) // A server that lags behind the leader has answered.
				case n.Seq != seq:
				case n.Kind == ledger.Refused:
					l.unreadable(s)
				default:
					s.sure = seq
				}
			})
			return nil
		})
	}
}

// unreadable takes in that the body of the message that the session showed cannot be read.
func (l *loop) unreadable(s *subject) {
	e := Entry{Seq: s.seen.Seq}
	if s.known.Seq == e.Seq {
		s.known = e
	}
	s.seen, s.right = e, 0
	l.touch(s)
}
