package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// isRefused is how a room without this package tells what does not pass by itself.
func isRefused(err error) bool {
	var r interface{ Refused() bool }
	return errors.As(err, &r) && r.Refused()
}

func TestARefusedWriteIsNamedCountedAndSaidOnce(t *testing.T) {
	large := bustest.Event("ca", "shop", "shop-a", 1, 1000)
	for name, tt := range map[string]struct {
		server func(*server.Options)
		make   func(t *testing.T, admin *bus.Bus)
		client bus.Config
		event  endpoint.Event
		want   error
		kind   string
	}{
		"full": {
			client: bus.Config{EventsBytes: 16 << 10}, event: large, want: bus.ErrStreamFull, kind: "full",
		},
		"above the limit of the server": {
			server: func(o *server.Options) { o.MaxPayload = 32 << 10 }, event: large, want: bus.ErrTooLarge, kind: "too_large",
		},
		"above the limit of the stream": {
			make: func(t *testing.T, admin *bus.Bus) {
				st, err := admin.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
				must(t, err)
				cfg := st.CachedInfo().Config
				cfg.MaxMsgSize = 32 << 10
				_, err = admin.JetStream().UpdateStream(t.Context(), cfg)
				must(t, err)
			},
			event: large, want: bus.ErrTooLarge, kind: "too_large",
		},
		"no permission": {
			server: withUsers, client: bus.Config{User: "ca", Password: "c", InboxPrefix: "_INBOX_ca"},
			event: bustest.Event("cb", "shop", "shop-a", 1, 1), want: bus.ErrNoPermission, kind: "no_permission",
		},
		"no stream, and no permission to make one": {
			server: withUsers, client: bus.Config{User: "ca", Password: "c", InboxPrefix: "_INBOX_ca"},
			make:  func(t *testing.T, admin *bus.Bus) { must(t, admin.DeleteStreams(t.Context())) },
			event: bustest.Event("ca", "shop", "shop-a", 1, 1), want: bus.ErrNoPermission, kind: "no_permission",
		},
		"another stream than ours": {
			make: func(t *testing.T, admin *bus.Bus) {
				must(t, admin.DeleteStreams(t.Context()))
				eventually(t, "a place for another stream, once the files of ours are gone", func() bool {
					_, err := admin.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"slicecast.>"}})
					return err == nil
				})
			},
			event: bustest.Event("ca", "shop", "shop-a", 1, 1), want: bus.ErrStreamSettings, kind: "unfit_stream",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, func(o *server.Options) {
				if tt.server != nil {
					tt.server(o)
				}
			})
			admin := bus.Config{URLs: []string{s.url}, EventsBytes: tt.client.EventsBytes}
			if len(s.options.Users) > 0 {
				admin.User, admin.Password = "admin", "a"
			}
			a := connect(t, admin)
			if tt.make != nil {
				tt.make(t, a)
			}
			log, text := logger()
			reg := prometheus.NewRegistry()
			tt.client.URLs, tt.client.Log, tt.client.Metrics = []string{s.url}, log, reg
			b := connect(t, tt.client)
			for range 3 {
				r, err := b.Events().Put(t.Context(), tt.event, 0)
				if !errors.Is(err, tt.want) || r.Saved || !isRefused(err) {
					t.Errorf("got %+v, %v, want %v, which does not pass by itself", r, err, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("more than one line: %q", err)
				}
			}
			if n := samples(t, reg)["slicecast_bus_publish_errors_total{"+tt.kind+"}"]; n != 3 {
				t.Errorf("%v failures counted, want 3", n)
			}
			if text.count("bus refuses what is asked of a stream") != 1 || text.count("kind="+tt.kind) != 1 {
				t.Errorf("want one line of it; log:\n%s", text)
			}
		})
	}
}

func TestWhatIsLateIsNotTakenForRefused(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Events().Put(ctx, bustest.Event("ca", "shop", "shop-a", 1, 1), 0); err == nil || isRefused(err) {
		t.Errorf("a context that has ended: got %v", err)
	}
	s.stop()
	eventually(t, "the loss", func() bool { return !b.Connected() })
	if _, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a", 1, 1), 0); !errors.Is(err, bus.ErrNotConnected) || isRefused(err) {
		t.Errorf("no connection: got %v", err)
	}
}

// A later slicecast may run beside this one: what it wrote is its own.
func TestMessagesOfANewerMajorVersionAreLeftAloneAndCounted(t *testing.T) {
	s := startServer(t)
	log, text := logger()
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{s.url}, Log: log, Metrics: reg})
	f := followAll(t, b)
	f.write(t, 1)
	for i := range 3 {
		m := &nats.Msg{
			Subject: fmt.Sprintf("slicecast.v1.events.ca.prod.shop.newer-%d", i), Data: []byte{0xff, 0xff},
			Header: nats.Header{"Content-Type": {"application/protobuf"}, "ce-type": {"slicecast.v2.event.set"}},
		}
		_, err := b.JetStream().PublishMsg(t.Context(), m)
		must(t, err)
	}
	f.write(t, 2)
	f.settled(t)
	for _, n := range f.r.Wait(t, "one session", func([][]ledger.Notice) bool { return true })[0] {
		if strings.HasPrefix(n.Slice, "newer") {
			t.Errorf("got %+v of it", n)
		}
	}
	ev := bustest.Event("ca", "shop", "newer-0", 1, 1)
	if n, err := b.Events().Get(t.Context(), ev.Slice.Key, ev.Slice.Name); !errors.Is(err, bus.ErrNewer) || !isRefused(err) {
		t.Errorf("get: got %+v, %v, want ErrNewer", n, err)
	}
	if r, err := b.Events().Put(t.Context(), ev, 0); err != nil || r.Saved {
		t.Errorf("put where nothing was heard: got %+v, %v, want it to lose", r, err)
	}
	got := samples(t, reg)
	if n := got["slicecast_bus_newer_messages_total{event}"]; n != 4 {
		t.Errorf("%v counted, want three of the session and one of the read", n)
	}
	for name, n := range got {
		if strings.HasPrefix(name, "slicecast_bus_bad_messages_total") && n != 0 {
			t.Errorf("%s is %v: it is not bad", name, n)
		}
	}
	if n := text.count("messages of a newer slicecast are left alone"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}
