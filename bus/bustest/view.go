package bustest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// patience is how long a test waits for what must come; it is no measure of speed.
const patience = 2 * time.Minute

// Event is a valid event of cluster/prod/service at version 1/resource with so many endpoints; fewer than 0 is a tombstone.
func Event(cluster, service, slice string, resource uint64, endpoints int) endpoint.Event {
	s := endpoint.Slice{
		Key:        endpoint.Key{Cluster: cluster, Namespace: "prod", Service: service},
		Name:       slice,
		UID:        "uid-of-" + slice,
		Version:    endpoint.Version{Generation: 1, Resource: resource},
		Translator: 1,
		Observed:   time.Unix(1_800_000_000, int64(resource)).UTC(),
	}
	if endpoints < 0 {
		return endpoint.Event{Slice: s, Gone: true}
	}
	s.Ports = []endpoint.Port{{Name: "http", Number: 8080}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
			Addr:       netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			Conditions: endpoint.Ready | endpoint.Serving,
			Zone:       "z1",
			TargetKind: "Pod",
			TargetName: fmt.Sprintf("%s-%d", service, i),
			TargetUID:  fmt.Sprintf("00000000-0000-4000-8000-%012d", i*7919),
		})
	}
	return endpoint.Event{Slice: s}
}

// Recorder is a handler that remembers, for tests: the sessions, and the view of the newest one.
type Recorder struct {
	mu       sync.Mutex // guards what follows
	all      []ledger.Notice
	sessions [][]ledger.Notice
	changed  chan struct{}
	answer   error // of the next notice
}

// NewRecorder gives a Recorder that has heard nothing.
func NewRecorder() *Recorder { return &Recorder{changed: make(chan struct{})} }

// Handle is the handler for a Follow.
func (r *Recorder) Handle(n ledger.Notice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, n)
	if n.Kind == ledger.Opened {
		r.sessions = append(r.sessions, nil)
	}
	if last := len(r.sessions) - 1; last >= 0 {
		r.sessions[last] = append(r.sessions[last], n)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	err := r.answer
	r.answer = nil
	return err
}

// Answer makes the next call of Handle return err.
func (r *Recorder) Answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = err
}

// Sessions is how many sessions there were. A session may end at any time: what a test does to end one gives a later one,
// not the second.
func (r *Recorder) Sessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}

// Wait returns once ok holds of the sessions so far, each with its notices, or fails the test.
func (r *Recorder) Wait(t *testing.T, what string, ok func(sessions [][]ledger.Notice) bool) [][]ledger.Notice {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		sessions := make([][]ledger.Notice, len(r.sessions))
		copy(sessions, r.sessions)
		changed := r.changed
		r.mu.Unlock()
		if ok(sessions) {
			return sessions
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s did not come within %s; sessions: %v", what, patience, kinds(sessions))
		}
	}
}

// WaitComplete waits until the session of that number, from 1, has ended its snapshot.
func (r *Recorder) WaitComplete(t *testing.T, session int) []ledger.Notice {
	t.Helper()
	sessions := r.Wait(t, fmt.Sprintf("the snapshot of session %d", session), func(s [][]ledger.Notice) bool {
		return len(s) >= session && has(s[len(s)-1], ledger.Complete)
	})
	return sessions[len(sessions)-1]
}

// Follow runs follow with the Recorder until the test ends or stop is called, which returns what follow returned.
func (r *Recorder) Follow(t *testing.T, follow func(ctx context.Context, handle func(ledger.Notice) error) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	result := make(chan error, 1)
	go func() { result <- follow(ctx, r.Handle) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-result:
			return err
		case <-time.After(patience):
			return fmt.Errorf("follow did not end within %s of its context", patience)
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("follow ended with %v", err)
		}
	})
	return stop
}

func has(notices []ledger.Notice, kind ledger.Kind) bool {
	for _, n := range notices {
		if n.Kind == kind {
			return true
		}
	}
	return false
}

// kinds abbreviates notices for a failure text.
func kinds(sessions [][]ledger.Notice) (out []string) {
	for _, s := range sessions {
		text := ""
		for i, n := range s {
			if i == 40 {
				text += fmt.Sprintf(" ... %d in all", len(s))
				break
			}
			text += fmt.Sprintf(" %d@%d", n.Kind, n.Seq)
		}
		out = append(out, text)
	}
	return out
}

// view is the last event notice of each slice.
func view(notices []ledger.Notice) map[string]ledger.Notice {
	out := map[string]ledger.Notice{}
	for _, n := range notices {
		if n.Kind == ledger.Changed {
			out[n.Key.String()+"/"+n.Slice] = n
		}
	}
	return out
}
