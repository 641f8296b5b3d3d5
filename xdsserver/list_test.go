package xdsserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fakePeers is the registry and the list of proxies in memory.
type fakePeers struct {
	mu      sync.Mutex // guards what follows
	handler ListHandler
	entries map[rollKey]ListEntry
	puts    []int // sizes
	fail    error
	hold    chan struct{} // not nil: Put waits for it
	tell    func([]Peer)
	others  []Peer
	info    []byte
}

func newFakePeers() *fakePeers { return &fakePeers{entries: map[rollKey]ListEntry{}} }

func (f *fakePeers) Put(ctx context.Context, entries []ListEntry) error {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	f.puts = append(f.puts, len(entries))
	err := f.fail
	h := f.handler
	if err == nil {
		for _, e := range entries {
			e.Stored = time.Now()
			f.entries[rollKey{e.Replica, e.Stream}] = e
		}
	}
	f.mu.Unlock()
	if err == nil && h != nil {
		for _, e := range entries {
			e.Stored = time.Now()
			h.Entry(e)
		}
	}
	return err
}

// proxies is the list's side of a fakePeers, whose Follow is another one.
type proxies struct{ *fakePeers }

func (f proxies) Follow(ctx context.Context, h ListHandler) error {
	h.Opened()
	h.Complete()
	f.mu.Lock()
	f.handler = h
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (f *fakePeers) Follow(ctx context.Context, handle func([]Peer)) error {
	f.mu.Lock()
	f.tell = handle
	others := slices.Clone(f.others)
	f.mu.Unlock()
	handle(append(others, Peer{ID: "me"}))
	<-ctx.Done()
	return nil
}

func (f *fakePeers) Read(context.Context) ([]Peer, error) { return nil, nil }

func (f *fakePeers) Announce(ctx context.Context, info []byte) error {
	_ = f.Update(info) // It never fails.
	<-ctx.Done()
	return nil
}

func (f *fakePeers) Update(info []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info = info
	return nil
}

func (f *fakePeers) Heard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.info == nil {
		return time.Time{}
	}
	return time.Now()
}

// registered makes a server one of several.
func registered(f *fakePeers) func(*Config) {
	return func(c *Config) {
		c.Replica = Registration{ID: "me", Name: "me", TTL: time.Minute, Registrar: f, Roster: f, Proxies: proxies{f}}
	}
}

// lists waits until the list has a stream as wanted.
func (f *fakePeers) lists(t *testing.T, stream string, want func(listing) bool) {
	t.Helper()
	for end := time.Now().Add(9 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		e, l := f.entries[rollKey{"me", stream}], listing{}
		f.mu.Unlock()
		if e.Body != nil {
			must(t, json.Unmarshal(e.Body, &l))
			if want(l) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("stream %s is listed as %s", stream, e.Body)
		}
	}
}

