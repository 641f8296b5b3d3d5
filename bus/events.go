package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Events is the EVENTS stream: the last event of each slice, checkpoints and cluster records.
type Events struct{ b *Bus }

// Follow hands every notice of a cluster, or of all clusters when cluster is "", to handle, session after session,
// until ctx ends; then it returns nil. handle is called by one goroutine. When it returns ledger.ErrResync a new
// session opens after a pause; any other error of handle ends Follow with it. With headersOnly notices carry no Event.
func (e *Events) Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error {
	filter, err := filterOf(eventsRoot, cluster)
	if err != nil {
		return err
	}
	return e.b.follow(ctx, reader{spec: e.b.eventsSpec(), filter: filter, cluster: cluster, headersOnly: headersOnly, handle: handle})
}

// FollowRecords is Follow for the records of all clusters: Opened, Recorded and Complete only.
func (e *Events) FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error {
	return e.b.follow(ctx, reader{spec: e.b.eventsSpec(), filter: eventsRoot + "*." + recordToken, handle: handle})
}

// Put writes what a slice is, or that it is gone, where the last message of its subject has sequence expect, 0 when it
// holds none. A tombstone lives 24 h. An accepted event is copied to the history stream.
func (e *Events) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	m, err := e.b.codec.event(ev)
	if err != nil {
		return ledger.Result{}, err
	}
	var ttl time.Duration
	if ev.Gone {
		ttl = tombstoneTTL
	}
	r, err := e.b.put(ctx, e.b.eventsSpec(), m, expect, ttl)
	if r.Saved {
		e.b.remember(m, eventOf(historyRoot, ev.Slice.Key, ev.Slice.Name))
	}
	return r, err
}

// Get reads the last event of a slice from the leader: a Notice of Kind Changed, Absent or Refused.
func (e *Events) Get(ctx context.Context, key endpoint.Key, slice string) (ledger.Notice, error) {
	return e.b.get(ctx, e.b.eventsSpec(), eventOf(eventsRoot, key, slice))
}

// Certify writes the checkpoint of a cluster where the last one has sequence expect, 0 when there is none.
func (e *Events) Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	m, err := e.b.codec.checkpoint(eventsRoot, cluster, cp)
	if err != nil {
		return ledger.Result{}, err
	}
	return e.b.put(ctx, e.b.eventsSpec(), m, expect, 0)
}

// Record reads the record of a cluster and its sequence from the leader; the zero Record and 0 when there is none.
func (e *Events) Record(ctx context.Context, cluster string) (ledger.Record, uint64, error) {
	n, err := e.b.get(ctx, e.b.eventsSpec(), subject{kind: recordSubject, root: eventsRoot, cluster: cluster}.String())
	if err == nil && n.Kind == ledger.Refused {
		err = fmt.Errorf("the record of cluster %s cannot be read", cluster)
	}
	return n.Record, n.Seq, err
}

// PutRecord writes the record of a cluster where the last one has sequence expect, 0 when there is none.
func (e *Events) PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error) {
	m, err := e.b.codec.record(cluster, r)
	if err != nil {
		return ledger.Result{}, err
	}
	return e.b.put(ctx, e.b.eventsSpec(), m, expect, 0)
}
