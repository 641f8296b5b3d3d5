package bustest

import (
	"context"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// EventStore reads and writes events.
type EventStore interface {
	Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error
	Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error)
	Get(ctx context.Context, key endpoint.Key, slice string) (ledger.Notice, error)
}

// RecordStore reads and writes cluster records.
type RecordStore interface {
	Record(ctx context.Context, cluster string) (ledger.Record, uint64, error)
	PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error)
	FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error
}

// Certifier writes checkpoints.
type Certifier interface {
	Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error)
}

// StateStore reads and writes states.
type StateStore interface {
	Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error
	Put(ctx context.Context, st endpoint.State, expect uint64) (ledger.Result, error)
	Get(ctx context.Context, key endpoint.Key) (ledger.Notice, error)
}

// Laster knows the last sequence of a stream.
type Laster interface {
	Last(ctx context.Context) (uint64, error)
}

// Made is a fresh, empty bus, and what can befall it.
type Made struct {
	Events interface {
		EventStore
		RecordStore
		Certifier
	}
	States interface {
		StateStore
		Certifier
		Laster
	}
	Restart func(t *testing.T) // the connection is lost and comes back; content stays
	Wipe    func(t *testing.T) // the connection is lost and comes back; all content is gone
}

// Suite checks the contract of a bus. It calls fresh for each test.
func Suite(t *testing.T, fresh func(t *testing.T) Made) {
	for _, tt := range [...]struct {
		name string
		run  func(*testing.T, Made)
	}{
		{"a write wins only where it expects what is there", testCompareAndSet},
		{"of many writers with one expectation one wins", testRace},
		{"get says what a subject holds", testGet},
		{"an invalid value is refused", testInvalid},
		{"records and checkpoints are compared and set", testRecords},
		{"an empty stream ends its snapshot", testEmpty},
		{"a session is snapshot, complete, and what follows", testSession},
		{"a filtered session ends its snapshot whatever came last", testFiltered},
		{"headers alone say all but the body", testHeadersOnly},
		{"only records reach a reader of records", testFollowRecords},
		{"states travel whole, large ones too", testStates},
		{"a reader under writes ends with the last of each subject", testConverges},
		{"a stuck reader stops nobody and gets the newest", testStuckReader},
		{"a resync opens a new session", testResync},
		{"any other error of a handler ends its follow", testHandlerError},
		{"a lost connection opens a new session with all content", testRestart},
		{"a wiped bus opens a new session with another creation", testWipe},
		{"a follow ends with its context", testEnds},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, fresh(t)) })
	}
}
