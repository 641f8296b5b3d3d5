package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/xdsserver"
)

// source is a bus in memory: what the others read from a map, ours reads from this.
type source struct {
	mu     sync.Mutex
	seq    uint64
	first  []ledger.Notice
	live   chan ledger.Notice
	record ledger.Record
}

func newSource(services int) *source {
	s := &source{live: make(chan ledger.Notice, 1024), record: ledger.Record{UID: "bench", Generation: 1}}
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: 1}}
	for i := range services {
		st := stateOf(i, 0)
		count, sum := ledger.OfState(st)
		cp.Count, cp.Sum = cp.Count+count, cp.Sum.Add(sum)
		s.first = append(s.first, s.notice(st))
	}
	cp.AsOf = s.seq
	s.seq++
	s.first = append(s.first, ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Seq: s.seq, Checkpoint: cp})
	return s
}

func (s *source) notice(st endpoint.State) ledger.Notice {
	s.seq++
	return ledger.Notice{Kind: ledger.Changed, Cluster: cluster, Key: st.Key, Seq: s.seq, State: &st}
}

func (s *source) change(i, n int) error {
	s.mu.Lock()
	m := s.notice(stateOf(i, n))
	s.mu.Unlock()
	s.live <- m
	return nil
}

// Follow has one session that never ends.
func (s *source) Follow(ctx context.Context, _ string, handle func(ledger.Notice) error) error {
	all := append([]ledger.Notice{{Kind: ledger.Opened}}, s.first...)
	all = append(all, ledger.Notice{Kind: ledger.Complete, Seq: s.first[len(s.first)-1].Seq})
	s.first = nil
	for _, n := range all {
		if err := handle(n); err != nil {
			return err
		}
	}
	for {
		select {
		case n := <-s.live:
			if err := handle(n); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Last is the last sequence.
func (s *source) Last(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq, nil
}

// FollowRecords has one record.
func (s *source) FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error {
	for _, n := range []ledger.Notice{{Kind: ledger.Opened}, {Kind: ledger.Recorded, Cluster: cluster, Seq: 1, Record: s.record}, {Kind: ledger.Complete, Seq: 1}} {
		if err := handle(n); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func serveOurs(ctx context.Context, services int) (*backend, error) {
	src := newSource(services)
	s, err := xdsserver.New(xdsserver.Config{
		States: src, Records: src, Listen: "127.0.0.1:0", Expected: []string{cluster}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case err := <-ended:
		cancel()
		return nil, err
	case <-s.Listening():
	}
	return &backend{addr: s.Addr().String(), change: src.change, stop: func() error {
		cancel()
		return <-ended
	}}, nil
}
