package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
)

// chronicle writes events, each over the one before it, and waits until all copies are there.
type chronicle struct {
	b      *bus.Bus
	seqs   map[string]uint64
	copies uint64
}

func newChronicle(b *bus.Bus) *chronicle { return &chronicle{b: b, seqs: map[string]uint64{}} }

// write puts the event of a slice, named as its service, at resource, which says that previous was before it.
func (c *chronicle) write(t *testing.T, cluster, service string, resource, previous uint64) {
	t.Helper()
	ev := bustest.Event(cluster, service, service, resource, 1)
	if previous > 0 {
		ev.Previous = endpoint.Version{Generation: 1, Resource: previous}
	}
	id := cluster + "/" + service
	r, err := c.b.Events().Put(t.Context(), ev, c.seqs[id])
	if err != nil || !r.Saved {
		t.Fatalf("put: got %+v, %v", r, err)
	}
	c.seqs[id] = r.Seq
	c.copies++
	c.settle(t)
}

// settle waits for all copies. One after the other keeps their order plain.
func (c *chronicle) settle(t *testing.T) {
	t.Helper()
	st, err := c.b.JetStream().Stream(t.Context(), "SLICECAST_HISTORY")
	must(t, err)
	for deadline := time.Now().Add(patience); ; {
		info, err := st.Info(t.Context())
		must(t, err)
		if info.State.LastSeq >= c.copies {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d copies, want %d", info.State.LastSeq, c.copies)
		}
	}
}

// many writes n events of a cluster, by turns of so many services.
func (c *chronicle) many(t *testing.T, cluster string, services, n int) {
	t.Helper()
	for i := range n {
		service := fmt.Sprintf("s%d", i%services)
		id := cluster + "/" + service
		r, err := c.b.Events().Put(t.Context(), bustest.Event(cluster, service, service, uint64(i+1), 0), c.seqs[id])
		if err != nil || !r.Saved {
			t.Fatalf("put: got %+v, %v", r, err)
		}
		c.seqs[id] = r.Seq
		c.copies++
		if i%500 == 0 {
			c.settle(t) // not more than may be on their way
		}
	}
	c.settle(t)
}

