package bustest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Fake is a bus in memory. Its Events and States behave as those of the real one: compare-and-set, sessions, last message
// of each subject, coalescing of what a slow reader misses. It settles in a testing/synctest bubble.
type Fake struct {
	// Pause is the time between sessions after ledger.ErrResync; default 1 ms. Set it before use.
	Pause time.Duration

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	down    bool
	failing error
	epoch   int // of connections; another one ends all sessions
	events  *stream
	states  *stream
}

// stream is one stream: the last message of each subject.
type stream struct {
	created time.Time
	last    uint64
	msgs    map[string]ledger.Notice
}

// NewFake gives an empty, connected bus.
func NewFake() *Fake {
	f := &Fake{Pause: time.Millisecond, changed: make(chan struct{})}
	f.events, f.states = newStream(), newStream()
	return f
}

func newStream() *stream {
	return &stream{created: time.Now(), msgs: map[string]ledger.Notice{}}
}

// Events is the EVENTS stream.
func (f *Fake) Events() *FakeEvents { return &FakeEvents{f} }

// States is the STATE stream.
func (f *Fake) States() *FakeStates { return &FakeStates{f} }

// Restart ends every session, as a short loss of the connection does. Content stays.
func (f *Fake) Restart() { f.change(func() { f.epoch++ }) }

// SetDown takes the connection away, or gives it back: calls fail with bus.ErrNotConnected, and sessions end.
func (f *Fake) SetDown(down bool) {
	f.change(func() {
		if down != f.down {
			f.down = down
			f.epoch++
		}
	})
}

// Fail makes every write fail with err until it is called with nil. Reads and sessions go on.
func (f *Fake) Fail(err error) { f.change(func() { f.failing = err }) }

// Wipe loses both streams, as a server does that lost its disk: they are made again empty, with a new Created.
func (f *Fake) Wipe() { f.change(func() { f.epoch++; f.events, f.states = newStream(), newStream() }) }

// WipeStates loses the STATE stream only.
func (f *Fake) WipeStates() { f.change(func() { f.epoch++; f.states = newStream() }) }

// change does what do says under the lock, and wakes every reader.
func (f *Fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fake) put(of func(*Fake) *stream, subject string, n ledger.Notice, expect uint64) (r ledger.Result, err error) {
	f.change(func() {
		switch {
		case f.down:
			err = bus.ErrNotConnected
			return
		case f.failing != nil:
			err = f.failing
			return
		}
		s := of(f)
		if s.msgs[subject].Seq != expect {
			return
		}
		s.last++
		n.Seq, n.Stored = s.last, time.Now()
		s.msgs[subject] = n
		r = ledger.Result{Saved: true, Seq: s.last}
	})
	return r, err
}

func (f *Fake) get(of func(*Fake) *stream, subject string, absent ledger.Notice) (ledger.Notice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return ledger.Notice{}, bus.ErrNotConnected
	}
	if n, ok := of(f).msgs[subject]; ok {
		return n, nil
	}
	absent.Kind = ledger.Absent
	return absent, nil
}

// follower is one Follow.
type follower struct {
	f       *Fake
	of      func(*Fake) *stream
	cluster string // "" for all
	wants   func(ledger.Notice) bool
	handle  func(ledger.Notice) error
}

func (w follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.session(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !errors.Is(err, ledger.ErrResync) {
			return err
		}
		select {
		case <-time.After(w.f.Pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// session ends with nil when a new one has to be opened.
func (w follower) session(ctx context.Context) error {
	epoch, opened := -1, ledger.Notice{Kind: ledger.Opened, Cluster: w.cluster}
	var last, seen uint64
	complete := false
	for ctx.Err() == nil {
		w.f.mu.Lock()
		changed := w.f.changed
		ended := epoch >= 0 && epoch != w.f.epoch
		open := epoch < 0 && !w.f.down
		if open {
			epoch, opened.Created, last = w.f.epoch, w.of(w.f).created, w.of(w.f).last
		}
		var batch []ledger.Notice
		if epoch >= 0 && !ended {
			batch = w.newer(seen)
		}
		w.f.mu.Unlock()
		if ended {
			return nil
		}
		if open {
			if err := w.handle(opened); err != nil {
				return err
			}
		}
		for _, n := range batch {
			seen = n.Seq
			if err := w.handle(n); err != nil {
				return err
			}
		}
		if epoch >= 0 && !complete {
			complete = true
			if err := w.handle(ledger.Notice{Kind: ledger.Complete, Cluster: w.cluster, Seq: last}); err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// newer lists the messages after seen that the reader wants, in stream order. The lock is held.
func (w follower) newer(seen uint64) []ledger.Notice {
	var out []ledger.Notice
	for _, n := range w.of(w.f).msgs {
		if n.Seq > seen && (w.cluster == "" || n.Cluster == w.cluster) && w.wants(n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Notice) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}
