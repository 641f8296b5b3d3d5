package watcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// identified notes the identity of the cluster.
func (l *loop) identified(ctx context.Context, uid string) {
	l.uid = uid
	l.hear()
	l.judgeRecord(ctx)
	l.judgeOthers(ctx)
}

// hear notes that the source can be heard.
func (l *loop) hear() {
	l.heard = time.Now()
	if !l.connected {
		l.connected = true
		if l.told {
			l.cfg.Log.Info("the source of the cluster can be heard again")
		}
		l.told = true
	}
}

// lost notes that the source cannot be heard. What it said stays.
func (l *loop) lost(err error) {
	other := errors.Is(err, errIdentity)
	if l.connected || !l.told || other != l.otherThere {
		l.cfg.Log.Warn("the source of the cluster cannot be heard: what it said last stays, trying again", "err", err)
	}
	l.connected, l.told, l.otherThere = false, true, other
}

// watch starts the source with a new list, ending the Watch that runs.
func (l *loop) watch(ctx context.Context, generation uint64) {
	if l.stop != nil {
		l.stop()
	}
	if generation != l.generation {
		l.top, l.asOf = 0, endpoint.Version{}
		for _, s := range l.subjects {
			l.raiseTop(s.known.Version, generation)
		}
		l.raiseTop(l.cert.Complete, generation)
	}
	l.epoch++
	l.generation, l.listed, l.pending = generation, false, nil
	epoch, before, ended := l.epoch, l.ended, make(chan struct{})
	sctx, stop := context.WithCancel(ctx)
	l.stop, l.ended = stop, ended
	scope := Scope{Cluster: l.cfg.Cluster, Generation: generation}
	w := l.w
	l.group.Go(func() error {
		defer close(ended)
		defer stop()
		if before != nil {
			<-before
		}
		return w.cfg.Source.Watch(sctx, scope, func(u Update) { w.take(sctx, epoch, u) })
	})
}

// take hands an update to the loop; that a list begins is waited for, since what is known by then is its measure.
func (w *Watcher) take(ctx context.Context, epoch uint64, u Update) {
	known := make(chan struct{})
	w.send(ctx, func(ctx context.Context, l *loop) {
		if l.epoch == epoch {
			l.update(ctx, u)
		}
		close(known)
	})
	if u.Kind != Listing {
		return
	}
	select {
	case <-known:
	case <-ctx.Done():
	}
}

// update applies what the source of this epoch says.
func (l *loop) update(ctx context.Context, u Update) {
	for r, n := range u.Skips.All() {
		l.cfg.Metrics.skipped.WithLabelValues(l.cfg.Cluster, r.String()).Add(float64(n))
	}
	switch u.Kind {
	case Listing:
		l.mark = mark{l.number, l.ledger.Seq(), max(l.top, l.asOf.Resource), l.vouched}
		return
	case Lost:
		l.lost(u.Err)
		return
	case Listed:
		l.list(ctx, u)
	case Changed:
		if l.listed {
			delete(l.hidden, object{u.Namespace, u.Name})
			l.hold(u.Slice, true)
		}
	case Removed:
		l.removed(u)
	}
	l.hear()
	switch {
	case l.stale && u.Kind == Listed:
		l.stale = false
		l.judgeRecord(ctx)
	case l.stale && l.listed:
		l.relist() // tombstones of what it has missed may have expired
	}
	if l.listed && u.Kind != Listed {
		l.advance(u.Namespace, u.AsOf)
	}
}

// removed takes an object out of the cache, or notes that it is there and hidden.
func (l *loop) removed(u Update) {
	if !l.listed {
		return
	}
	id := object{u.Namespace, u.Name}
	if u.There {
		l.hidden[id] = u.AsOf
	} else {
		delete(l.hidden, id)
	}
	if s := l.objects[id]; s != nil {
		l.drop(s, true)
	}
}

// advance moves the as-of of a namespace, or of all, which makes tombstones possible that waited for it.
func (l *loop) advance(namespace string, resource uint64) {
	moved := false
	if at, parted := l.parts[namespace]; parted {
		if moved = resource > at; moved {
			l.parts[namespace] = resource
		}
		for _, at := range l.parts {
			resource = min(resource, at)
		}
	} else if l.parts != nil {
		return
	}
	if resource > l.asOf.Resource {
		l.asOf.Resource, moved = resource, true
	}
	if !moved {
		return
	}
	l.stirred = true
	for s := range l.awaiting {
		l.touch(s)
	}
}

