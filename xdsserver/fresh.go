package xdsserver

import (
	"context"
	"sync"
	"time"
)

// lastAsker asks the bus for its last sequence, once for all who came before the question went out: thousands of
// streams that reconnect at a time are a few questions.
type lastAsker struct {
	last    func(context.Context) (uint64, error)
	timeout time.Duration
	wake    chan struct{} // of capacity 1
	mu      sync.Mutex    // guards waiting
	waiting []chan<- lastAnswer
}

type lastAnswer struct {
	seq uint64
	err error
}

func newLastAsker(last func(context.Context) (uint64, error), timeout time.Duration) *lastAsker {
	return &lastAsker{last: last, timeout: timeout, wake: make(chan struct{}, 1)}
}

// ask gives the last sequence of the stream at a moment after the call.
func (a *lastAsker) ask(ctx context.Context) (uint64, error) {
	answer := make(chan lastAnswer, 1)
	a.mu.Lock()
	a.waiting = append(a.waiting, answer)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	select {
	case got := <-answer:
		return got.seq, got.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run asks for those who wait, until ctx ends.
func (a *lastAsker) run(ctx context.Context) {
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		batch := a.waiting
		a.waiting = nil
		a.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, a.timeout)
		seq, err := a.last(bounded)
		cancel()
		for _, one := range batch {
			one <- lastAnswer{seq, err}
		}
	}
}

// reached gives a channel that is closed once everything up to seq is in the memory.
func (s *Store) reached(seq uint64) <-chan struct{} {
	done := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applied >= seq {
		close(done)
		return done
	}
	s.behind = append(s.behind, behind{seq, done})
	return done
}

// behind waits for a sequence to be applied.
type behind struct {
	seq  uint64
	done chan<- struct{}
}

// advance notes that everything up to seq is in the memory.
func (s *Store) advance(seq uint64) {
	s.applied = max(s.applied, seq)
	kept := s.behind[:0]
	for _, b := range s.behind {
		if b.seq <= s.applied {
			close(b.done)
		} else {
			kept = append(kept, b)
		}
	}
	clear(s.behind[len(kept):])
	s.behind = kept
}
