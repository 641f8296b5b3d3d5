package watcher

import (
	"context"
	"iter"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// soonAfter is the least time between looks at what could be certified, and between checkpoints that a query waits for.
const soonAfter = 20 * time.Millisecond

// ask answers a query for the floor: at is what a consistent read gave.
func (l *loop) ask(at uint64) (endpoint.Version, error) {
	if !l.writable() {
		return endpoint.Version{}, errNotReady
	}
	if at == 0 {
		at = l.asOf.Resource
	}
	v := endpoint.Version{Generation: l.generation, Resource: at}
	if v.After(l.wanted) {
		l.wanted = v
	}
	l.stirred = true
	return v, nil
}

// certifyAt says when the next checkpoint may be considered.
func (l *loop) certifyAt() time.Time {
	pause := l.cfg.CheckpointQuiet
	switch {
	case l.certLost == 0 && l.wanted.Generation == l.generation && l.wanted.After(l.cert.Complete):
		pause = soonAfter
	case l.lastSlice > l.cert.AsOf:
		pause = l.cfg.CheckpointEvery
	}
	if look := l.lastLook.Add(soonAfter); look.After(l.lastCertify.Add(pause)) {
		return look
	}
	return l.lastCertify.Add(pause)
}

// certify writes a checkpoint of the followed view, when it says more than the last one.
func (l *loop) certify(ctx context.Context, now time.Time) {
	if !l.stirred || l.certifying || !l.writable() || l.narrowed || now.Before(l.certifyAt()) {
		return
	}
	l.stirred, l.lastLook = false, now
	floor := Floor(l.asOf, l.unsettled())
	if l.contradicted() {
		l.relist()
		return
	}
	same := floor == l.cert.Complete && l.lastSlice > l.cert.AsOf
	if floor.IsZero() || !floor.After(l.cert.Complete) && !same {
		return
	}
	if floor != l.asOf {
		// What is on its way now is mostly there in a moment: one checkpoint that says it all beats two.
		if l.partAt = latest(l.lastCertify, l.listedAt).Add(l.cfg.CheckpointEvery); l.partAt.After(now) {
			return
		}
	}
	l.partAt = time.Time{}
	count, sum := l.ledger.Total()
	cp := ledger.Checkpoint{Complete: floor, AsOf: l.ledger.Seq(), Count: count, Sum: sum, Written: now}
	l.certifying, l.lastCertify = true, now
	w, number, expect := l.w, l.number, l.certSeq
	l.group.Go(func() error {
		wctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
		defer cancel()
		res, err := w.cfg.Certifier.Certify(wctx, w.cfg.Cluster, cp, expect)
		w.send(ctx, func(_ context.Context, l *loop) { l.certifiedBy(number, cp, res, err) })
		return nil
	})
}

func (l *loop) certifiedBy(number uint64, cp ledger.Checkpoint, res ledger.Result, err error) {
	l.certifying, l.stirred = false, true
	switch {
	case err != nil:
		l.cfg.Metrics.failures.WithLabelValues(l.cfg.Cluster).Inc()
		l.certLost++
	case !res.Saved:
		// The session brings what won. If it does not, the view is wrong.
		l.cfg.Metrics.conflicts.WithLabelValues(l.cfg.Cluster, "checkpoint").Inc()
		if l.certLost++; l.certLost > 3 && number == l.number {
			l.resync("checkpoints are refused")
		}
	default:
		l.cfg.Metrics.checkpoints.WithLabelValues(l.cfg.Cluster).Inc()
		l.certLost, l.relistPause = 0, 0
		if number == l.number && res.Seq > l.certSeq {
			l.cert, l.certSeq = cp, res.Seq
		}
	}
}

// latest gives the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// unsettled gives every slice of which the session does not show what the cache says.
func (l *loop) unsettled() iter.Seq[Unsettled] {
	return func(yield func(Unsettled) bool) {
		for s := range l.open {
			if !yield(Unsettled{l.heldBy(s), s.seen, s.right}) {
				return
			}
		}
	}
}

// contradicted reports whether the bus knows a slice at a version that the cache should know and does not: a list
// will show who is wrong.
func (l *loop) contradicted() bool {
	for s := range l.open {
		v := s.seen.Version
		if s.cached != nil && v.Generation == l.generation && v.After(s.held.Version) && !v.After(l.asOf) {
			return !l.unversioned
		}
	}
	return false
}

// tell publishes the status.
func (l *loop) tell(now time.Time) {
	st := Status{
		Cluster: l.cfg.Cluster, UID: l.uid, Generation: l.generation, AsOf: l.asOf,
		Slices: len(l.objects), Dirty: l.dirty, Inflight: l.inflight, Connected: l.connected, Heard: l.heard,
		Checkpoint: l.cert.Complete, CheckpointTime: l.cert.Written, HeldRemovals: l.held,
	}
	st.Why = l.why()
	st.Ready = st.Why == ""
	before := l.w.status.Load()
	st.OldestDirty = before.OldestDirty
	if l.dirty == 0 {
		st.OldestDirty = time.Time{}
	} else if before.Dirty == 0 || now.Sub(l.lookedOld) > time.Second {
		st.OldestDirty = l.oldest()
		l.lookedOld = now
	}
	if st != *before {
		l.w.status.Store(&st)
		l.w.say(before)
	}
}

// oldest says since when the oldest state waits.
func (l *loop) oldest() time.Time {
	var t time.Time
	for _, s := range l.subjects {
		if !s.dirty.IsZero() && (t.IsZero() || s.dirty.Before(t)) {
			t = s.dirty
		}
	}
	return t
}

// why says what keeps the watcher from being ready.
func (l *loop) why() string {
	switch {
	case !l.connected:
		return "the source cannot be heard"
	case l.uid == "":
		return "the identity of the cluster is not known yet"
	case !l.complete:
		return "the view of the bus is not complete"
	case l.foreign:
		return "the bus knows this cluster name by another identity"
	case !l.agreed():
		return "the record of the cluster is not written yet"
	case !l.listed:
		return "the slices are not listed yet"
	case l.stale:
		return "the source was not heard for too long"
	case l.rival:
		return "another watcher of the cluster publishes another part of it"
	}
	return ""
}
