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
}

// Absent reports whether the cache does not hold the slice.
func (h Held) Absent() bool { return h.Version.IsZero() }

// Settled reports whether the bus says of the slice what the cache says.
func (h Held) Settled(view Entry) bool {
	if h.Absent() {
		return !view.Live()
	}
	return view.Live() && view.Version == h.Version && view.Hash == h.Hash
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
//   - A slice that is live on the bus and not in the cache gets a tombstone at asOf, but only if that is newer.
//     One of a lower generation is a leftover: the caller says by proven whether a consistent read that began after
//     the message was seen has shown that the API does not hold it.
//
// asOf is the version that the cache is complete as of.
func Decide(cached Held, view Entry, asOf endpoint.Version, proven bool) Action {
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

// Floor gives the highest version, at most asOf, that a checkpoint on the view may carry: up to it, each slice in the
// cache is in the view with equal version and content, or either side knows it at a version above the floor, and each
// slice not in the cache is not live in the view, or is live above the floor. open holds at least every slice that is
// not settled. The zero Version says that nothing can be certified.
func Floor(asOf endpoint.Version, open iter.Seq2[Held, Entry]) endpoint.Version {
	floor := asOf
	for h, e := range open {
		if h.Settled(e) {
			continue
		}
		above := h.Version
		if e.Seq != 0 && e.Version.After(above) {
			above = e.Version
		}
		if above.After(floor) {
			continue
		}
		if above.Generation != floor.Generation || above.Resource <= 1 {
			return endpoint.Version{}
		}
		floor.Resource = above.Resource - 1
	}
	return floor
}
