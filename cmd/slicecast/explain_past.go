package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

// past is what history says of one service: when the conditions of its addresses changed, slice by slice.
type past map[pastSlice]*slicePast

type pastSlice struct{ cluster, slice string }

// slicePast is what history says of one slice. What it has lost is no later than a bound.
type slicePast struct {
	oldest  time.Time // of its first entry
	gap     moment    // the last entry before which one is missing
	changes map[netip.Addr]moment
}

// moment is a version of a slice and when it was seen.
type moment struct {
	version endpoint.Version
	at      time.Time
}

// readPast replays the history of one service. It waits for the bus no longer than any command does.
func readPast(ctx context.Context, replay func(context.Context, bus.HistoryQuery, func(bus.HistoryEntry) error) error, q bus.HistoryQuery) (past, error) {
	p := past{}
	waited := errors.New("history does not end")
	ctx, stop := context.WithTimeoutCause(ctx, clientPatience, waited)
	defer stop()
	err := replay(ctx, q, func(e bus.HistoryEntry) error {
		p.take(e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return p, nil
}

// take takes one entry. Those of two watchers may come in another order than their versions.
func (p past) take(e bus.HistoryEntry) {
	sl := &e.Event.Slice
	id := pastSlice{sl.Key.Cluster, sl.Name}
	now := moment{sl.Version, sl.Observed}
	if now.at.IsZero() {
		now.at = e.Stored
	}
	s := p[id]
	if s == nil {
		s = &slicePast{oldest: now.at, changes: map[netip.Addr]moment{}}
		p[id] = s
	}
	if now.at.Before(s.oldest) {
		s.oldest = now.at
	}
	if e.Gap() && now.version.After(s.gap.version) {
		s.gap = now
	}
	for _, t := range e.Event.Transitions {
		if now.version.After(s.changes[t.Addr].version) {
			s.changes[t.Addr] = now
		}
	}
}

// changed gives when the conditions of an address last changed in its slice; where history does not tell, a time that
// this was not after (exact is false), zero when nothing is known.
func (p past) changed(v *xdsserver.Verdict) (at time.Time, exact bool) {
	s := p[pastSlice{v.Cluster, v.Slice}]
	if s == nil {
		return v.Observed, false
	}
	last, known := s.changes[v.Addr.Addr()]
	switch {
	case last.version.After(v.Version) || s.gap.version.After(v.Version):
		return v.Observed, false // History is ahead of the state that is explained.
	case s.gap.version.After(last.version):
		return s.gap.at, false // What was lost may have changed it.
	case known:
		return last.at, true
	case v.Observed.IsZero() || s.oldest.Before(v.Observed):
		return s.oldest, false
	default:
		return v.Observed, false
	}
}
