package bus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/slicecast/slicecast/bus"
)

// announce makes b a member until the test ends or stop is called.
func announce(t *testing.T, b *bus.Bus, role, info string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Announce(ctx, role, []byte(info)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("announce %s ended with %v", role, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// roll is what a Members has said.
type roll struct {
	mu      sync.Mutex // guards what follows
	sets    [][]bus.Member
	changed chan struct{}
}

func (r *roll) handle(set []bus.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets = append(r.sets, set)
	close(r.changed)
	r.changed = make(chan struct{})
}

// members follows the members of role until the test ends.
func members(t *testing.T, b *bus.Bus, role string) *roll {
	t.Helper()
	r := &roll{changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Members(ctx, role, r.handle) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("members of %s ended with %v", role, err)
		}
	})
	return r
}

// wait returns once the newest set is that of these infos, sorted, and gives all sets so far.
func (r *roll) wait(t *testing.T, infos ...string) [][]bus.Member {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		sets, changed := slices.Clone(r.sets), r.changed
		r.mu.Unlock()
		if len(sets) > 0 && slices.Equal(infosOf(sets[len(sets)-1]), infos) {
			return sets
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("members did not become %q; sets: %v", infos, sets)
		}
	}
}

func infosOf(set []bus.Member) []string {
	infos := []string{}
	for _, m := range set {
		infos = append(infos, string(m.Info))
	}
	slices.Sort(infos)
	return infos
}

// replica is one process of a role, with a short time to live.
func replica(t *testing.T, s *extServer, name string) *bus.Bus {
	t.Helper()
	return connect(t, bus.Config{URLs: []string{s.url}, Name: name, ClaimTTL: time.Second})
}

func TestMembersComeAndGoWithTheirProcesses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a, b := replica(t, s, "xds/host.1/17"), replica(t, s, "xds/host.1/17")
	began := time.Now()
	r := members(t, a, "xds")
	r.wait(t)
	stopA := announce(t, a, "xds", "a")
	r.wait(t, "a")
	stopB := announce(t, b, "xds", "b")
	announce(t, a, "projector", "another role")
	sets := r.wait(t, "a", "b")
	last := sets[len(sets)-1]
	if !slices.IsSortedFunc(last, func(x, y bus.Member) int { return strings.Compare(x.ID, y.ID) }) {
		t.Errorf("%v is not sorted", last)
	}
	for _, m := range last {
		want := a.ID()
		if string(m.Info) == "b" {
			want = b.ID()
		}
		if m.ID != want || !strings.HasPrefix(m.ID, "xds-host-1-17-") || m.Since.Before(began) || m.Since.After(time.Now()) {
			t.Errorf("got %+v, want id %s and a time since %s", m, want, began)
		}
	}
	if a.ID() == b.ID() {
		t.Error("two processes have one id")
	}
	if h := a.Heard("xds"); h.Before(began) || !a.Heard("watcher").IsZero() {
		t.Errorf("heard at %s, want a time since %s, and none of a role that is not announced", h, began)
	}
	stopA()
	r.wait(t, "b")
	stopB()
	r.wait(t)
	announce(t, a, "xds", "again")
	r.wait(t, "again")
}

func TestTheEndOfAMemberIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, ClaimTTL: time.Hour})
	r := members(t, b, "xds")
	stop := announce(t, b, "xds", "a")
	r.wait(t, "a")
	stop()
	r.wait(t)
}

func TestADeadMemberLapses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := replica(t, s, "alive")
	announce(t, b, "xds", "alive")
	dead, err := bus.Connect(t.Context(), fill(t, bus.Config{URLs: []string{s.url}, Name: "dead", ClaimTTL: time.Second}))
	must(t, err)
	stop := announce(t, dead, "xds", "dead")
	r := members(t, b, "xds")
	r.wait(t, "alive", "dead")
	// Longer than the time to live: the heartbeats keep both.
	time.Sleep(1500 * time.Millisecond)
	dead.Close()
	stop()
	sets := r.wait(t, "alive")
	if len(sets) > 3 {
		t.Errorf("got %v, want nobody to go and come", sets)
	}
}

func TestAMemberChangesWhatItSays(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, ClaimTTL: time.Hour})
	r := members(t, b, "xds")
	must(t, b.Update("xds", []byte("before the start")))
	stop := announce(t, b, "xds", "at the start")
	r.wait(t, "before the start")
	must(t, b.Update("xds", []byte("later")))
	r.wait(t, "later")
	stop()
	r.wait(t)
	announce(t, b, "xds", "again")
	r.wait(t, "again")
}

func TestAClaimIsNoMember(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := replica(t, s, "xds")
	release, err := b.Claim(t.Context(), "xds.dir-ca")
	must(t, err)
	defer release()
	announce(t, b, "xds", "a")
	members(t, b, "xds").wait(t, "a")
}

func TestAnnouncementsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := replica(t, s, "xds")
	for _, role := range [...]string{"", "a.b", "*", "a b"} {
		if err := b.Announce(t.Context(), role, nil); err == nil {
			t.Errorf("announce %q: got no error", role)
		}
		if err := b.Members(t.Context(), role, func([]bus.Member) {}); err == nil {
			t.Errorf("members of %q: got no error", role)
		}
	}
	if err := b.Update("xds", make([]byte, 1<<20)); err == nil {
		t.Error("a MiB of info: got no error")
	}
	announce(t, b, "xds", "a")
	members(t, b, "xds").wait(t, "a")
	if err := b.Announce(t.Context(), "xds", nil); err == nil {
		t.Error("twice: got no error")
	}
}

// A lost store has lost the entries of those who live too: nobody may seem gone before he could have said that he lives.
func TestMembersSurviveWhatTheServerLoses(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, s *extServer, b *bus.Bus){
		"restart": func(t *testing.T, s *extServer, _ *bus.Bus) { s.restart(t) },
		"wipe":    func(t *testing.T, s *extServer, _ *bus.Bus) { s.wipe(t) },
		"bucket deleted": func(t *testing.T, _ *extServer, b *bus.Bus) {
			must(t, b.JetStream().DeleteKeyValue(t.Context(), "SLICECAST_REPLICAS"))
		},
		"readers deleted": func(t *testing.T, _ *extServer, b *bus.Bus) {
			st, err := b.JetStream().Stream(t.Context(), "KV_SLICECAST_REPLICAS")
			must(t, err)
			for name := range st.ConsumerNames(t.Context()).Name() {
				must(t, st.DeleteConsumer(t.Context(), name))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			var all []*bus.Bus
			var infos []string
			for i := range 3 {
				// The time to live is far longer than it takes to connect again, also on a busy machine.
				b := connect(t, bus.Config{URLs: []string{s.url}, Name: fmt.Sprint("xds-", i), ClaimTTL: 15 * time.Second})
				all, infos = append(all, b), append(infos, fmt.Sprint(i))
				announce(t, b, "xds", infos[i])
			}
			r := members(t, all[0], "xds")
			before := len(r.wait(t, infos...))
			fault(t, s, all[0])
			after := connect(t, bus.Config{URLs: []string{s.url}, ClaimTTL: 15 * time.Second})
			announce(t, after, "xds", "later")
			for i, set := range r.wait(t, append(slices.Clone(infos), "later")...)[before:] {
				if len(set) < 3 {
					t.Errorf("set %d after the fault is %v, want nobody missing who is alive", i, set)
				}
			}
			members(t, after, "xds").wait(t, append(slices.Clone(infos), "later")...)
		})
	}
}

func TestWhoDiedWhileTheStoreWasLostGoesInTheEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := replica(t, s, "alive")
	announce(t, b, "xds", "alive")
	dead, err := bus.Connect(t.Context(), fill(t, bus.Config{URLs: []string{s.url}, Name: "dead", ClaimTTL: time.Second}))
	must(t, err)
	stop := announce(t, dead, "xds", "dead")
	r := members(t, b, "xds")
	r.wait(t, "alive", "dead")
	s.stop()
	dead.Close()
	stop()
	s.wipe(t)
	r.wait(t, "alive")
}

func TestEntriesThatEndedLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	r := members(t, b, "xds")
	stop := announce(t, b, "xds", "a")
	r.wait(t, "a")
	stop()
	r.wait(t)
	st, err := b.JetStream().Stream(t.Context(), "KV_SLICECAST_REPLICAS")
	must(t, err)
	msg, err := st.GetLastMsgForSubject(t.Context(), "$KV.SLICECAST_REPLICAS.xds.>")
	must(t, err)
	if ttl := msg.Header.Get("Nats-TTL"); ttl != "1m0s" {
		t.Errorf("the marker of a deleted entry lives %q, want 1m0s", ttl)
	}
}

func TestAnAnnouncementWithoutPermissionIsSaidOnceAndTriedOn(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "reader", Password: "r", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.*"}},
			}},
		}
	})
	connect(t, bus.Config{URLs: []string{s.url}, User: "admin", Password: "a"})
	log, text := logger()
	b := connect(t, bus.Config{URLs: []string{s.url}, User: "reader", Password: "r", ClaimTTL: time.Second, Log: log})
	announce(t, b, "xds", "a")
	deadline := time.Now().Add(patience)
	for text.count("not announced to other replicas") == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("no line; log:\n%s", text)
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Second) // Several tries.
	if n := text.count("not announced to other replicas"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	if !b.Heard("xds").IsZero() {
		t.Error("heard without permission")
	}
}
