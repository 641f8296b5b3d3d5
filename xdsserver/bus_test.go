package xdsserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// fakeBus is a STATE stream in memory: last State per Key and last checkpoint per cluster, sessions, and one goroutine
// that hands out notices. Its writers return when the reader has handled the notice.
type fakeBus struct {
	t *testing.T

	mu      sync.Mutex
	seq     uint64
	states  map[endpoint.Key]ledger.Notice
	checks  map[string]ledger.Notice
	records map[string]ledger.Record
	lastErr error
	hidden  uint64 // messages that Last counts and no session has seen yet
	session int

	live    chan delivery
	reopen  chan struct{}
	recLive chan delivery
}

type delivery struct {
	notice ledger.Notice
	done   chan struct{}
}

func newFakeBus(t *testing.T) *fakeBus {
	return &fakeBus{
		t: t, states: map[endpoint.Key]ledger.Notice{}, checks: map[string]ledger.Notice{}, records: map[string]ledger.Record{},
		live: make(chan delivery), reopen: make(chan struct{}, 1), recLive: make(chan delivery),
	}
}

func (b *fakeBus) Last(context.Context) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seq + b.hidden, b.lastErr
}

func (b *fakeBus) Follow(ctx context.Context, _ string, handle func(ledger.Notice) error) error {
	for ctx.Err() == nil {
		err := b.follow(ctx, handle)
		if err != nil && !errors.Is(err, ledger.ErrResync) {
			return err
		}
	}
	return nil
}

func (b *fakeBus) follow(ctx context.Context, handle func(ledger.Notice) error) error {
	b.mu.Lock()
	b.session++
	notices := []ledger.Notice{{Kind: ledger.Opened, Created: time.Unix(1, 0)}}
	stored := append(slices.Collect(maps.Values(b.states)), slices.Collect(maps.Values(b.checks))...)
	slices.SortFunc(stored, func(a, c ledger.Notice) int { return int(a.Seq) - int(c.Seq) })
	notices = append(append(notices, stored...), ledger.Notice{Kind: ledger.Complete, Seq: b.seq})
	b.mu.Unlock()
	for _, n := range notices {
		if err := handle(n); err != nil {
			return err
		}
	}
	for {
		select {
		case d := <-b.live:
			err := handle(d.notice)
			close(d.done)
			if err != nil {
				return err
			}
		case <-b.reopen:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *fakeBus) FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error {
	b.mu.Lock()
	notices := []ledger.Notice{{Kind: ledger.Opened}}
	for name, r := range b.records {
		notices = append(notices, ledger.Notice{Kind: ledger.Recorded, Cluster: name, Record: r})
	}
	notices = append(notices, ledger.Notice{Kind: ledger.Complete})
	b.mu.Unlock()
	for _, n := range notices {
		if err := handle(n); err != nil {
			return err
		}
	}
	for {
		select {
		case d := <-b.recLive:
			err := handle(d.notice)
			close(d.done)
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// store keeps a message; running says whether a session must hear it.
func (b *fakeBus) store(n ledger.Notice, running bool) {
	b.t.Helper()
	b.mu.Lock()
	b.seq++
	n.Seq = b.seq
	if n.Kind == ledger.Certified {
		n.Checkpoint.AsOf = b.seq - 1
		b.checks[n.Cluster] = n
	} else {
		b.states[n.Key] = n
	}
	b.mu.Unlock()
	if running {
		b.deliver(b.live, n)
	}
}

func (b *fakeBus) deliver(to chan delivery, n ledger.Notice) {
	b.t.Helper()
	d := delivery{n, make(chan struct{})}
	select {
	case to <- d:
	case <-time.After(10 * time.Second):
		b.t.Error("nobody reads the bus")
		return
	}
	<-d.done
}

func stateNotice(st endpoint.State) ledger.Notice {
	return ledger.Notice{Kind: ledger.Changed, Cluster: st.Key.Cluster, Key: st.Key, State: &st}
}

// checkpointOf gives a checkpoint of what the stream holds of a cluster.
func (b *fakeBus) checkpointOf(cluster string, complete uint64) ledger.Notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: complete}}
	for key, n := range b.states {
		if key.Cluster == cluster {
			count, sum := ledger.OfState(*n.State)
			cp.Count += count
			cp.Sum = cp.Sum.Add(sum)
		}
	}
	return ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Checkpoint: cp}
}

// stateNoticeAt gives the notice of a State at a sequence.
func stateNoticeAt(seq uint64, st endpoint.State) ledger.Notice {
	n := stateNotice(st)
	n.Seq = seq
	return n
}

func recordOf(region string) ledger.Record {
	return ledger.Record{UID: "uid", Generation: 1, Region: region}
}
