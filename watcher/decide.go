// Pure: the rules of one slice between the watcher's cache and its view of the bus.

package watcher

import (
	"iter"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Place names one slice of the cluster on the bus: its subject.
type Place struct {
	Key   endpoint.Key
	Slice string
}

// Compare orders places by key, then name of the slice.
func (p Place) Compare(o Place) int {
	if c := p.Key.Compare(o.Key); c != 0 {
		return c
	}
	return strings.Compare(p.Slice, o.Slice)
}

// Entry is what the bus holds of a slice, from headers alone. The zero Entry is "no message".
type Entry struct {
	Seq        uint64 // stream sequence of the message; 0: there is none
	Version    endpoint.Version
	Gone       bool
	Hash       endpoint.Hash
	Translator uint32
}

// Live reports whether the bus holds the slice and it is not gone.
func (e Entry) Live() bool { return e.Seq != 0 && !e.Gone }

// Held is what the cache holds of a slice. The zero Held is "not in the cache".
type Held struct {
	Version    endpoint.Version
	Hash       endpoint.Hash
	Translator uint32
	Hidden     bool // the object is there at Version, and this translation publishes nothing of it
}

// Absent reports whether the cache does not hold the slice.
func (h Held) Absent() bool { return h.Version.IsZero() }

// Settled reports whether the bus says of the slice what the cache says, or what a newer translation says of the same.
func (h Held) Settled(view Entry) bool {
	newer := view.Seq != 0 && view.Translator > h.Translator
	switch {
	case h.Absent():
		return !view.Live()
	case h.Hidden:
		return !view.Live() || newer
	case view.Version != h.Version:
		return false
	default:
		return newer || view.Live() && view.Hash == h.Hash
	}
}

// Action is what a watcher does about one slice.
type Action uint8

// The actions.
const (
	Nothing   Action = iota
	Put              // write what the cache holds
	Tombstone        // write that the slice is gone, at the as-of of the cache
	Disagree         // the bus holds other content at the same version: write nothing, say so loudly
)

// Missing lists what is live in the view and not in the cache, sorted.
func Missing(cached func(Place) bool, view iter.Seq2[Place, Entry]) []Place {
	var out []Place
	for p, e := range view {
		if e.Live() && !cached(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, Place.Compare)
	return out
}

// Decide is the rule of every write, asked before it and not only after a conflict:
//
//   - A slice in the cache is written if the bus has no message of it, or an older one. At equal versions only a
//     higher translator may replace other content; a lower one keeps still.
//   - An object that this translation hides is such a content too: a tombstone at the object's own version, so that
//     the newer of two translations wins about what is published as it does about bytes. What a newer one has
//     published stays as long as the object is there.
//   - A slice that is live on the bus and not in the cache gets a tombstone at asOf, but only if that is newer.
//     One of a lower generation is a leftover: the caller says by proven whether a consistent read that began after
//     the message was seen has shown that the API does not hold it.
//
// asOf is the version that the cache is complete as of.
func Decide(cached Held, view Entry, asOf endpoint.Version, proven bool) Action {
	if cached.Hidden {
		return hide(cached, view)
	}
	if cached.Absent() {
		leftover := view.Version.Generation != asOf.Generation
		if view.Live() && asOf.After(view.Version) && (proven || !leftover) {
			return Tombstone
		}
		return Nothing
	}
	if view.Seq == 0 {
		return Put
	}
	switch c := cached.Version.Compare(view.Version); {
	case c > 0:
		return Put
	case c < 0:
		return Nothing
	case !view.Gone && view.Hash == cached.Hash:
		return Nothing
	case cached.Translator > view.Translator:
		return Put
	case cached.Translator < view.Translator:
		return Nothing
	default:
		return Disagree
	}
}

// hide is Decide for an object that the cache's translation does not publish.
func hide(cached Held, view Entry) Action {
	switch c := cached.Version.Compare(view.Version); {
	case !view.Live() || view.Translator > cached.Translator || c < 0:
		return Nothing
	case c > 0 || cached.Translator > view.Translator:
		return Tombstone
	default:
		return Disagree
	}
}

// Unsettled is a slice of which the view does not say what the cache says.
type Unsettled struct {
	Held  Held
	View  Entry
	Right uint64 // the view was last right about it as of this resource of the generation; 0: nobody knows
}

// Floor gives the highest version, at most asOf, that a checkpoint on the view may carry: everything that the cluster
// had at the floor is in the view, as it was then or later (gone, if it is gone by now), and nothing else up to it. open holds at least every
// slice that is not settled. The zero Version says that nothing can be certified.
//
// While slices are on their way the floor is below asOf, but not just below the lowest version that is unwritten: a
// slice that has changed twice since it was written was there at its first change already, and a slice that the view
// has lost was there before. What the view says of a slice is right as of the version that it holds it at, and as of
// the last moment that both agreed.
func Floor(asOf endpoint.Version, open iter.Seq[Unsettled]) endpoint.Version {
	floor := asOf
	for u := range open {
		if u.Held.Settled(u.View) || u.View.Seq != 0 && u.View.Version.After(asOf) {
			continue
		}
		right := u.Right
		if v := u.View.Version; u.View.Seq != 0 && v.Generation == asOf.Generation {
			if !u.Held.Absent() && !u.Held.Version.After(v) {
				v.Resource-- // other content at the same version, or the cache lags behind its own as-of
			}
			right = max(right, v.Resource)
		}
		floor.Resource = min(floor.Resource, right)
	}
	if floor.Resource == 0 {
		return endpoint.Version{}
	}
	return floor
}
