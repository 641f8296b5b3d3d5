// Pure: values in, values out.

package projector

import (
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// holds are the Keys of one cluster that are not to be written yet.
type holds map[endpoint.Key]hold

// hold says until when a Key waits, and what for.
type hold struct {
	until time.Time
	rank  int            // of this replica: it waits for those before it; 0 when it waits for its next try
	state endpoint.State // what has to appear on the bus meanwhile; of a rank above 0
}

// verdict is what holds say of a write.
type verdict uint8

const (
	goes   verdict = iota // now
	waits                 // an alarm at hold.until is due
	waited                // as waits, and the alarm is set already
)

// ask says whether a write that this replica wants may go, when the rank of the replica is rank. One of rank n goes when n
// hedges have passed since the time when it first wanted something which has not appeared on the bus, by anybody, since
// then. What is newer than that does not begin another wait, and what is older does not end it. Spared is true when what
// was waited for has appeared.
func (h holds) ask(now time.Time, key endpoint.Key, w write, rank int, hedge time.Duration) (v verdict, spared bool) {
	if at, held := h[key]; held {
		spared = at.rank > 0 && atLeast(w.before, at.state)
		switch {
		case spared:
		case now.Before(at.until):
			return waited, false
		default:
			delete(h, key)
			return goes, false
		}
	}
	if rank == 0 {
		delete(h, key)
		return goes, spared
	}
	h[key] = hold{now.Add(time.Duration(rank) * hedge), rank, w.state}
	return waits, spared
}

// end takes in that nothing is to be written for a Key, and reports whether a hedge has been spared.
func (h holds) end(key endpoint.Key) (spared bool) {
	spared = h[key].rank > 0
	delete(h, key)
	return spared
}

// atLeast reports whether a State says all that want says, or newer things.
func atLeast(have, want endpoint.State) bool { return have.Join(want).SameSlices(have) }
