package projector

import (
	"slices"
	"sync/atomic"
)

// Ranks knows which replicas are alive, and so which one is to write first. Its methods may be called by any goroutine.
// A nil *Ranks is that of a projector without replicas, which is the first of every cluster.
type Ranks struct {
	self    string
	live    atomic.Pointer[[]string] // nil until the first Set
	changed chan struct{}            // has room for one
}

// NewRanks gives the Ranks of the replica self, who knows no others yet.
func NewRanks(self string) *Ranks { return &Ranks{self: self, changed: make(chan struct{}, 1)} }

// Set says who is alive now, self too if the others know of it. The order does not matter.
func (r *Ranks) Set(live []string) {
	list := slices.Clone(live)
	r.live.Store(&list)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Of gives the rank of this replica for a cluster, 0 for the first one, and whether it knows the others. While it does
// not, it takes a rank behind those who do: so it neither writes what they write nor keeps silent if there are none.
func (r *Ranks) Of(cluster string) (rank int, known bool) {
	if r == nil {
		return 0, true
	}
	if live := r.live.Load(); live != nil {
		return Rank(cluster, r.self, *live), true
	}
	return blindRank(cluster, r.self), false
}

// news gives what is sent when the set has changed; nobody sends to a nil channel.
func (r *Ranks) news() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.changed
}
