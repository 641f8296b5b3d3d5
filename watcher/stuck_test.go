package watcher

import (
	"context"
	"errors"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// stuckEvents refuses to write one slice.
type stuckEvents struct {
	*bustest.FakeEvents
	name string
}

func (s *stuckEvents) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	if ev.Slice.Name == s.name {
		return ledger.Result{}, errors.New("message too large")
	}
	return s.FakeEvents.Put(ctx, ev, expect)
}
