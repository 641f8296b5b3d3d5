package watcher

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// write is one write of a slice on its way.
type write struct {
	s       *subject
	session uint64
	expect  Entry // what was known when it was sent
	event   endpoint.Event
	held    Held            // of a Put
	cached  *endpoint.Slice // of a Put
	live    bool
}

// outcome is how a write ended. found is what the subject holds, when the compare-and-set was lost.
type outcome struct {
	saved bool
	seq   uint64
	found ledger.Notice
	err   error
	at    time.Time
}

// pump sends writes while there is room.
func (l *loop) pump(ctx context.Context) {
	if !l.writable() {
		return
	}
	for len(l.queue) > 0 && l.inflight < l.cfg.Parallel {
		s := l.queue[0]
		l.queue = l.queue[1:]
		s.queued = false
		switch a := l.decide(s); a {
		case Put, Tombstone:
			l.send(ctx, s, a)
		default:
			l.clean(s)
		}
	}
	if len(l.queue) == 0 {
		l.queue = nil
		l.read(ctx)
	}
}

func (l *loop) send(ctx context.Context, s *subject, a Action) {
	wr := write{s: s, session: l.number, expect: s.known, event: l.event(s, a), live: s.live}
	if a == Put {
		wr.held, wr.cached = s.held, s.cached
	}
	s.writing = true
	l.inflight++
	w := l.w
	l.group.Go(func() error {
		out := w.write(ctx, wr)
		w.send(ctx, func(_ context.Context, l *loop) { l.wrote(wr, out) })
		return nil
	})
}

// write sends an event, and reads what is there if the compare-and-set is lost.
func (w *Watcher) write(ctx context.Context, wr write) outcome {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	res, err := w.cfg.Events.Put(ctx, wr.event, wr.expect.Seq)
	out := outcome{saved: res.Saved, seq: res.Seq, err: err, at: time.Now()}
	if err == nil && !res.Saved {
		out.found, out.err = w.cfg.Events.Get(ctx, wr.s.place.Key, wr.s.place.Slice)
	}
	return out
}

// event makes what is written of a slice.
func (l *loop) event(s *subject, a Action) endpoint.Event {
	ev := endpoint.Event{Peers: l.peers(s)}
	var before endpoint.Slice
	told := true // whether the content before is known
	if s.known.Live() {
		if told = s.base != nil && s.base.Version == s.known.Version; told {
			before = *s.base
		}
	}
	if a == Put {
		ev.Slice = *s.cached
	} else {
		ev.Gone = true
		ev.Slice = endpoint.Slice{Key: s.place.Key, Name: s.place.Slice, UID: before.UID, Version: l.reach(s), Translator: l.cfg.translator, Observed: s.left}
		if held := l.heldBy(s); held.Hidden {
			ev.Slice.Version = held.Version
		}
		if ev.Slice.Observed.IsZero() {
			ev.Slice.Observed = time.Now()
		}
	}
	if ev.Slice.Version.After(s.known.Version) {
		ev.Previous = s.known.Version
	}
	if told {
		after := ev.Slice
		ev.Transitions = Diff(before, after)
	}
	return ev
}

// peers lists the other slices of the same service in the cache.
func (l *loop) peers(s *subject) []endpoint.Ref {
	others := l.services[s.place.Key]
	refs := make([]endpoint.Ref, 0, len(others))
	for o := range others {
		if o != s {
			refs = append(refs, endpoint.Ref{Name: o.place.Slice, Version: o.held.Version})
		}
	}
	slices.SortFunc(refs, func(a, b endpoint.Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs
}

// wrote applies the outcome of a write.
func (l *loop) wrote(wr write, out outcome) {
	s := wr.s
	s.writing = false
	l.inflight--
	switch {
	case out.err != nil:
		l.failed(s, out.err)
	case out.saved:
		l.saved(wr, out)
	default:
		l.cfg.Metrics.conflicts.WithLabelValues(l.cfg.Cluster, "slice").Inc()
		// What the session has shown meanwhile is newer than what was read.
		if wr.session == l.number && s.known == wr.expect {
			l.put(s, out.found)
		}
		if s.fails++; s.fails > 3 {
			l.later(s)
		}
	}
	l.touch(s)
}

func (l *loop) saved(wr write, out outcome) {
	s, op := wr.s, "put"
	s.fails, s.sure = 0, out.seq
	if wr.event.Gone {
		op = "tombstone"
	}
	l.cfg.Metrics.events.WithLabelValues(l.cfg.Cluster, op).Inc()
	if wr.live {
		l.observe("publish", wr.event.Slice.Observed, out.at)
	}
	if wr.session != l.number || out.seq <= s.known.Seq {
		return // the session of now says what is there
	}
	v := wr.event.Slice.Version
	s.known = Entry{Seq: out.seq, Version: v, Gone: wr.event.Gone, Hash: wr.held.Hash, Translator: wr.event.Slice.Translator}
	s.base = wr.cached
	l.raiseTop(v, l.generation)
	l.written(s.place.Key)
}

func (l *loop) failed(s *subject, err error) {
	l.cfg.Metrics.failures.WithLabelValues(l.cfg.Cluster).Inc()
	if now := time.Now(); !now.Before(l.nextWarn) {
		l.nextWarn = now.Add(10 * time.Second)
		l.cfg.Log.Warn("events are not written, trying again", "key", s.place.Key.String(), "slice", s.place.Slice, "dirty", l.dirty, "err", err)
	}
	s.fails++
	l.later(s)
}

// later lets a slice wait before the next try.
func (l *loop) later(s *subject) {
	s.waiting = true
	heap.Push(&l.retries, retry{time.Now().Add(backoff(s.fails-1, 100*time.Millisecond, 10*time.Second)), s})
}
