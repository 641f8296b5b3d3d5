package watcher

import (
	"context"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// notice applies what the session says.
func (l *loop) notice(ctx context.Context, n ledger.Notice) {
	switch n.Kind {
	case ledger.Opened:
		l.opened()
		l.unread(n.Created)
	case ledger.Changed:
		l.changed(n)
	case ledger.Certified:
		l.certified(n)
	case ledger.Recorded:
		l.ledger.Advance(n.Seq)
		if n.Seq >= l.recordSeq {
			l.record, l.recordSeq = n.Record, n.Seq
		}
		l.judgeRecord(ctx)
	case ledger.Refused:
		l.refused(ctx, n)
	case ledger.Complete:
		l.ledger.Complete(n.Seq)
		l.complete = true
		l.judgeRecord(ctx)
		l.judge(l.cert)
	}
}

// opened starts a view from nothing.
func (l *loop) opened() {
	l.number++
	l.complete, l.ledger = false, ledger.New()
	l.lastSlice, l.proven, l.top, l.vouched = 0, 0, 0, endpoint.Version{}
	l.cert, l.certSeq, l.certLost = ledger.Checkpoint{}, 0, 0
	l.record, l.recordSeq = ledger.Record{}, 0
	l.proving, l.proofAt = false, 0
	l.queue = nil
	for _, s := range l.subjects {
		s.seen, s.known, s.right, s.queued = Entry{}, Entry{}, 0, false
		if delete(l.open, s); s.cached != nil {
			l.open[s] = true
		}
		l.forget(s)
	}
	clear(l.awaiting)
	clear(l.waits)
}

// entryOf gives what a notice says of a slice.
func entryOf(n ledger.Notice) Entry {
	return Entry{Seq: n.Seq, Version: n.Version, Gone: n.Gone, Hash: n.Hash, Translator: n.Translator}
}

func (l *loop) changed(n ledger.Notice) {
	s, e := l.subject(Place{n.Key, n.Slice}), entryOf(n)
	s.seen, s.right = e, 0
	if e.Seq >= s.known.Seq {
		s.known = e
	}
	l.lastSlice = max(l.lastSlice, n.Seq)
	if e.Gone {
		l.ledger.Put(s.id, n.Seq, 0, ledger.Sum{})
	} else {
		l.ledger.Put(s.id, n.Seq, 1, ledger.Digest(n.Key, n.Slice, n.Version, n.Hash))
	}
	l.raiseTop(e.Version, l.generation)
	l.touch(s)
	l.written(s.place.Key)
	if s.sure != e.Seq {
		l.unsure = append(l.unsure, s)
	}
}

func (l *loop) certified(n ledger.Notice) {
	l.ledger.Advance(n.Seq)
	if n.Seq < l.certSeq {
		return
	}
	l.cert, l.certSeq, l.certLost, l.stirred = n.Checkpoint, n.Seq, 0, true
	l.raiseTop(n.Checkpoint.Complete, l.generation)
	l.judge(n.Checkpoint)
}

// judge ends the session when the view is not what a checkpoint certifies. While a slice has changed since, the
// two may have skipped different messages on the way, and the next checkpoint tells more.
func (l *loop) judge(cp ledger.Checkpoint) {
	if l.complete && l.certSeq != 0 && cp.Complete.After(l.vouched) && l.ledger.Judge(cp) == ledger.Agrees {
		l.vouched = cp.Complete
	}
	if !l.complete || l.certSeq == 0 || l.lastSlice > cp.AsOf {
		return
	}
	switch l.ledger.Judge(cp) {
	case ledger.Disagree:
		l.resync("the view disagrees with a checkpoint")
	case ledger.Agrees:
		l.pause = 0
	}
}

// resync asks for a new session, spaced from 1 s to 60 s.
func (l *loop) resync(why string) {
	now := time.Now()
	if now.Before(l.nextResync) {
		return
	}
	l.pause = min(max(2*l.pause, time.Second), time.Minute)
	l.nextResync = now.Add(l.pause)
	l.cfg.Log.Warn("new session", "why", why, "seq", l.ledger.Seq())
	l.endSession()
}

// resume looks at everything again when it has become possible to write, whatever made it so.
func (l *loop) resume(ctx context.Context) {
	if l.pending != nil && l.complete && l.agreed() {
		u := *l.pending
		l.pending = nil
		l.list(ctx, u)
	}
	before := l.could
	if l.could = l.writable(); l.could && !before {
		l.reconsider()
	}
}

// put takes what a Get found into the view: possibly nothing.
func (l *loop) put(s *subject, n ledger.Notice) {
	if n.Kind == ledger.Refused {
		s.known = Entry{Seq: n.Seq} // to be written over
		return
	}
	if n.Kind != ledger.Absent {
		s.known = entryOf(n)
		l.raiseTop(n.Version, l.generation)
		return
	}
	s.known = Entry{}
	if s.seen.Live() {
		l.resync("the bus has lost a message that the view holds")
		return
	}
	s.seen = Entry{} // an expired tombstone adds nothing to the sum
}

// prove looks for a consistent read that began after the leftovers of lower generations were seen.
func (l *loop) prove(ctx context.Context) {
	if l.proving {
		if l.proofAt != 0 && l.listed && l.asOf.Resource >= l.proofAt {
			l.proving = false
			if l.proof.session == l.number {
				l.proven = max(l.proven, l.proof.seq)
				for s := range l.awaiting {
					l.touch(s)
				}
			}
		}
		return
	}
	if !l.writable() || time.Now().Before(l.nextProof) || !l.unproven() {
		return
	}
	l.proving, l.proofAt, l.proof = true, 0, mark{session: l.number, seq: l.ledger.Seq()}
	w, number, epoch := l.w, l.number, l.epoch
	l.group.Go(func() error {
		at, err := w.cfg.Source.Floor(ctx)
		w.send(ctx, func(_ context.Context, l *loop) {
			l.proofAt = max(at, 1)
			if l.number != number || l.epoch != epoch || err != nil {
				l.proving, l.nextProof = false, time.Now().Add(time.Second)
			}
		})
		return nil
	})
}

// unproven reports whether a leftover waits for a proof.
func (l *loop) unproven() bool {
	for s := range l.awaiting {
		if s.known.Seq > l.proven && s.known.Version.Generation < l.generation {
			return true
		}
	}
	return false
}
