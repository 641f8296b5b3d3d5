package ledger

import (
	"errors"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// ErrResync is returned by the handler of a Follow to end its session and open a new one (spaced and jittered by
// the bus): its view disagrees with a checkpoint while nothing is pending.
var ErrResync = errors.New("the view disagrees with its checkpoint: new session")

// Kind says what a Notice is.
type Kind uint8

// The kinds of notices of a session, in the order in which they can come: Opened; any of Changed, Certified,
// Recorded and Refused; Complete once; again any of the four; and a new Opened whenever the bus was lost or recreated.
const (
	Opened    Kind = iota + 1 // a new session: the view starts empty. What readers serve from (their memory) stays
	Changed                   // one message of a slice (EVENTS) or of a Key (STATE); also the answer of a Get
	Certified                 // a checkpoint
	Recorded                  // a cluster's record
	Complete                  // the snapshot is done: all up to the last sequence at opening has been seen
	Absent                    // only the answer of a Get: the subject holds no message
	Refused                   // a message that cannot be read has taken the place of what its subject held: see Of
)

// Notice is one thing that a session of the bus says, in stream order.
type Notice struct {
	Kind    Kind
	Cluster string
	Seq     uint64    // stream sequence of the message; for Complete, the stream's last sequence at opening
	Stored  time.Time // when the bus stored the message; for people and latency only
	Created time.Time // of the stream, for Opened

	// For Changed on EVENTS: from headers alone.
	Key        endpoint.Key
	Slice      string // name of the slice
	Version    endpoint.Version
	Gone       bool
	Hash       endpoint.Hash
	Translator uint32
	Event      *endpoint.Event // whole body; nil in a headers-only session

	State      *endpoint.State // for Changed on STATE (Key is set too)
	Checkpoint Checkpoint      // for Certified
	Record     Record          // for Recorded

	// Of says, for Refused, what the message should have been: Changed, Certified or Recorded. Its place is known (Key and
	// Slice), and of an event the headers, where Version is not zero; nothing else. What a reader knew of the place is
	// still the best there is, and a writer who knows better may write over it, expecting Seq.
	Of Kind
}

// Result is the outcome of a compare-and-set write. A lost compare-and-set is not an error: Saved is false.
type Result struct {
	Saved bool
	Seq   uint64 // sequence of the stored message, when Saved
}

// Checkpoint says: the content of a cluster whose Sum was this at stream sequence AsOf is complete as of Complete.
type Checkpoint struct {
	Complete endpoint.Version
	AsOf     uint64
	Count    uint64
	Sum      Sum
	Written  time.Time // for people and for the age metric only
}

// Record is a cluster's identity on the bus, changed by compare-and-set only.
type Record struct {
	UID        string // uid of the namespace kube-system, or "dir" for a folder of manifests
	Generation uint64 // of every Version that its watchers write; starts at 1
	Region     string // region of its endpoints, "" when unset
	Policy     string // staleness policy: "hold", "demote" or "expire=DURATION"; "" means hold
	Scope      string // what its watchers publish of it, one line; "all" for everything, "" when nobody has said so
}
