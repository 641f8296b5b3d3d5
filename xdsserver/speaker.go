// Pure: values in, values out.

package xdsserver

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// speakers knows, for pods that are in several slices of one cluster and one address family, the newest of these: a pod
// is moved between slices in two writes, and the newer one knows (rule D12). It is nil where no pod is in two.
type speakers map[podFamily]*source

type podFamily struct {
	uid string
	v6  bool
}

// speakersOf gives the speakers of the slices of one cluster.
func speakersOf(sources []source) speakers {
	families, total := [2]int{}, 0
	for i := range sources {
		if eps := sources[i].sl.Endpoints; len(eps) > 0 {
			families[familyIndex(eps[0].Addr)]++
			total += len(eps)
		}
	}
	if families[0] < 2 && families[1] < 2 || !mayRepeat(sources, total) {
		return nil
	}
	s := make(speakers, total)
	for i := range sources {
		from := &sources[i]
		for j := range from.sl.Endpoints {
			e := &from.sl.Endpoints[j]
			if e.TargetUID == "" {
				continue
			}
			key := podFamily{e.TargetUID, e.Addr.Is6()}
			if other, known := s[key]; !known || newer(from.sl, other.sl) {
				s[key] = from
			}
		}
	}
	return s
}

// mayRepeat reports false only where no pod is twice in one family, as is the rule. It compares 32 bits of a hash of each
// uid, so it may be wrong the other way, whose price is an exact look: what is decided depends on no hash.
func mayRepeat(sources []source, total int) bool {
	seed := maphash.MakeSeed()
	table := make([]uint32, 1<<bits.Len(uint(2*total)))
	mask := uint64(len(table) - 1)
	for i := range sources {
		eps := sources[i].sl.Endpoints
		for j := range eps {
			uid := eps[j].TargetUID
			if uid == "" {
				continue
			}
			hash := maphash.String(seed, uid)
			if eps[j].Addr.Is6() {
				hash = ^hash
			}
			mark := uint32(hash>>32) | 1 // not 0, which is a free place
			at := hash & mask
			for ; table[at] != 0; at = (at + 1) & mask {
				if table[at] == mark {
					return true
				}
			}
			table[at] = mark
		}
	}
	return false
}

// correct lets the newest slice of the pod speak for a candidate of an older one: where the newest has the pod at the
// same address and port, the candidate is a duplicate; with another port, it takes its conditions; at another address,
// the pod has moved.
func (s speakers) correct(c *candidate, port portMatch) {
	if c.ep.TargetUID == "" || c.reason != 0 {
		return
	}
	from := s[podFamily{c.ep.TargetUID, c.ep.Addr.Is6()}]
	if from == c.from {
		return
	}
	speaker := from.sl
	i, found := slices.BinarySearchFunc(speaker.Endpoints, *c.ep, func(a, b endpoint.Endpoint) int {
		if d := a.Addr.Compare(b.Addr); d != 0 {
			return d
		}
		return strings.Compare(a.TargetUID, b.TargetUID)
	})
	if !found {
		i = slices.IndexFunc(speaker.Endpoints, func(e endpoint.Endpoint) bool { return e.TargetUID == c.ep.TargetUID })
	}
	c.by = spoken{from, &speaker.Endpoints[i]}
	switch {
	case !found:
		c.reason = ReasonMoved
	case port.in(speaker) == c.at.Port():
		c.reason = ReasonDuplicate
	default:
		c.cond = speaker.Endpoints[i].Conditions
	}
}

// familyIndex is 0 for IPv4 and 1 for IPv6.
func familyIndex(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}
