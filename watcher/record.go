package watcher

import (
	"context"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// judgeRecord compares the cluster's record with this watcher and does what follows: create it, adopt it, bring its
// generation back, or begin to watch. A record of another identity stops all writing until it changes.
func (l *loop) judgeRecord(ctx context.Context) {
	if l.uid == "" || !l.complete || l.recording || !l.recordWait.IsZero() || l.stale {
		return
	}
	r := l.record
	switch {
	case l.recordSeq == 0:
		l.judgeExtent()
		r := ledger.Record{UID: l.uid, Generation: max(l.generation, 1), Region: l.cfg.Region, Scope: l.cfg.Extent}
		if l.narrowed {
			r.Scope = l.force // a bus that has lost its record confirms nothing
		}
		if !l.rival {
			l.putRecord(ctx, r)
		}
		return
	case r.UID != l.uid:
		if !l.foreign {
			l.cfg.Log.Error("the bus knows this cluster name by another identity: nothing is written; if this is meant, run slicecast cluster adopt",
				"here", l.uid, "bus", r.UID)
		}
		l.foreign = true
		return
	}
	if l.foreign {
		l.foreign = false
		l.cfg.Log.Info("the bus knows this cluster by its identity now", "generation", r.Generation)
	}
	l.judgeExtent()
	switch {
	case r.Scope == "":
		r.Scope = l.cfg.Extent
		l.putRecord(ctx, r)
	case l.rival:
		if r.Generation > l.generation || l.epoch == 0 {
			l.watch(ctx, r.Generation)
		}
	case r.Generation < l.generation:
		r.Generation = l.generation // versions of it were given out; the bus has gone back, not the cluster
		l.putRecord(ctx, r)
	case l.cfg.Region != "" && r.Region != l.cfg.Region && !l.regioned:
		l.regioned = true // once: two watchers that are told different regions must not fight for ever
		r.Region = l.cfg.Region
		l.putRecord(ctx, r)
	case r.Generation != l.generation || l.epoch == 0:
		l.watch(ctx, r.Generation)
	}
}

// raise raises the generation on proof that the history of the cluster went back; again from 1 s to 10 min later, so
// that a proof that is none, of two watchers that cannot agree, costs little.
func (l *loop) raise(ctx context.Context) {
	l.listed = false
	if !l.complete || !l.agreed() || l.recording {
		l.relist()
		return
	}
	now := time.Now()
	if now.Before(l.nextRaise) {
		l.nextRelist = latest(l.nextRelist, l.nextRaise)
		l.relist()
		return
	}
	if now.Sub(l.nextRaise) > time.Hour {
		l.raisePause = 0
	}
	l.raisePause = min(max(2*l.raisePause, time.Second), 10*time.Minute)
	l.nextRaise = now.Add(l.raisePause)
	r := l.record
	r.Generation++
	l.cfg.Metrics.raises.WithLabelValues(l.cfg.Cluster).Inc()
	l.cfg.Log.Warn("the generation of the cluster is raised", "generation", r.Generation)
	l.putRecord(ctx, r)
}

// relist begins a new consistent list, spaced from 1 s to 10 min.
func (l *loop) relist() {
	if l.relistAt.IsZero() {
		l.relistAt = time.Now()
		if l.nextRelist.After(l.relistAt) {
			l.relistAt = l.nextRelist
		}
	}
}

// putRecord writes the record by compare-and-set. A lost one reads what is there; either way it is judged again.
func (l *loop) putRecord(ctx context.Context, r ledger.Record) {
	l.recording = true
	w, number, expect := l.w, l.number, l.recordSeq
	l.group.Go(func() error {
		wctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
		defer cancel()
		res, err := w.cfg.Records.PutRecord(wctx, w.cfg.Cluster, r, expect)
		seq := res.Seq
		if err == nil && !res.Saved {
			w.cfg.Metrics.conflicts.WithLabelValues(w.cfg.Cluster, "record").Inc()
			r, seq, err = w.cfg.Records.Record(wctx, w.cfg.Cluster)
		}
		w.send(ctx, func(ctx context.Context, l *loop) { l.recorded(ctx, number, r, seq, res.Saved, err) })
		return nil
	})
}

func (l *loop) recorded(ctx context.Context, number uint64, r ledger.Record, seq uint64, saved bool, err error) {
	l.recording = false
	if err != nil {
		if !l.recordFailed {
			l.cfg.Log.Warn("the record of the cluster cannot be written, trying again", "err", err)
		}
		l.recordFailed = true
		l.recordWait = time.Now().Add(backoff(0, time.Second, time.Second))
		return
	}
	l.recordFailed = false
	if number == l.number && (!saved || seq >= l.recordSeq) {
		l.record, l.recordSeq = r, seq
	}
	l.judgeRecord(ctx)
}
