package watcher

import (
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// wentBack reports whether a consistent list proves that readers of the bus would take what the cluster says now for
// stale, so that the generation has to be raised: the history of the cluster went back, or more of it is published than
// before. What was known when the list began is its measure.
func (l *loop) wentBack(u *Update) bool {
	if l.rival {
		return false // nothing is written anyway; a new list follows when that ends
	}
	if u.AsOf < l.mark.top {
		l.cfg.Log.Error("the cluster's history went back: its list is older than what was known before",
			"list", u.AsOf, "known", l.mark.top)
		return true
	}
	if l.mark.session != l.number {
		return false
	}
	for i := range u.Slices {
		sl := &u.Slices[i]
		if why, known := l.contradicts(sl); why != "" {
			l.cfg.Log.Error("the cluster's history went back, or more of it is published than before", "why", why, "key", sl.Key.String(), "slice", sl.Name, "list", sl.Version.String(), "known", known.String())
			return true
		}
	}
	return len(u.Hidden) > 0 && l.hiddenWentBack(u)
}

// contradicts says why a slice of a consistent list contradicts what was known when the list began, and which version
// that is: a higher one, or the same with other content, or the one that the bus was certified as of without a slice
// that was there, unchanged.
func (l *loop) contradicts(sl *endpoint.Slice) (why string, known endpoint.Version) {
	var e Entry
	if s := l.subjects[Place{sl.Key, sl.Name}]; s != nil {
		e = s.known
	}
	h := Held{Version: sl.Version, Hash: sl.Hash(), Translator: sl.Translator}
	switch {
	case e.Seq > l.mark.seq:
		return "", known
	case !l.narrowed && !e.Live() && vouchedWithout(sl.Version, l.mark.vouched) && Decide(h, e, l.asOf, false) == Put:
		return "the bus was certified to be complete without a slice that was there", l.mark.vouched
	case e.Seq == 0 || e.Version.Generation != l.generation:
		return "", known
	case e.Version.After(sl.Version) || Decide(h, e, l.asOf, false) == Disagree && l.dispute():
		return "a slice is not what was known before", e.Version
	}
	return "", known
}

// hiddenWentBack reports whether an object of the list that is not published is older than what was published of it.
func (l *loop) hiddenWentBack(u *Update) bool {
	for _, s := range l.subjects {
		at, there := u.Hidden[s.object()]
		if there && s.known.Live() && s.known.Seq <= l.mark.seq && s.known.Version.After(endpoint.Version{Generation: l.generation, Resource: at}) {
			l.cfg.Log.Error("the cluster's history went back: an object is older than what was known before",
				"key", s.place.Key.String(), "slice", s.place.Slice, "list", at, "known", s.known.Version.String())
			return true
		}
	}
	return false
}

// vouchedWithout reports whether a view that does not hold a slice at v, and was certified as of c, should hold it.
func vouchedWithout(v, c endpoint.Version) bool {
	return v.Generation == c.Generation && !v.After(c)
}

// dispute reports whether other content at the same version may count as proof now. A cluster says one thing at one
// version; but two builds that translate differently under one TranslatorVersion would dispute for ever, so this kind
// of proof is spaced from 10 min to a day.
func (l *loop) dispute() bool {
	now := time.Now()
	if now.Before(l.nextDispute) {
		if l.relistAt.IsZero() {
			l.relistAt = l.nextDispute
		}
		return false
	}
	l.disputePause = min(max(2*l.disputePause, 10*time.Minute), 24*time.Hour)
	l.nextDispute = now.Add(l.disputePause)
	return true
}