// replay gives the entries of q as text, "<cluster>/<service>@<resource>", with the missing version after '!'.
func replay(t *testing.T, b *bus.Bus, q bus.HistoryQuery) []string {
	t.Helper()
	got := []string{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := b.History().Replay(ctx, q, func(e bus.HistoryEntry) error {
		got = append(got, entryText(e))
		return nil
	})
	if err != nil {
		t.Fatalf("replay of %+v: %v", q, err)
	}
	return got
}

func entryText(e bus.HistoryEntry) string {
	s := e.Event.Slice
	text := fmt.Sprintf("%s/%s@%d", s.Key.Cluster, s.Key.Service, s.Version.Resource)
	if e.Gap() {
		text += fmt.Sprintf("!%d", e.Missing.Resource)
	}
	return text
}

func wantEntries(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestHistoryIsReplayedInOrderAndGapsAreSeen(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	wantEntries(t, "nothing recorded", replay(t, b, bus.HistoryQuery{}))
	c := newChronicle(b)
	c.write(t, "ca", "web", 1, 0)
	c.write(t, "cb", "web", 5, 4) // first of its slice: what was before may have been too old
	c.write(t, "ca", "api", 2, 0)
	c.write(t, "ca", "web", 3, 1)
	c.write(t, "ca", "web", 9, 7) // the copy of 7 is missing
	c.write(t, "ca", "api", 4, 0) // the bus was lost in between
	wantEntries(t, "all", replay(t, b, bus.HistoryQuery{}), "ca/web@1", "cb/web@5", "ca/api@2", "ca/web@3", "ca/web@9!7", "ca/api@4")
	wantEntries(t, "cluster", replay(t, b, bus.HistoryQuery{Cluster: "cb"}), "cb/web@5")
	wantEntries(t, "service", replay(t, b, bus.HistoryQuery{Service: "api"}), "ca/api@2", "ca/api@4")
	wantEntries(t, "namespace", replay(t, b, bus.HistoryQuery{Namespace: "shop"}))
	wantEntries(t, "service of a cluster", replay(t, b, bus.HistoryQuery{Cluster: "ca", Namespace: "prod", Service: "web"}), "ca/web@1", "ca/web@3", "ca/web@9!7")
	wantEntries(t, "last 2", replay(t, b, bus.HistoryQuery{Last: 2}), "ca/web@9", "ca/api@4")
	wantEntries(t, "last of a service", replay(t, b, bus.HistoryQuery{Service: "web", Last: 1}), "ca/web@9")
	wantEntries(t, "more than there is", replay(t, b, bus.HistoryQuery{Cluster: "cb", Last: 100}), "cb/web@5")
}

func TestAnEntryOfHistoryIsTheWholeEvent(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	ev := bustest.Event("ca", "web", "web-x.y", 3, 700)
	r, err := b.Events().Put(t.Context(), ev, 0)
	must(t, err)
	gone := bustest.Event("ca", "web", "web-x.y", 4, -1)
	gone.Previous = ev.Slice.Version
	_, err = b.Events().Put(t.Context(), gone, r.Seq)
	must(t, err)
	c.copies = 2
	c.settle(t)
	var got []endpoint.Event
	err = b.History().Replay(t.Context(), bus.HistoryQuery{}, func(e bus.HistoryEntry) error {
		if got = append(got, e.Event); e.Seq != uint64(len(got)) || e.Stored.IsZero() || e.Gap() {
			t.Errorf("entry %d: got sequence %d, stored %s, missing %s", len(got), e.Seq, e.Stored, e.Missing)
		}
		return nil
	})
	must(t, err)
	if diff := cmp.Diff([]endpoint.Event{ev, gone}, got, cmp.Comparer(func(a, b endpoint.Endpoint) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHistorySinceATimeBeginsThere(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	for i := range uint64(5) {
		c.write(t, "ca", "web", i+1, i)
	}
	var stored []time.Time
	must(t, b.History().Replay(t.Context(), bus.HistoryQuery{}, func(e bus.HistoryEntry) error {
		stored = append(stored, e.Stored)
		return nil
	}))
	wantEntries(t, "years ago", replay(t, b, bus.HistoryQuery{Since: time.Now().AddDate(-30, 0, 0)}), "ca/web@1", "ca/web@2", "ca/web@3", "ca/web@4", "ca/web@5")
	wantEntries(t, "since the fourth", replay(t, b, bus.HistoryQuery{Since: stored[3]}), "ca/web@4", "ca/web@5")
	wantEntries(t, "since after the fourth", replay(t, b, bus.HistoryQuery{Since: stored[3].Add(1)}), "ca/web@5")
	wantEntries(t, "since the second, last 3", replay(t, b, bus.HistoryQuery{Since: stored[1], Last: 3}), "ca/web@3", "ca/web@4", "ca/web@5")
	wantEntries(t, "since the fourth, last 3", replay(t, b, bus.HistoryQuery{Since: stored[3], Last: 3}), "ca/web@4", "ca/web@5")
	wantEntries(t, "in an hour", replay(t, b, bus.HistoryQuery{Since: time.Now().Add(time.Hour)}))
}

func TestTheLastEntriesOfALongHistoryAreExact(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	c.many(t, "ca", 3, 1500)
	c.many(t, "cb", 1, 700)
	for _, n := range [...]int{1, 2, 7, 333, 499, 500, 501} {
		got := replay(t, b, bus.HistoryQuery{Cluster: "ca", Service: "s1", Last: n})
		var want []string
		for i := 1; i < 1500; i += 3 {
			want = append(want, fmt.Sprintf("ca/s1@%d", i+1))
		}
		wantEntries(t, fmt.Sprintf("last %d", n), got, want[max(0, len(want)-n):]...)
	}
	if got := replay(t, b, bus.HistoryQuery{Last: 1000}); len(got) != 1000 || got[0] != "ca/s0@1201" || got[999] != "cb/s0@700" {
		t.Errorf("last 1000 of all: got %d, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_HISTORY")
	must(t, err)
	if n := st.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d readers are left on the server, want none", n)
	}
}

func TestAReplayEndsThoughMoreIsRecordedMeanwhile(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	for i := range uint64(4) {
		c.write(t, "ca", "web", i+1, i)
	}
	for _, q := range [...]bus.HistoryQuery{{}, {Last: 4}, {Service: "web", Since: time.Now().Add(-time.Hour)}} {
		n, before := 0, c.copies
		must(t, b.History().Replay(t.Context(), q, func(bus.HistoryEntry) error {
			n++
			c.write(t, "ca", "web", c.copies+1, c.copies)
			return nil
		}))
		if want := before; q.Last == 0 && uint64(n) != want || q.Last > 0 && n != q.Last {
			t.Errorf("%+v: got %d entries of %d, want those at opening", q, n, want)
		}
	}
}

func TestAReplayEndsWhenWhatWasToComeIsThereNoMore(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	c.many(t, "ca", 1, 600) // more than is on its way at once
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_HISTORY")
	must(t, err)
	n := 0
	must(t, b.History().Replay(t.Context(), bus.HistoryQuery{}, func(bus.HistoryEntry) error {
		if n++; n == 1 {
			return st.Purge(t.Context())
		}
		return nil
	}))
	if n < 1 || n > 400 {
		t.Errorf("got %d entries, want only what was on its way at the purge", n)
	}
}

// followHistory replays with Follow until the test ends, and gives what comes.
func followHistory(t *testing.T, b *bus.Bus, q bus.HistoryQuery) <-chan string {
	t.Helper()
	q.Follow = true
	got, result := make(chan string, 1000), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		result <- b.History().Replay(ctx, q, func(e bus.HistoryEntry) error {
			got <- entryText(e)
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("replay with follow ended with %v", err)
		}
	})
	return got
}

func wantNext(t *testing.T, got <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case g := <-got:
			if g != w {
				t.Fatalf("got %s, want %s", g, w)
			}
		case <-time.After(patience):
			t.Fatalf("%s did not come", w)
		}
	}
}

func TestAReplayThatFollowsSurvivesTheBus(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	writer := connect(t, bus.Config{URLs: []string{s.url}})
	c := newChronicle(writer)
	c.write(t, "ca", "web", 1, 0)
	c.write(t, "ca", "web", 2, 1)
	got := followHistory(t, b, bus.HistoryQuery{Last: 1})
	wantNext(t, got, "ca/web@2")
	c.write(t, "ca", "web", 3, 2)
	wantNext(t, got, "ca/web@3")
	must(t, b.Reconnect())
	c.write(t, "ca", "web", 5, 4)
	wantNext(t, got, "ca/web@5!4")
	must(t, b.JetStream().DeleteStream(t.Context(), "SLICECAST_HISTORY"))
	*c = *newChronicle(writer)
	for { // The stream is made again by its reader; a copy sent before that is lost.
		if _, err := b.JetStream().Stream(t.Context(), "SLICECAST_HISTORY"); err == nil {
			break
		} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.write(t, "ca", "api", 1, 0)
	wantNext(t, got, "ca/api@1")
}

func TestAReplayWithFollowSurvivesARestartOfTheServer(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	c := newChronicle(b)
	c.write(t, "ca", "web", 1, 0)
	got := followHistory(t, b, bus.HistoryQuery{Cluster: "ca"})
	wantNext(t, got, "ca/web@1")
	s.restart(t)
	c.b = connect(t, bus.Config{URLs: []string{s.url}})
	c.write(t, "ca", "web", 2, 1)
	wantNext(t, got, "ca/web@2")
}

func TestAForeignMessageInHistoryIsCountedAndLeftOut(t *testing.T) {
	log, reg := &logSink{}, prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: reg})
	c := newChronicle(b)
	c.write(t, "ca", "web", 1, 0)
	for range 3 {
		_, err := b.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: "slicecast.v1.history.ca.prod.web.web", Data: []byte("foreign")})
		must(t, err)
		c.copies++
	}
	c.write(t, "ca", "web", 2, 1)
	wantEntries(t, "all", replay(t, b, bus.HistoryQuery{}), "ca/web@1", "ca/web@2")
	wantEntries(t, "last 2 messages, one of them foreign", replay(t, b, bus.HistoryQuery{Last: 2}), "ca/web@2")
	if got := log.count("bus message refused"); got != 1 {
		t.Errorf("%d lines for one subject, want 1", got)
	}
	if n, err := testutil.GatherAndCount(reg, "slicecast_bus_bad_messages_total"); err != nil || n == 0 {
		t.Errorf("no count of refused messages: %v", err)
	}
}

