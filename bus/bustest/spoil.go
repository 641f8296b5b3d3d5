package bustest

import (
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Spoil puts a message that cannot be read where the event of a slice is, or may be.
func (e *FakeEvents) Spoil(key endpoint.Key, slice string) {
	e.f.spoil(e.f.events, key.String()+"/"+slice, ledger.Notice{Of: ledger.Changed, Cluster: key.Cluster, Key: key, Slice: slice})
}

// SpoilBody makes the body of the event of a slice one that cannot be read. Its headers say what they said.
func (e *FakeEvents) SpoilBody(key endpoint.Key, slice string) {
	e.f.change(func() {
		s, subject := e.f.events, key.String()+"/"+slice
		s.last++
		n := s.msgs[subject]
		n.Kind, n.Of, n.Event, n.Seq = ledger.Refused, ledger.Changed, nil, s.last
		s.msgs[subject] = n
	})
}

// SpoilCheckpoint puts a message that cannot be read where the checkpoint of a cluster is.
func (e *FakeEvents) SpoilCheckpoint(cluster string) {
	e.f.spoil(e.f.events, checkpointOf+cluster, ledger.Notice{Of: ledger.Certified, Cluster: cluster})
}

// SpoilRecord puts a message that cannot be read where the record of a cluster is.
func (e *FakeEvents) SpoilRecord(cluster string) {
	e.f.spoil(e.f.events, recordOf+cluster, ledger.Notice{Of: ledger.Recorded, Cluster: cluster})
}

func (f *Fake) spoil(s *stream, subject string, n ledger.Notice) {
	f.change(func() {
		s.last++
		n.Kind, n.Seq, n.Stored = ledger.Refused, s.last, time.Now()
		s.msgs[subject] = n
	})
}
