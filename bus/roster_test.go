package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/bus"
)

// roster follows the roster of a role until the test ends.
func roster(t *testing.T, b *bus.Bus, role string, handle func([]bus.Member)) *bus.Roster {
	t.Helper()
	r, err := b.Roster(role)
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Follow(ctx, handle) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("follow the roster: %v", err)
		}
	})
	return r
}

// Whoever was announced before the read is in it, however late the reader is otherwise.
func TestARosterReadHasEverybodyWhoWasAnnouncedBefore(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, strings.TrimPrefix(s.url, "nats://"))
	reader := connect(t, bus.Config{URLs: []string{"nats://" + p.addr()}, ClaimTTL: time.Hour})
	r := roster(t, reader, "xds", func([]bus.Member) {})
	for i := range 20 {
		b := connect(t, bus.Config{URLs: []string{s.url}, Name: fmt.Sprint("xds-", i), ClaimTTL: time.Hour})
		p.set(false, time.Duration(i%3)*5*time.Millisecond)
		announce(t, b, "xds", "")
		eventually(t, "the heartbeat", func() bool { return !b.Heard("xds").IsZero() })
		var set []bus.Member
		eventually(t, "a read", func() bool { // The follower may not have begun.
			var err error
			set, err = r.Read(t.Context())
			return err == nil
		})
		if !slices.ContainsFunc(set, func(m bus.Member) bool { return m.ID == b.ID() && !m.Heard.IsZero() }) || len(set) != i+1 {
			t.Fatalf("read %d: got %d members, want %d with the newest", i, len(set), i+1)
		}
	}
	p.set(true, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if set, err := r.Read(ctx); err == nil {
		t.Errorf("got %v without the bus, want an error", set)
	}
}

func TestARosterHandsOnHeartbeats(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := replica(t, s, "xds")
	announce(t, b, "xds", "a")
	var mu sync.Mutex
	heard := map[time.Time]bool{}
	roster(t, b, "xds", func(set []bus.Member) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range set {
			heard[m.Heard] = true
		}
	})
	eventually(t, "three heartbeats", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) >= 3
	})
	if _, err := b.Roster("a.b"); err == nil {
		t.Error("role a.b: got no error")
	}
}

// list is what a Follow of the list of proxies has said.
type list struct {
	mu       sync.Mutex // guards what follows
	complete int
	bodies   map[string]string
}

func (l *list) Opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies = map[string]string{}
}

func (l *list) Complete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complete++
}

func (l *list) Entry(e bus.ProxyEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Body == nil {
		delete(l.bodies, e.Replica+"."+e.Stream)
	} else if time.Since(e.Stored) < time.Minute {
		l.bodies[e.Replica+"."+e.Stream] = string(e.Body)
	}
}

func (l *list) becomes(t *testing.T, want map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprint("the list to be ", want), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.complete > 0 && fmt.Sprint(l.bodies) == fmt.Sprint(want)
	})
}

func TestTheListOfProxiesHasTheNewestOfEachStreamAndLapses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, Proxies: true})
	must(t, b.Proxies().Put(t.Context(), []bus.ProxyEntry{{Replica: "r1", Stream: "1", Body: []byte("old"), TTL: time.Hour}}))
	l := &list{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Proxies().Follow(ctx, l) }()
	l.becomes(t, map[string]string{"r1.1": "old"})
	must(t, b.Proxies().Put(t.Context(), []bus.ProxyEntry{
		{Replica: "r1", Stream: "1", Body: []byte("new"), TTL: time.Hour},
		{Replica: "r1", Stream: "2", Body: []byte("short"), TTL: time.Second},
		{Replica: "r2", Stream: "1", Body: []byte{}, TTL: time.Hour},
	}))
	l.becomes(t, map[string]string{"r1.1": "new", "r2.1": ""})
	must(t, b.Proxies().Put(t.Context(), []bus.ProxyEntry{{Replica: "r1", Stream: "1"}}))
	l.becomes(t, map[string]string{"r2.1": ""})
	for _, e := range []bus.ProxyEntry{
		{Replica: "a.b", Stream: "1", Body: []byte("x"), TTL: time.Hour}, {Replica: "a", Stream: "*", Body: []byte("x"), TTL: time.Hour},
		{Replica: "a", Stream: "1", Body: []byte("x")}, {Replica: "a", Stream: "1", Body: make([]byte, 10<<10), TTL: time.Hour},
	} {
		if err := b.Proxies().Put(t.Context(), []bus.ProxyEntry{e}); err == nil {
			t.Errorf("got no error for %s.%s", e.Replica, e.Stream)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.stop()
	if err := b.Proxies().Put(t.Context(), []bus.ProxyEntry{{Replica: "r1", Stream: "1", Body: []byte("x"), TTL: time.Hour}}); !errors.Is(err, bus.ErrNotConnected) {
		t.Errorf("without a server: got %v, want ErrNotConnected", err)
	}
}
