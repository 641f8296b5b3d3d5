package projector

import (
	"cmp"
	"maps"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// stream is a model of a stream that keeps the last message per subject, and of the faults of a bus.
type stream struct {
	created int
	seq     uint64
	last    map[string]ledger.Notice
	log     []ledger.Notice // since created
	copied  *stream         // what a rollback goes back to
}

func newStream(created int) *stream {
	return &stream{created: created, last: map[string]ledger.Notice{}}
}

func subjectOf(n ledger.Notice) string {
	switch {
	case n.Kind == ledger.Certified:
		return "_checkpoint"
	case n.Slice != "":
		return n.Key.String() + "/" + n.Slice
	default:
		return n.Key.String()
	}
}

// put is a compare-and-set.
func (s *stream) put(n ledger.Notice, expect uint64) bool {
	subject := subjectOf(n)
	if s.last[subject].Seq != expect {
		return false
	}
	s.seq++
	n.Seq = s.seq
	s.last[subject] = n
	s.log = append(s.log, n)
	return true
}

func (s *stream) snapshot() []ledger.Notice {
	return slices.SortedFunc(maps.Values(s.last), func(a, b ledger.Notice) int { return cmp.Compare(a.Seq, b.Seq) })
}

func (s *stream) clone() *stream {
	return &stream{created: s.created, seq: s.seq, last: maps.Clone(s.last), log: slices.Clone(s.log)}
}

// follower is one session after the other with a stream.
type follower struct {
	created int // of the stream that the session reads; -1 when a new session is due
	pending []ledger.Notice
	read    int  // of the stream's log
	ahead   bool // messages are on their way to the follower before they can be replaced
	feed    func(ledger.Notice) bool
}

// step lets the follower read one notice, and reports whether there was one.
func (f *follower) step(s *stream) bool {
	switch {
	case f.created != s.created:
		f.created, f.read = s.created, len(s.log)
		f.pending = append([]ledger.Notice{{Kind: ledger.Opened}}, s.snapshot()...)
		f.pending = append(f.pending, ledger.Notice{Kind: ledger.Complete, Seq: s.seq})
	case len(f.pending) == 0:
		for ; f.read < len(s.log) && len(f.pending) == 0; f.read++ {
			// What has been replaced meanwhile is gone, or on its way already.
			if n := s.log[f.read]; s.last[subjectOf(n)].Seq == n.Seq || f.ahead {
				f.pending = append(f.pending, n)
			}
		}
	}
	if len(f.pending) == 0 {
		return false
	}
	n := f.pending[0]
	f.pending = f.pending[1:]
	if f.feed(n) {
		f.created = -1
	}
	return true
}
