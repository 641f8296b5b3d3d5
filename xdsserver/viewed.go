// Pure: values in, values out.

package xdsserver

import (
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// viewed is the last State of a Key in a session. It is kept so that one changed slice costs that slice: content that is
// known is shared, and what a slice adds to the ledger is not computed again.
type viewed struct {
	state   endpoint.State
	digests []ledger.Sum // of its slices
}

// sharing gives st with the content that known has too taken from there, so that it is held once and compared no more.
func sharing(st endpoint.State, known *endpoint.State) endpoint.State {
	cloned := false
	for i := range st.Slices {
		old := liveSlice(known, st.Slices[i].Name)
		if old == nil || !sameSlice(old, &st.Slices[i]) {
			continue
		}
		if !cloned { // What was received belongs to others too.
			cloned, st.Slices = true, slices.Clone(st.Slices)
		}
		st.Slices[i].Ports, st.Slices[i].Endpoints = old.Ports, old.Endpoints
	}
	return st
}

// next gives what follows v in a session.
func (v viewed) next(st endpoint.State) viewed {
	digests := make([]ledger.Sum, len(st.Slices))
	for i := range st.Slices {
		sl := &st.Slices[i]
		if at, known := findSlice(&v.state, sl.Name); known && sameSlice(&v.state.Slices[at], sl) {
			digests[i] = v.digests[at]
			continue
		}
		digests[i] = ledger.Digest(sl.Key, sl.Name, sl.Version, sl.Hash())
	}
	return viewed{st, digests}
}

// sum is what the State adds to the sum of its cluster.
func (v viewed) sum() (sum ledger.Sum) {
	for _, d := range v.digests {
		sum = sum.Add(d)
	}
	return sum
}

// sameSlice reports whether two slices of one name and Key are the same, at the same version.
func sameSlice(a, b *endpoint.Slice) bool {
	return a.Version == b.Version && a.Translator == b.Translator && a.SameContent(*b)
}
