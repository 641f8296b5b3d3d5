// Pure: values in, values out.

package xdsserver

import (
	"cmp"
	"slices"
	"strings"
)

// place is what makes a locality.
type place struct {
	tier         uint8
	region, zone string
}

func (p place) compare(o place) int {
	if d := cmp.Compare(p.tier, o.tier); d != 0 {
		return d
	}
	return cmp.Or(strings.Compare(p.region, o.region), strings.Compare(p.zone, o.zone))
}

// placeOf gives the place of a candidate.
func placeOf(c *candidate) place {
	return place{c.from.tier, c.from.region, strings.ToValidUTF8(c.ep.Zone, "?")} // What is not UTF-8 would break the whole response.
}

// group is the candidates of one place.
type group struct {
	place
	members []int32 // by address
}

// groupByPlace gives the candidates that are kept by place, in the order of places. order has them by address.
func groupByPlace(all []candidate, order []addressKey) []group {
	f := placeFinder{}
	f.list, f.count = f.room.list[:0], f.room.count[:0]
	kept := 0
	for i := range all {
		if c := &all[i]; c.reason.Kept() {
			c.place = f.find(placeOf(c))
			kept++
		}
	}
	if kept == 0 {
		return nil
	}
	groups, members := make([]group, len(f.list)), make([]int32, kept)
	for n, at := range f.sorted() {
		groups[n] = group{f.list[at], members[:0:f.count[at]]}
		members = members[f.count[at]:]
		f.count[at] = n // From here on, the rank of a place.
	}
	for _, k := range order {
		if c := &all[k.i]; c.reason.Kept() {
			g := &groups[f.count[c.place]]
			g.members = append(g.members, k.i)
		}
	}
	return groups
}

// placeFinder numbers places. There are few: looking through a list is quicker than a map until there are many.
type placeFinder struct {
	list  []place
	count []int
	last  int32
	many  map[place]int32
	room  struct { // of the first ones
		list   [manyPlaces]place
		count  [manyPlaces]int
		sorted [manyPlaces]int32
	}
}

const manyPlaces = 16

// find gives the number of a place, and counts it.
func (f *placeFinder) find(p place) int32 {
	if len(f.list) == 0 || f.list[f.last] != p {
		f.last = f.number(p)
	}
	f.count[f.last]++
	return f.last
}

func (f *placeFinder) number(p place) int32 {
	if f.many == nil {
		if at := slices.Index(f.list, p); at >= 0 {
			return int32(at)
		}
	} else if at, known := f.many[p]; known {
		return at
	}
	at := int32(len(f.list))
	f.list, f.count = append(f.list, p), append(f.count, 0)
	switch {
	case f.many != nil:
		f.many[p] = at
	case len(f.list) == manyPlaces:
		f.many = make(map[place]int32, 2*manyPlaces)
		for n, p := range f.list {
			f.many[p] = int32(n)
		}
	}
	return at
}

// sorted gives the numbers of the places, in the order of the places.
func (f *placeFinder) sorted() []int32 {
	out := f.room.sorted[:0]
	for i := range f.list {
		out = append(out, int32(i))
	}
	slices.SortFunc(out, func(a, b int32) int { return f.list[a].compare(f.list[b]) })
	return out
}
