// Pure: values in, values out.

package xdsserver

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"strings"
)

// addressKey is the address of candidate i in a form that is quick to compare.
type addressKey struct {
	high, low uint64
	port      uint16
	v6        bool
	i         int32
}

func keyOf(at netip.AddrPort, i int32) addressKey {
	b := at.Addr().As16()
	return addressKey{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), at.Port(), at.Addr().Is6(), i}
}

// compare orders keys as netip.AddrPort does.
func (k *addressKey) compare(o *addressKey) int {
	switch {
	case k.v6 != o.v6:
		if o.v6 {
			return -1
		}
		return 1
	case k.high != o.high:
		return cmp.Compare(k.high, o.high)
	case k.low != o.low:
		return cmp.Compare(k.low, o.low)
	default:
		return cmp.Compare(k.port, o.port)
	}
}

// precedes orders candidates of one address and port: who comes first speaks.
func (c *candidate) precedes(o *candidate) int {
	a, b := c.from.sl, o.from.sl
	return cmp.Or(
		cmp.Compare(c.rank(), o.rank()),
		strings.Compare(a.Key.Cluster, b.Key.Cluster),
		b.Version.Compare(a.Version),
		strings.Compare(a.Name, b.Name),
		strings.Compare(c.ep.TargetUID, o.ep.TargetUID),
		strings.Compare(c.ep.TargetName, o.ep.TargetName),
	)
}

// mergeRuns sorts keys by address and port, and by who precedes whom at one of them. It merges the runs that are in order
// already: every slice is one, so it costs less than to sort. keys is used up.
func mergeRuns(all []candidate, keys []addressKey) []addressKey {
	ends := make([]int, 0, 64) // of the runs
	for i := 1; i < len(keys); i++ {
		if inOrder(all, &keys[i], &keys[i-1]) {
			ends = append(ends, i)
		}
	}
	if len(ends) == 0 {
		return keys
	}
	ends = append(ends, len(keys))
	other := make([]addressKey, len(keys))
	for len(ends) > 1 {
		from, merged := 0, ends[:0]
		for len(ends) > 0 {
			mid, end := ends[0], ends[min(1, len(ends)-1)] // A last odd run has nothing to be merged with.
			mergeTwo(all, other[from:end], keys[from:mid], keys[mid:end])
			merged, ends, from = append(merged, end), ends[min(2, len(ends)):], end
		}
		ends = merged
		keys, other = other, keys
	}
	return keys
}

// mergeTwo merges two sorted lists.
func mergeTwo(all []candidate, out, a, b []addressKey) {
	for n := range out {
		if len(b) == 0 {
			copy(out[n:], a)
			return
		}
		if len(a) == 0 {
			copy(out[n:], b)
			return
		}
		if inOrder(all, &b[0], &a[0]) {
			out[n], b = b[0], b[1:]
		} else {
			out[n], a = a[0], a[1:]
		}
	}
}

// inOrder reports whether a comes before b.
func inOrder(all []candidate, a, b *addressKey) bool {
	c := a.compare(b)
	return c < 0 || c == 0 && all[a.i].precedes(&all[b.i]) < 0
}
