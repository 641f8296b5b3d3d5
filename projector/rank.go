// Pure: values in, values out.

package projector

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// A replica that does not know the others takes one of blindRanks ranks from blindFirst on. Those that do know come
// first; if none does, few of them write at once, and every State is written after five hedges at the latest.
const (
	blindFirst = 2
	blindRanks = 4
)

// Rank gives how many replicas come before self for a cluster, among those that are alive: 0 for the one that writes
// at once. It is rendezvous hashing: all who know the same set agree on the order, whatever the order of live and
// however often an id is in it; a replica that comes or goes changes nothing between two others; and clusters spread
// evenly. Who is not in live itself comes after all others: they do not reckon with it.
func Rank(cluster, self string, live []string) int {
	own, before, alive := weight(cluster, self), 0, false
	seen := make(map[string]struct{}, len(live))
	for _, id := range live {
		if _, twice := seen[id]; twice {
			continue
		}
		seen[id] = struct{}{}
		if id == self {
			alive = true
		} else if c := cmp.Compare(weight(cluster, id), own); c > 0 || c == 0 && strings.Compare(id, self) < 0 {
			before++
		}
	}
	if !alive {
		return len(seen)
	}
	return before
}

// blindRank is the rank of a replica that does not know the others.
func blindRank(cluster, self string) int { return blindFirst + int(weight(cluster, self)%blindRanks) }

// weight decides between replicas: the one with the higher weight comes first. All releases have to agree on it.
func weight(cluster, id string) uint64 {
	sum := sha256.Sum256([]byte(cluster + "\x00" + id))
	return binary.BigEndian.Uint64(sum[:])
}