func TestAReaderOfHistoryNeedsOnlyThePermissionsOfItsCluster(t *testing.T) {
	s := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "ca", Password: "c", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.CREATE.SLICECAST_HISTORY.*.slicecast.v1.history.ca.>",
					"$JS.API.CONSUMER.MSG.NEXT.SLICECAST_HISTORY.*", "$JS.API.CONSUMER.DELETE.SLICECAST_HISTORY.*",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_ca.>"}},
			}},
		}
	})
	c := newChronicle(connect(t, bus.Config{URLs: []string{s.url}, User: "admin", Password: "a"}))
	c.many(t, "ca", 2, 400)
	c.write(t, "cb", "web", 1, 0)
	b := connect(t, bus.Config{URLs: []string{s.url}, User: "ca", Password: "c", InboxPrefix: "_INBOX_ca"})
	wantEntries(t, "own", replay(t, b, bus.HistoryQuery{Cluster: "ca", Last: 2}), "ca/s0@399", "ca/s1@400")
	wantEntries(t, "own service", replay(t, b, bus.HistoryQuery{Cluster: "ca", Service: "s1", Last: 1}), "ca/s1@400")
	for _, q := range [...]bus.HistoryQuery{{Cluster: "cb"}, {}, {Service: "s1"}} {
		err := b.History().Replay(t.Context(), q, func(e bus.HistoryEntry) error { return fmt.Errorf("got %s", entryText(e)) })
		if !errors.Is(err, bus.ErrNoPermission) {
			t.Errorf("%+v: got %v, want ErrNoPermission", q, err)
		}
	}
}

func TestAReplayEndsWithItsHandlerOrItsContext(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	c := newChronicle(b)
	c.write(t, "ca", "web", 1, 0)
	c.write(t, "ca", "web", 2, 1)
	enough := errors.New("enough")
	if err := b.History().Replay(t.Context(), bus.HistoryQuery{}, func(bus.HistoryEntry) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the handler's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := b.History().Replay(ctx, bus.HistoryQuery{}, func(bus.HistoryEntry) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cut off: got %v, want context.Canceled", err)
	}
	for _, q := range [...]bus.HistoryQuery{{Cluster: "CA"}, {Namespace: "a.b"}, {Service: ">"}, {Last: -1}} {
		if err := b.History().Replay(t.Context(), q, nil); err == nil || !strings.Contains(err.Error(), "replay history") {
			t.Errorf("%+v: got %v, want it refused", q, err)
		}
	}
}
