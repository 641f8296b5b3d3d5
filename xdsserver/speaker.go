// Pure: values in, values out.

package xdsserver

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// speakers knows, for pods that are in several slices of one cluster and one address family, the newest of these: a pod
// is moved between slices in two writes, and the newer one knows (rule D12). It is nil where no pod can be in two.
type speakers map[podFamily]*endpoint.Slice

type podFamily struct {
	uid string
	v6  bool
}

func speakersOf(st *endpoint.State) speakers {
	families, total := [2]int{}, 0
	for i := range st.Slices {
		if eps := st.Slices[i].Endpoints; len(eps) > 0 {
			families[familyIndex(eps[0].Addr)]++
			total += len(eps)
		}
	}
	if families[0] < 2 && families[1] < 2 {
		return nil
	}
	s := make(speakers, total)
	for i := range st.Slices {
		sl := &st.Slices[i]
		for j := range sl.Endpoints {
			e := &sl.Endpoints[j]
			if e.TargetUID == "" {
				continue
			}
			key := podFamily{e.TargetUID, e.Addr.Is6()}
			if other, known := s[key]; !known || newer(sl, other) {
				s[key] = sl
			}
		}
	}
	return s
}

// correct lets the newest slice of the pod speak for a candidate of an older one: where the newest has the pod at the
// same address and port, the candidate is a duplicate; with another port, it takes its conditions; at another address,
// the pod has moved.
func (s speakers) correct(c *candidate, port portMatch) {
	if s == nil || c.ep.TargetUID == "" || c.reason != 0 {
		return
	}
	speaker := s[podFamily{c.ep.TargetUID, c.ep.Addr.Is6()}]
	if speaker == c.sl {
		return
	}
	i, found := slices.BinarySearchFunc(speaker.Endpoints, *c.ep, func(a, b endpoint.Endpoint) int {
		if d := a.Addr.Compare(b.Addr); d != 0 {
			return d
		}
		return strings.Compare(a.TargetUID, b.TargetUID)
	})
	if !found {
		i = slices.IndexFunc(speaker.Endpoints, func(e endpoint.Endpoint) bool { return e.TargetUID == c.ep.TargetUID })
	}
	c.by = spoken{speaker, &speaker.Endpoints[i]}
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
