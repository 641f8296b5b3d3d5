package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// History is the HISTORY stream: a copy of every accepted event, best effort, for a day or until the stream is full.
// Copies may be missing, and those of two watchers may come in another order than their versions.
type History struct{ b *Bus }

// HistoryQuery says which part of history to replay. Its zero value is all of it, once.
type HistoryQuery struct {
	// Cluster, Namespace and Service choose by name; "" is any.
	Cluster, Namespace, Service string
	// Since leaves out what the bus stored before it; zero leaves out nothing.
	Since time.Time
	// Last leaves out all but the last so many; 0 leaves out nothing.
	Last int
	// Follow goes on with what is stored after the opening, until the context ends.
	Follow bool
}

// HistoryEntry is one copy.
type HistoryEntry struct {
	Event  endpoint.Event
	Seq    uint64    // of the HISTORY stream
	Stored time.Time // when the bus stored the copy
	// Missing is the version that the bus held before this event, where this replay has an older entry of the slice and
	// not that one: its copy was lost, and what lay between is unknown. Zero where nothing is known to be missing.
	Missing endpoint.Version
}

// Gap reports whether the entry before this one of the same slice is known to be missing.
func (e HistoryEntry) Gap() bool { return !e.Missing.IsZero() }

// Replay hands the entries that q chooses to handle, in the order of the stream, from one goroutine, and returns nil
// after the last one that was there at opening; with Follow it goes on, and returns nil when ctx ends. It holds a few
// messages at a time, and the last version of at most 200,000 slices to tell gaps by. A lost connection is waited for,
// and nothing is handed twice; after the stream was made again its new content follows.
//
// Any error of handle ends Replay with it. ErrNoPermission and ErrStreamSettings say that the stream cannot be read at
// all. Without Follow the error of a ctx that ends early is returned.
func (h *History) Replay(ctx context.Context, q HistoryQuery, handle func(HistoryEntry) error) error {
	filter, err := q.filter()
	if err != nil {
		return err
	}
	r := &replay{b: h.b, q: q, filter: filter, handle: handle, last: newLastVersions(trackedSlices)}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("replay history: %w", err)
	}
	return nil
}

// filter is the one subject filter of q.
func (q HistoryQuery) filter() (string, error) {
	if q.Last < 0 {
		return "", fmt.Errorf("replay history: the last %d entries", q.Last)
	}
	token := func(what, name string, err error) (string, error) {
		if err != nil || name == "" {
			return "*", err
		}
		if !endpoint.IsLabel(name) {
			return "", fmt.Errorf("replay history: %s name %q is not a DNS label", what, clip(name))
		}
		return name, nil
	}
	cluster, err := token("cluster", q.Cluster, nil)
	namespace, err := token("namespace", q.Namespace, err)
	service, err := token("service", q.Service, err)
	if err != nil {
		return "", err
	}
	if namespace == "*" && service == "*" {
		return filterOf(historyRoot, q.Cluster)
	}
	return historyRoot + cluster + "." + namespace + "." + service + ".*", nil
}

// History is the HISTORY stream.
func (b *Bus) History() *History { return &History{b} }

// trackedSlices is how many slices a generation of lastVersions holds.
const trackedSlices = 100_000

// lastVersions knows the highest version shown of each slice, of the most recent ones at least. Its memory is bounded:
// it keeps two generations of entries and drops the older one when the younger is full.
type lastVersions struct {
	limit      int
	young, old map[sliceID]endpoint.Version
}

type sliceID struct {
	key  endpoint.Key
	name string
}

func newLastVersions(limit int) *lastVersions {
	return &lastVersions{limit: limit, young: map[sliceID]endpoint.Version{}}
}

// take notes ev and gives the version before it that was not shown, zero when nothing is known to be missing.
func (l *lastVersions) take(ev *endpoint.Event) (missing endpoint.Version) {
	id := sliceID{ev.Slice.Key, ev.Slice.Name}
	before, known := l.young[id]
	if !known {
		before, known = l.old[id]
	}
	if known && ev.Previous.After(before) {
		missing = ev.Previous
	}
	if ev.Slice.Version.After(before) {
		before = ev.Slice.Version
	}
	if _, held := l.young[id]; !held && len(l.young) >= l.limit {
		l.young, l.old = make(map[sliceID]endpoint.Version, l.limit), l.young
	}
	l.young[id] = before
	return missing
}

// errReplayed ends a replay: all that was there at opening has been handed on.
var errReplayed = errors.New("replayed")
