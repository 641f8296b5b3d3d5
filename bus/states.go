package bus

import (
	"context"
	"fmt"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// States is the STATE stream: the last State of each Key, and checkpoints.
type States struct{ b *Bus }

// Follow is Events.Follow for States and their checkpoints.
func (s *States) Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	filter, err := filterOf(stateRoot, cluster)
	if err != nil {
		return err
	}
	return s.b.follow(ctx, reader{spec: s.b.stateSpec(), filter: filter, cluster: cluster, handle: handle})
}

// Put writes the State of a Key where the last one has sequence expect, 0 when there is none. A State above the
// limit of the bus gives ErrTooLarge; the last good one stays.
func (s *States) Put(ctx context.Context, st endpoint.State, expect uint64) (ledger.Result, error) {
	m, err := s.b.codec.state(st)
	if err != nil {
		return ledger.Result{}, err
	}
	return s.b.put(ctx, s.b.stateSpec(), m, expect, 0)
}

// Get reads the State of a Key from the leader: a Notice of Kind Changed, Absent or Refused.
func (s *States) Get(ctx context.Context, key endpoint.Key) (ledger.Notice, error) {
	return s.b.get(ctx, s.b.stateSpec(), stateOf(key))
}

// Certify writes the checkpoint of a cluster's States where the last one has sequence expect, 0 when there is none.
func (s *States) Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	m, err := s.b.codec.checkpoint(stateRoot, cluster, cp)
	if err != nil {
		return ledger.Result{}, err
	}
	return s.b.put(ctx, s.b.stateSpec(), m, expect, 0)
}

// Last is the last sequence of the stream, as its leader has it.
func (s *States) Last(ctx context.Context) (uint64, error) {
	_, info, err := s.b.ensure(ctx, s.b.stateSpec())
	if err == nil {
		err = led(info)
	}
	if err != nil {
		return 0, fmt.Errorf("last sequence: %w", err)
	}
	return info.State.LastSeq, nil
}
