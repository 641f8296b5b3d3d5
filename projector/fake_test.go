package projector

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// fake is a bus in memory: both streams, with the notices that the real one gives.
type fake struct {
	events, states *fakeStream

	mu        sync.Mutex // guards what follows
	putFails  int        // writes of States that are refused with an error
	block     chan struct{}
	latency   time.Duration // of a write of a State
	flying    int
	mostAtAll int
	certified []time.Time
}

func newFake() *fake { return &fake{events: newFakeStream(), states: newFakeStream()} }

// fakeStream is one stream.
type fakeStream struct {
	mu       sync.Mutex // guards what follows
	seq      uint64
	last     map[string]ledger.Notice
	log      []ledger.Notice
	grown    chan struct{} // closed and made anew with each message
	sessions int
	broken   error
}

func newFakeStream() *fakeStream {
	return &fakeStream{last: map[string]ledger.Notice{}, grown: make(chan struct{})}
}

func (s *fakeStream) put(n ledger.Notice, expect uint64) ledger.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	subject := n.Cluster + " " + subjectOf(n)
	if s.last[subject].Seq != expect {
		return ledger.Result{}
	}
	s.seq++
	n.Seq, n.Stored = s.seq, time.Now()
	s.last[subject] = n
	s.log = append(s.log, n)
	close(s.grown)
	s.grown = make(chan struct{})
	return ledger.Result{Saved: true, Seq: s.seq}
}

func (s *fakeStream) get(n ledger.Notice) ledger.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, some := s.last[n.Cluster+" "+subjectOf(n)]; some {
		return last
	}
	n.Kind = ledger.Absent
	return n
}

// session reads the stream until ctx ends or handle returns an error.
func (s *fakeStream) session(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	s.mu.Lock()
	all := slices.SortedFunc(maps.Values(s.last), func(a, b ledger.Notice) int { return cmp.Compare(a.Seq, b.Seq) })
	all = append(append([]ledger.Notice{{Kind: ledger.Opened}}, all...), ledger.Notice{Kind: ledger.Complete, Seq: s.seq})
	read := len(s.log)
	s.sessions++
	s.mu.Unlock()
	for {
		for _, n := range all {
			if cluster == "" || n.Cluster == "" || n.Cluster == cluster {
				if err := handle(n); err != nil {
					return err
				}
			}
		}
		s.mu.Lock()
		all, read = slices.Clone(s.log[read:]), len(s.log)
		grown := s.grown
		s.mu.Unlock()
		if len(all) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *fakeStream) follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	if s.broken != nil {
		return s.broken
	}
	for ctx.Err() == nil {
		if err := s.session(ctx, cluster, handle); !errors.Is(err, ledger.ErrResync) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

type fakeEvents struct{ f *fake }

func (e fakeEvents) Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error {
	if headersOnly {
		return errors.New("a projector needs bodies")
	}
	return e.f.events.follow(ctx, cluster, handle)
}

func (f *fake) Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	return f.states.follow(ctx, cluster, handle)
}

func (f *fake) Put(ctx context.Context, st endpoint.State, expect uint64) (ledger.Result, error) {
	f.mu.Lock()
	f.flying++
	f.mostAtAll = max(f.mostAtAll, f.flying)
	block, fail, latency := f.block, f.putFails > 0, f.latency
	if fail {
		f.putFails--
	}
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.flying--; f.mu.Unlock() }()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ledger.Result{}, ctx.Err()
		}
	}
	time.Sleep(latency)
	if fail {
		return ledger.Result{}, errors.New("no responders")
	}
	return f.states.put(ledger.Notice{Kind: ledger.Changed, Cluster: st.Key.Cluster, Key: st.Key, State: &st}, expect), nil
}

func (f *fake) Get(_ context.Context, key endpoint.Key) (ledger.Notice, error) {
	return f.states.get(ledger.Notice{Cluster: key.Cluster, Key: key}), nil
}

func (f *fake) Certify(_ context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	r := f.states.put(ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Checkpoint: cp}, expect)
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Saved {
		f.certified = append(f.certified, time.Now())
	}
	return r, nil
}

// tell stores events in the notation of traces.
func (f *fake) tell(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		step, err := endpointtest.ParseStep(line)
		if err != nil {
			t.Fatal(err)
		}
		n := noticeOf(*step.Event, 0)
		f.events.put(n, f.events.get(n).Seq)
	}
}

// complete stores a checkpoint that is true of the cluster's events.
func (f *fake) complete(t *testing.T, cluster, v string) {
	t.Helper()
	f.events.mu.Lock()
	view := map[string]ledger.Notice{}
	for subject, n := range f.events.last {
		if n.Cluster == cluster && n.Kind == ledger.Changed {
			view[subject] = n
		}
	}
	asOf := f.events.seq
	f.events.mu.Unlock()
	count, sum := sumOf(view)
	n := ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Checkpoint: ledger.Checkpoint{
		Complete: versionOf(t, v), AsOf: asOf, Count: count, Sum: sum, Written: time.Now(),
	}}
	f.events.put(n, f.events.get(n).Seq)
}

// stored gives the State of a Key.
func (f *fake) stored(key endpoint.Key) ledger.Notice {
	return f.states.get(ledger.Notice{Cluster: key.Cluster, Key: key})
}
