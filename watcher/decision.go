package watcher

import (
	"github.com/slicecast/slicecast/internal/endpoint"
)

// heldBy gives what the cache holds of a slice, as Decide wants it.
func (l *loop) heldBy(s *subject) Held {
	if s.cached == nil {
		if at, there := l.hidden[s.object()]; there {
			return Held{Version: endpoint.Version{Generation: l.generation, Resource: at}, Translator: l.cfg.translator, Hidden: true}
		}
	}
	return s.held
}

// reach gives the version that the cache is complete as of where a slice is.
func (l *loop) reach(s *subject) endpoint.Version {
	if at, parted := l.parts[s.place.Key.Namespace]; parted {
		return endpoint.Version{Generation: l.generation, Resource: at}
	}
	return l.asOf
}

// decide asks Decide, and keeps those in mind whose tombstone has to wait.
func (l *loop) decide(s *subject) Action {
	held := l.heldBy(s)
	a := Decide(held, s.known, l.reach(s), s.known.Seq <= l.proven)
	switch {
	case a == Tombstone && !l.mayGo(s):
		a = Nothing
	case a == Put && l.doubtful(s):
		if !l.narrowed {
			l.relist()
		}
		return Nothing
	}
	if s.cached == nil && s.known.Live() && a == Nothing {
		l.awaiting[s] = true
	} else {
		delete(l.awaiting, s)
	}
	if a == Disagree {
		l.disagree(s, held)
		return Nothing
	}
	s.warned = Held{}
	return a
}

// mayGo reports whether a slice that the cache does not hold may get its tombstone now.
func (l *loop) mayGo(s *subject) bool {
	switch {
	case l.partial:
		return false
	case l.narrowed && s.left.IsZero() && !l.heldBy(s).Hidden:
		return false // another extent than the one in force has never seen it: see guard.go
	case s.known.Version.Generation == l.generation:
		return true
	case l.laggards() > 0:
		if !l.waiting && l.members {
			l.cfg.Log.Warn("leftovers of the last generation wait for watchers that still write with it", "watchers", l.laggards())
		}
		l.waiting = l.waiting || l.members
		return false // what they write next would be taken for a leftover too
	}
	// A leftover goes when what the cluster has of its service today is on the bus, so that the service never is empty.
	for peer := range l.services[s.place.Key] {
		if peer.known.Version.Generation != l.generation || !peer.known.Live() {
			l.waits[s.place.Key] = append(l.waits[s.place.Key], s)
			return false
		}
	}
	return true
}

// written wakes the leftovers that waited for slices of a service to be on the bus.
func (l *loop) written(key endpoint.Key) {
	waiting := l.waits[key]
	delete(l.waits, key)
	for _, s := range waiting {
		l.touch(s)
	}
}

// doubtful reports whether a slice was there, unchanged, when the view was certified to be complete without it. Either
// the cache lags behind, or the bus was told of another history or of less of the cluster: readers would take the slice
// for stale. A list will show which.
func (l *loop) doubtful(s *subject) bool {
	return !l.unversioned && !s.known.Live() && vouchedWithout(s.held.Version, l.vouched)
}

// disagree reports, once, that the bus holds other content of a slice at the same version, and asks for a list that
// shows whether it is the cluster that says so.
func (l *loop) disagree(s *subject, held Held) {
	if s.warned == held {
		return
	}
	s.warned = held
	l.cfg.Metrics.disagree.WithLabelValues(l.cfg.Cluster).Inc()
	l.cfg.Log.Error("the bus holds other content of a slice at the same version: not overwritten",
		"key", s.place.Key.String(), "slice", s.place.Slice, "revision", held.Version.String())
	if !l.unversioned {
		l.relist()
	}
}