func TestAStreamIsOnTheListBeforeItIsSentAnAssignment(t *testing.T) {
	f := newFakePeers()
	f.hold = make(chan struct{})
	b := newBench(t, registered(f), func(c *Config) { c.FirstAnswerWait = time.Hour }).with(cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("cds", nil)
	c.ack(c.recv()) // It holds no address yet.
	c.subscribe("eds", nil, cart)
	select {
	case g := <-c.in:
		t.Fatalf("got %+v, want nothing before the bus knows of the stream", g)
	case <-time.After(50 * time.Millisecond):
	}
	close(f.hold)
	f.lists(t, "1", func(l listing) bool { return l.Node == "envoy-1" && !l.Clean && l.Ended.IsZero() })
	c.ack(c.recv())
	f.lists(t, "1", func(l listing) bool { return l.Clean && l.Ended.IsZero() })
	c.cancel()
	f.lists(t, "1", func(l listing) bool { return l.Clean && !l.Ended.IsZero() })
}

func TestABusThatTakesNoListKeepsNobodyWaiting(t *testing.T) {
	f := newFakePeers()
	f.fail = errors.New("no")
	b := newBench(t, registered(f), func(c *Config) { c.FirstAnswerWait = time.Hour }).with(cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	if got := counter(t, b.server.metrics.listed.WithLabelValues("failed")); got < 1 {
		t.Errorf("%v failed entries are counted", got)
	}
	f.mu.Lock()
	f.fail = nil
	f.mu.Unlock()
	f.lists(t, "1", func(l listing) bool { return l.Clean })
}

func TestAThousandStreamsThatComeAtOnceAreAFewBatches(t *testing.T) {
	f := newFakePeers()
	f.hold = make(chan struct{})
	m, err := newMetrics(nil, nil)
	must(t, err)
	l := newLister(proxies{f}, "me", 10*time.Second, m, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx, time.Second) }()
	const streams = 1000
	since := time.Now()
	for _, clean := range []bool{false, true} { // Each comes, and acknowledges, while the bus is busy.
		for i := range streams {
			l.note(fmt.Sprint(i), listing{Node: "n", Since: since, Clean: clean})
		}
	}
	close(f.hold)
	for i := range streams {
		f.lists(t, fmt.Sprint(i), func(l listing) bool { return l.Clean })
	}
	f.mu.Lock()
	puts := slices.Clone(f.puts)
	f.mu.Unlock()
	sum := 0
	for _, n := range puts {
		sum += n
	}
	// One batch may have begun with the first of them.
	if len(puts) > 4 || sum > streams+listBatch {
		t.Errorf("got batches %v, want a few of %d entries in all", puts, streams)
	}
	for i := range streams {
		l.note(fmt.Sprint(i), listing{Node: "n", Since: since, Ended: time.Now()})
	}
	cancel()
	<-done
	f.lists(t, "999", func(l listing) bool { return !l.Ended.IsZero() })
	if len(l.written)+len(l.pending)+len(l.waiting) > 0 {
		t.Errorf("%d written, %d pending, %d waiting are kept", len(l.written), len(l.pending), len(l.waiting))
	}
}

func TestWhatTheBusDoesNotTakeIsBounded(t *testing.T) {
	m, err := newMetrics(nil, nil)
	must(t, err)
	l := newLister(proxies{newFakePeers()}, "me", 10*time.Second, m, slog.New(slog.DiscardHandler))
	for i := range 100_000 { // They come and go, and nothing is written.
		l.note(fmt.Sprint(i), listing{Node: "n"})
		l.note(fmt.Sprint(i), listing{Node: "n", Ended: time.Now()})
	}
	if n := len(l.pending); n > 10*listBatch+1 {
		t.Errorf("%d entries are kept", n)
	}
}

func TestAnOpenStreamThatGoesFromTheListIsWrittenAgain(t *testing.T) {
	f := newFakePeers()
	b := newBench(t, registered(f)).with(cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	clean := func(l listing) bool { return l.Clean }
	f.lists(t, "1", clean)
	lose := func(how func(h ListHandler)) {
		f.mu.Lock()
		clear(f.entries)
		h := f.handler
		f.mu.Unlock()
		how(h)
	}
	lose(func(h ListHandler) { h.Entry(ListEntry{Replica: "me", Stream: "1"}) })
	f.lists(t, "1", clean)
	lose(func(h ListHandler) { h.Opened(); h.Complete() })
	f.lists(t, "1", clean)
	b.server.hub.lister.refresh(time.Now().Add(listTTL/2 + time.Minute))
	b.server.hub.lister.mu.Lock()
	due := len(b.server.hub.lister.pending)
	b.server.hub.lister.mu.Unlock()
	if due > 1 {
		t.Errorf("%d streams are due", due)
	}
}

func TestAnEntryThatCannotBeReadIsCountedAndLeftAlone(t *testing.T) {
	f := newFakePeers()
	b := newBench(t, registered(f)).with(cartAt(7, "10.0.0.1"))
	heardList{b.server.hub}.Entry(ListEntry{Replica: "a", Stream: "1", Body: []byte("?")})
	if got := counter(t, b.server.metrics.badListed); got != 1 {
		t.Errorf("%v bad entries are counted, want 1", got)
	}
}

func TestAGateIsNotAnsweredBeforeTheListIsHeard(t *testing.T) {
	f := newFakePeers()
	b := newBench(t, registered(f)).with(gateState(7, "10.0.0.1 -st p1", "10.0.0.2 rs- p2"))
	holding(b, gateName)
	b.server.hub.mu.Lock()
	b.server.hub.roll.open()
	b.server.hub.mu.Unlock()
	w := askGate(b)
	w.stands("the list is being read")
	heardList{b.server.hub}.Complete()
	w.drained()
}

func TestAVeryLongNodeIDIsListedByItsHash(t *testing.T) {
	long := string(make([]byte, 1<<20))
	if got := listedNode(long); len(got) > 100 || got == listedNode(long+"x") || listedNode("envoy-1") != "envoy-1" {
		t.Errorf("got %q", got)
	}
}

func TestAReplicaWhoseReaderIsLateTakesNoStreamWhileAnotherIsCurrent(t *testing.T) {
	f := newFakePeers()
	b := newBench(t, registered(f)).with(cartAt(7, "10.0.0.1"))
	taken := func() bool {
		c := b.deltaClient()
		defer c.cancel()
		c.subscribe("eds", nil, cart)
		select {
		case _, open := <-c.in:
			if !open {
				if err := <-c.err; status.Code(err) != codes.Unavailable {
					t.Errorf("the stream ended with %v, want Unavailable", err)
				}
			}
			return open
		case <-time.After(20 * time.Second):
			t.Fatal("the stream neither begins nor ends")
			return false
		}
	}
	becomes := func(want bool, why string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); taken() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: streams are taken: %t", why, !want)
			}
		}
	}
	b.bus.mu.Lock()
	b.bus.hidden = 5 // messages that the reader does not get
	b.bus.mu.Unlock()
	for end := time.Now().Add(20 * time.Second); counter(t, b.server.metrics.current) == 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it counts as current")
		}
	}
	becomes(true, "nobody else is there")
	peer := func(current bool) Peer {
		info, err := json.Marshal(PeerInfo{Name: "other", Current: current})
		must(t, err)
		return Peer{ID: "other", Info: info}
	}
	f.tell([]Peer{{ID: "me"}, peer(false)})
	becomes(true, "the other is behind, too")
	f.tell([]Peer{{ID: "me"}, peer(true)})
	becomes(false, "the other is current")
	f.mu.Lock()
	info := PeerInfo{}
	must(t, json.Unmarshal(f.info, &info))
	f.mu.Unlock()
	if info.Current {
		t.Error("it says that it is current")
	}
	if got := counter(t, b.server.metrics.turnedAway.WithLabelValues(awayBehind)); got < 1 {
		t.Errorf("%v refusals are counted", got)
	}
	b.bus.mu.Lock()
	b.bus.hidden = 0
	b.bus.mu.Unlock()
	becomes(true, "it is current again")
}

func TestARegistrationMustBeWholeAndLastAsLongAsAProxyIsWaitedFor(t *testing.T) {
	f := newFakePeers()
	whole := Registration{ID: "me", TTL: 10 * time.Second, Registrar: f, Roster: f, Proxies: proxies{f}}
	must(t, whole.valid(10*time.Second))
	must(t, Registration{}.valid(10*time.Second))
	if whole.valid(11*time.Second) == nil || (Registration{ID: "me"}).valid(time.Second) == nil {
		t.Error("got no error")
	}
}