// list applies a whole list.
func (l *loop) list(ctx context.Context, u Update) {
	l.unversioned, l.partial = u.Unversioned, u.Partial
	switch {
	case u.Unversioned && (!l.complete || !l.agreed()):
		l.pending = &u
		return
	case u.Unversioned:
		l.version(&u)
	case l.wentBack(&u):
		l.raise(ctx)
		return
	}
	first := !l.listed
	l.listed, l.listedAt = true, time.Now()
	if l.mark.session == l.number {
		l.proven = max(l.proven, l.mark.seq)
	}
	there := make(map[object]bool, len(u.Slices))
	for i := range u.Slices {
		there[objectOf(&u.Slices[i])] = true
		l.hold(u.Slices[i], u.Live)
	}
	l.hidden = map[object]uint64{}
	maps.Copy(l.hidden, u.Hidden)
	for o, s := range l.objects {
		if !there[o] {
			l.drop(s, u.Live)
		}
	}
	l.parts = maps.Clone(u.Parts)
	l.asOf = endpoint.Version{Generation: l.generation, Resource: u.AsOf}
	l.nextWeigh = time.Now()
	if first {
		l.cfg.Log.Info("slices of the cluster listed", "slices", len(u.Slices), "revision", l.asOf.String())
	}
	l.reconsider()
}

// hold puts a slice into the cache.
func (l *loop) hold(sl endpoint.Slice, live bool) {
	p := Place{sl.Key, sl.Name}
	if old := l.objects[objectOf(&sl)]; old != nil && old.place != p {
		l.drop(old, live) // it belongs to another service now
	}
	s := l.subject(p)
	h := Held{Version: sl.Version, Hash: sl.Hash(), Translator: sl.Translator}
	if h == s.held {
		return
	}
	if live {
		if s.cached == nil || !sl.Triggered.Equal(s.cached.Triggered) {
			l.observe("observe", sl.Triggered, sl.Observed)
		}
		s.live = true
	}
	l.leave(s)
	s.cached, s.held = &sl, h
	l.objects[objectOf(&sl)] = s
	if l.services[p.Key] == nil {
		l.services[p.Key] = map[*subject]bool{}
	}
	l.services[p.Key][s] = true
	l.touch(s)
}

// leave notes, before the cache of a slice changes, as of when the view is right about it.
func (l *loop) leave(s *subject) {
	if l.complete && l.heldBy(s).Settled(s.seen) {
		s.right = l.asOf.Resource
	}
}

// drop takes a slice out of the cache.
func (l *loop) drop(s *subject, live bool) {
	delete(l.objects, object{s.place.Key.Namespace, s.place.Slice})
	if peers := l.services[s.place.Key]; peers != nil {
		if delete(peers, s); len(peers) == 0 {
			delete(l.services, s.place.Key)
		}
	}
	l.leave(s)
	s.cached, s.held, s.left, s.live = nil, Held{}, time.Now(), live
	l.touch(s)
}

// observe feeds a stage of the propagation, when both ends of it are known.
func (l *loop) observe(stage string, from, to time.Time) {
	if d := to.Sub(from); l.cfg.Propagation != nil && !from.IsZero() && !to.IsZero() && d >= 0 {
		l.cfg.Propagation.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// version gives versions to the slices of a source that has none: content that the bus or the cache holds keeps its
// version, changed content and deletions take the next ones.
func (l *loop) version(u *Update) {
	highest := max(l.top, l.asOf.Resource, 1)
	there := make(map[Place]bool, len(u.Slices))
	u.Slices = slices.Clone(u.Slices)
	slices.SortFunc(u.Slices, func(a, b endpoint.Slice) int {
		return Place{a.Key, a.Name}.Compare(Place{b.Key, b.Name})
	})
	for i := range u.Slices {
		sl := &u.Slices[i]
		p := Place{sl.Key, sl.Name}
		there[p] = true
		s, hash := l.subject(p), sl.Hash()
		switch {
		case s.cached != nil && s.held.Hash == hash && s.held.Version.Generation == l.generation:
			*sl = *s.cached
		case s.cached == nil && s.known.Live() && s.known.Hash == hash && s.known.Version.Generation == l.generation:
			sl.Version = s.known.Version
		default:
			highest++
			sl.Version = endpoint.Version{Generation: l.generation, Resource: highest}
		}
	}
	for p, s := range l.subjects {
		if !there[p] && (s.cached != nil || s.known.Live()) {
			highest++
			break
		}
	}
	u.AsOf = highest
}

// raiseTop notes a version of the generation.
func (l *loop) raiseTop(v endpoint.Version, generation uint64) {
	if v.Generation == generation {
		l.top = max(l.top, v.Resource)
	}
}
