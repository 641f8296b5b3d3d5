package endpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// State is the fold of all live slices of one Key: what the cluster says of the service. No slices is a legal
// State: a known, empty service.
//
// Invariants:
//
//	T1: Key is valid; every slice is valid and of this Key; Slices are sorted by name, names unique.
//	T2: Gone is sorted by name, unique, versioned, names no live slice, and holds only versions after Floor.
type State struct {
	Key    Key
	Slices []Slice
	Gone   []Ref   // tombstones above the floor, so that a late event of a deleted slice does not bring it back
	Floor  Version // the State is complete as of this version of its cluster
}

// Valid returns an error that names the first invariant that s breaks.
func (s State) Valid() error {
	if err := s.Key.Valid(); err != nil {
		return err
	}
	for i, sl := range s.Slices {
		if sl.Key != s.Key {
			return fmt.Errorf("state of %s holds a slice of %s", s.Key, sl.Key)
		}
		if err := sl.Valid(); err != nil {
			return fmt.Errorf("state of %s: %w", s.Key, err)
		}
		if i > 0 && s.Slices[i-1].Name >= sl.Name {
			return fmt.Errorf("state of %s: slice %s is out of order or twice", s.Key, sl.Name)
		}
	}
	if err := validRefs(s.Gone); err != nil {
		return fmt.Errorf("state of %s: tombstones: %w", s.Key, err)
	}
	for _, g := range s.Gone {
		if _, live := s.find(g.Name); live {
			return fmt.Errorf("state of %s: slice %s is live and gone", s.Key, g.Name)
		}
		if !g.Version.After(s.Floor) {
			return fmt.Errorf("state of %s: tombstone of %s at %s is not above the floor %s", s.Key, g.Name, g.Version, s.Floor)
		}
	}
	return nil
}

// SameSlices reports whether s and o hold the same live slices (name, Version, content): what decides whether a
// State is written, and what assignments are made of. Floors and tombstones do not count. Content that both share is
// not looked at, so the cost is that of the slices in which they differ.
func (s State) SameSlices(o State) bool {
	if len(s.Slices) != len(o.Slices) {
		return false
	}
	for i := range s.Slices {
		a, b := &s.Slices[i], &o.Slices[i]
		if a.Version != b.Version || a.Translator != b.Translator || a.Name != b.Name || !a.sameContent(b) {
			return false
		}
	}
	return true
}

// SameContent reports whether a and b say the same, whatever their versions.
func (s Slice) SameContent(o Slice) bool { return s.sameContent(&o) }

func (s *Slice) sameContent(o *Slice) bool {
	return s.UID == o.UID && s.TerminatingPolicy == o.TerminatingPolicy && s.FailoverPolicy == o.FailoverPolicy &&
		equal(s.Ports, o.Ports) && equal(s.Endpoints, o.Endpoints)
}

// equal is slices.Equal for lists that are never changed once they are shared: one list is equal to itself.
func equal[E comparable](a, b []E) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// find gives the live slice of that name, in place.
func (s State) find(name string) (*Slice, bool) {
	i, ok := slices.BinarySearchFunc(s.Slices, name, func(sl Slice, n string) int { return strings.Compare(sl.Name, n) })
	if !ok {
		return nil, false
	}
	return &s.Slices[i], true
}

// entry is one side of a join: a live slice, a tombstone, or nothing (zero version).
type entry struct {
	live  *Slice
	gone  *Ref
	floor Version // of the side that the entry comes from
}

func (e entry) version() Version {
	switch {
	case e.live != nil:
		return e.live.Version
	case e.gone != nil:
		return e.gone.Version
	default:
		return Version{}
	}
}

func (e entry) translator() uint32 {
	switch {
	case e.live != nil:
		return e.live.Translator
	case e.gone != nil:
		return e.gone.Translator
	default:
		return 0
	}
}

// join is the rule of one slice: if one side is live, the other is not, and the other is complete as of the live
// version, the slice is gone; at equal versions the newer translator, then the larger content; else the higher version.
func join(x, y entry) entry {
	if x.live != nil && y.live == nil && !x.version().After(y.floor) {
		return y
	}
	if y.live != nil && x.live == nil && !y.version().After(x.floor) {
		return x
	}
	if c := x.version().Compare(y.version()); c != 0 {
		return pick(c, x, y)
	}
	if c := cmp.Compare(x.translator(), y.translator()); c != 0 {
		return pick(c, x, y)
	}
	if x.live != nil && y.live != nil && !x.live.sameContent(y.live) {
		return pick(bytes.Compare(x.live.Content(), y.live.Content()), x, y)
	}
	if x.live == nil && y.live != nil {
		return y
	}
	return x
}

func pick(c int, x, y entry) entry {
	if c < 0 {
		return y
	}
	return x
}

// Join gives what two views of one Key know together; the floor of the result is the higher one, and tombstones that it
// covers vanish. It is commutative and idempotent, but for the times of equal entries, of which either may stay. It is
// associative on views of one history; views that contradict each other have none in common, and their order decides.
func (s State) Join(o State) State {
	out := State{Key: s.Key, Floor: s.Floor}
	if o.Floor.After(s.Floor) {
		out.Floor = o.Floor
	}
	x, y := cursor{of: &s}, cursor{of: &o}
	for {
		name, some := x.next()
		if other, too := y.next(); too && (!some || other < name) {
			name, some = other, true
		}
		if !some {
			return out
		}
		switch e := join(x.take(name), y.take(name)); {
		case e.live != nil:
			if out.Slices == nil {
				out.Slices = make([]Slice, 0, max(len(s.Slices), len(o.Slices)))
			}
			out.Slices = append(out.Slices, *e.live)
		case e.gone != nil && e.gone.Version.After(out.Floor):
			out.Gone = append(out.Gone, *e.gone)
		}
	}
}

// cursor walks through what a State says of each slice, by name.
type cursor struct {
	of         *State
	live, gone int // how many of Slices and of Gone are behind it
}

// next gives the name of the next slice.
func (c *cursor) next() (name string, some bool) {
	if c.live < len(c.of.Slices) {
		name, some = c.of.Slices[c.live].Name, true
	}
	if c.gone < len(c.of.Gone) && (!some || c.of.Gone[c.gone].Name < name) {
		name, some = c.of.Gone[c.gone].Name, true
	}
	return name, some
}

// take gives what the State says of the slice of that name, which is the next one or before it.
func (c *cursor) take(name string) entry {
	e := entry{floor: c.of.Floor}
	if c.gone < len(c.of.Gone) && c.of.Gone[c.gone].Name == name {
		e.gone = &c.of.Gone[c.gone]
		c.gone++
	}
	if c.live < len(c.of.Slices) && c.of.Slices[c.live].Name == name {
		e.live, e.gone = &c.of.Slices[c.live], nil
		c.live++
	}
	return e
}
