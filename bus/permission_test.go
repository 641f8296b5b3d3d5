package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// logSink keeps what is logged.
type logSink struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logSink) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logSink) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// logger gives a logger and what it wrote.
func logger() (*slog.Logger, *logSink) {
	l := &logSink{}
	return slog.New(slog.NewTextHandler(l, nil)), l
}

func (l *logSink) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func withUsers(o *server.Options) {
	o.Users = []*server.User{
		{Username: "admin", Password: "a"},
		{Username: "ca", Password: "c", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{
				"slicecast.v1.events.ca.>", "$JS.API.STREAM.INFO.*", "$JS.API.DIRECT.GET.SLICECAST_EVENTS.slicecast.v1.events.ca.>",
				"$JS.API.CONSUMER.CREATE.SLICECAST_EVENTS.*.slicecast.v1.events.ca.>",
				"$JS.API.CONSUMER.MSG.NEXT.SLICECAST_EVENTS.*", "$JS.API.CONSUMER.DELETE.SLICECAST_EVENTS.*",
			}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_ca.>"}},
		}},
	}
}

func TestAWatcherNeedsOnlyThePermissionsOfItsCluster(t *testing.T) {
	s := startServer(t, withUsers)
	admin := connect(t, bus.Config{URLs: []string{s.url}, User: "admin", Password: "a"})
	b := connect(t, bus.Config{URLs: []string{s.url}, User: "ca", Password: "c", InboxPrefix: "_INBOX_ca"})
	own := bustest.Event("ca", "shop", "shop-a", 1, 1)
	if r, err := b.Events().Put(t.Context(), own, 0); err != nil || !r.Saved {
		t.Errorf("own event: got %+v, %v, want it saved", r, err)
	}
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.Events().Follow(ctx, "ca", true, handle)
	})
	if got := r.WaitComplete(t, 1); len(got) != 3 {
		t.Errorf("own session: got %+v, want one event", got)
	}
	if n, err := b.Events().Get(t.Context(), own.Slice.Key, "shop-a"); err != nil || n.Kind != ledger.Changed {
		t.Errorf("own read: got %+v, %v", n, err)
	}
	other := bustest.Event("cb", "shop", "shop-a", 1, 1)
	// Without the mapping of the asynchronous error this would be the error of a time-out, 5 s later.
	if r, err := b.Events().Put(t.Context(), other, 0); !errors.Is(err, bus.ErrNoPermission) || r.Saved {
		t.Errorf("another cluster's event: got %+v, %v, want ErrNoPermission", r, err)
	}
	if n, err := admin.Events().Get(t.Context(), other.Slice.Key, "shop-a"); err != nil || n.Kind != ledger.Absent {
		t.Errorf("another cluster's subject: got %+v, %v, want Absent", n, err)
	}
}

func TestAForeignMessageIsCountedAndLoggedOnce(t *testing.T) {
	s := startServer(t)
	log, reg := &logSink{}, prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{s.url}, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: reg})
	f := followAll(t, b)
	bare := &nats.Msg{Subject: "slicecast.v1.events.ca.prod.shop.bare", Data: []byte("no headers")}
	_, err := b.JetStream().PublishMsg(t.Context(), bare)
	must(t, err)
	f.write(t, 1)
	f.settled(t) // The reader has seen it before the next one takes its place.
	bad := []*nats.Msg{
		{Subject: "slicecast.v1.events.ca.prod.shop.bare", Data: []byte("again")},
		{Subject: "slicecast.v1.events.ca.prod.shop", Data: []byte("too short")},
		{Subject: "slicecast.v1.events.CA.prod.shop.x"},
		{Subject: "slicecast.v1.events.ca._checkpoint", Header: nats.Header{"Slicecast-Operation": {"checkpoint"}}},
	}
	for _, m := range bad {
		if _, err := b.JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	f.write(t, 1)
	f.settled(t)
	if sessions := f.r.Wait(t, "one session", func([][]ledger.Notice) bool { return true }); len(sessions) != 1 || len(sessions[0]) != 7 {
		t.Errorf("got %+v, want Opened, Complete, the two good events, and three refused", sessions)
	}
	if got := log.count("bus message refused"); got != 4 {
		t.Errorf("%d lines, want one for each of 4 subjects", got)
	}
	want := `
# HELP slicecast_bus_bad_messages_total Messages that could not be read, by kind of subject and reason.
# TYPE slicecast_bus_bad_messages_total counter
slicecast_bus_bad_messages_total{kind="checkpoint",reason="body"} 0
slicecast_bus_bad_messages_total{kind="checkpoint",reason="content"} 0
slicecast_bus_bad_messages_total{kind="checkpoint",reason="encoding"} 0
slicecast_bus_bad_messages_total{kind="checkpoint",reason="header"} 1
slicecast_bus_bad_messages_total{kind="checkpoint",reason="mismatch"} 0
slicecast_bus_bad_messages_total{kind="checkpoint",reason="subject"} 0
slicecast_bus_bad_messages_total{kind="event",reason="body"} 0
slicecast_bus_bad_messages_total{kind="event",reason="content"} 0
slicecast_bus_bad_messages_total{kind="event",reason="encoding"} 0
slicecast_bus_bad_messages_total{kind="event",reason="header"} 2
slicecast_bus_bad_messages_total{kind="event",reason="mismatch"} 0
slicecast_bus_bad_messages_total{kind="event",reason="subject"} 0
slicecast_bus_bad_messages_total{kind="other",reason="body"} 0
slicecast_bus_bad_messages_total{kind="other",reason="content"} 0
slicecast_bus_bad_messages_total{kind="other",reason="encoding"} 0
slicecast_bus_bad_messages_total{kind="other",reason="header"} 0
slicecast_bus_bad_messages_total{kind="other",reason="mismatch"} 0
slicecast_bus_bad_messages_total{kind="other",reason="subject"} 2
slicecast_bus_bad_messages_total{kind="record",reason="body"} 0
slicecast_bus_bad_messages_total{kind="record",reason="content"} 0
slicecast_bus_bad_messages_total{kind="record",reason="encoding"} 0
slicecast_bus_bad_messages_total{kind="record",reason="header"} 0
slicecast_bus_bad_messages_total{kind="record",reason="mismatch"} 0
slicecast_bus_bad_messages_total{kind="record",reason="subject"} 0
slicecast_bus_bad_messages_total{kind="state",reason="body"} 0
slicecast_bus_bad_messages_total{kind="state",reason="content"} 0
slicecast_bus_bad_messages_total{kind="state",reason="encoding"} 0
slicecast_bus_bad_messages_total{kind="state",reason="header"} 0
slicecast_bus_bad_messages_total{kind="state",reason="mismatch"} 0
slicecast_bus_bad_messages_total{kind="state",reason="subject"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "slicecast_bus_bad_messages_total"); err != nil {
		t.Error(err)
	}
}

func TestATombstoneHasATimeToLiveAndAcceptedEventsReachHistory(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a.b", 1, 1), 0)
	must(t, err)
	if _, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a.b", 2, 1), 0); err != nil {
		t.Fatal(err)
	}
	_, err = b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a.b", 3, -1), r.Seq)
	must(t, err)
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
	must(t, err)
	msg, err := st.GetLastMsgForSubject(t.Context(), "slicecast.v1.events.ca.prod.shop.shop-a_b")
	must(t, err)
	if ttl := msg.Header.Get(jetstream.MsgTTLHeader); ttl != "24h0m0s" {
		t.Errorf("time to live of a tombstone is %q, want 24h0m0s", ttl)
	}
	history, err := b.JetStream().Stream(t.Context(), "SLICECAST_HISTORY")
	must(t, err)
	deadline := time.Now().Add(patience)
	for {
		info, err := history.Info(t.Context())
		must(t, err)
		if info.State.Msgs == 2 {
			break
		}
		if time.Now().After(deadline) || info.State.Msgs > 2 {
			t.Fatalf("%d messages in history, want the 2 accepted ones", info.State.Msgs)
		}
		time.Sleep(5 * time.Millisecond)
	}
	copied, err := history.GetLastMsgForSubject(t.Context(), "slicecast.v1.history.ca.prod.shop.shop-a_b")
	must(t, err)
	if copied.Header.Get("Slicecast-Operation") != "gone" || copied.Header.Get(jetstream.MsgTTLHeader) != "" {
		t.Errorf("headers of the copy are %v, want a tombstone without time to live", copied.Header)
	}
}
