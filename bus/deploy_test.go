package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// deployed starts a server from the files of deploy/nats as they are, with the watcher of cluster ca.
func deployed(t *testing.T) *extServer {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../deploy/nats")))
	template, err := os.ReadFile(filepath.Join(dir, "watcher.conf"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "watcher-ca.conf"), []byte(strings.ReplaceAll(string(template), "@CLUSTER@", "ca")), 0o600))
	for _, role := range [...]string{"WATCHER_CA", "PROJECTOR", "XDS", "READER", "ADMIN"} {
		t.Setenv(role+"_PASSWORD", strings.ToLower(role)+"-password")
	}
	o, err := server.ProcessConfigFile(filepath.Join(dir, "server.conf"))
	must(t, err)
	if !o.SyncAlways || len(o.Users) != 5 || o.MaxPayload != 1<<20 {
		t.Errorf("the file gives sync %v, %d users and payload %d", o.SyncAlways, len(o.Users), o.MaxPayload)
	}
	return startServer(t, func(test *server.Options) {
		o.StoreDir, o.Port, o.HTTPPort = test.StoreDir, test.Port, 0
		o.NoLog, o.NoSigs = true, true
		*test = *o
	})
}

// role is a client of that server, what it logged, and what it counted.
type role struct {
	*bus.Bus
	log *logSink
	reg *prometheus.Registry
}

func as(t *testing.T, s *extServer, user, inbox string) role {
	t.Helper()
	log, text := logger()
	reg := prometheus.NewRegistry()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", user, text)
		}
	})
	password := strings.ReplaceAll(strings.ToLower(user), "-", "_") + "-password"
	b := connect(t, bus.Config{URLs: []string{s.url}, User: user, Password: password, InboxPrefix: inbox, Log: log, Metrics: reg, ClaimTTL: 15 * time.Second,
		Proxies: user == "admin" || user == "xds" || user == "reader"})
	if !b.Connected() {
		t.Fatalf("%s is not connected", user)
	}
	return role{b, text, reg}
}

// quietly checks that nothing was refused or reported so far.
func (r role) quietly(t *testing.T) {
	t.Helper()
	if n := r.log.count("level=WARN") + r.log.count("level=ERROR"); n != 0 {
		t.Errorf("%d warnings at allowed work", n)
	}
}

// refuses checks that do gives ErrNoPermission, not the end of a time-out.
func (r role) refuses(t *testing.T, what string, do func() error) {
	t.Helper()
	if err := do(); !errors.Is(err, bus.ErrNoPermission) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: got %v, want ErrNoPermission", what, err)
	}
}

// refusesFollow checks that a session does not open.
func (r role) refusesFollow(t *testing.T, what string, follow func(context.Context, func(ledger.Notice) error) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refusals := func() float64 { return samples(t, r.reg)["slicecast_bus_async_errors_total{no_permission}"] }
	before, done := refusals(), make(chan error, 1)
	go func() {
		done <- follow(ctx, func(n ledger.Notice) error { return fmt.Errorf("got %+v", n) })
	}()
	eventually(t, what+": three refusals", func() bool { return refusals() >= before+3 || len(done) > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// said checks that what was refused was said in so many lines, one for each stream and for what has none.
func (r role) said(t *testing.T, lines int) {
	t.Helper()
	if n := r.log.count("level=WARN") + r.log.count("level=ERROR"); n != lines {
		t.Errorf("%d lines of what was refused, want %d:\n%s", n, lines, r.log)
	}
}

func put(b *bus.Bus, cluster string) func() error {
	return func() error {
		_, err := b.Events().Put(context.Background(), bustest.Event(cluster, "shop", "shop-a", 1, 1), 0)
		return err
	}
}

func putState(b *bus.Bus) func() error {
	return func() error {
		_, err := b.States().Put(context.Background(), endpoint.State{Key: key("ca")}, 0)
		return err
	}
}

func putRecord(b *bus.Bus, cluster string) func() error {
	return func() error {
		_, err := b.Events().PutRecord(context.Background(), cluster, ledger.Record{UID: "u", Generation: 1}, 0)
		return err
	}
}

func getEvent(b *bus.Bus, cluster string) func() error {
	return func() error {
		_, err := b.Events().Get(context.Background(), key(cluster), "shop-a")
		return err
	}
}

// purge is what nobody but the operator may do.
func purge(b *bus.Bus) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		st, err := b.JetStream().Stream(ctx, "SLICECAST_EVENTS")
		if err != nil {
			return err
		}
		if err := st.Purge(ctx); err == nil {
			return errors.New("purged")
		}
		return bus.ErrNoPermission
	}
}

func putProxy(b *bus.Bus) func() error {
	return func() error {
		return b.Proxies().Put(context.Background(), []bus.ProxyEntry{{Replica: "r", Stream: "1", Body: []byte("x"), TTL: time.Hour}})
	}
}

func key(cluster string) endpoint.Key {
	return endpoint.Key{Cluster: cluster, Namespace: "prod", Service: "shop"}
}

func save(t *testing.T, what string, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestEachRoleNeedsWhatItsPermissionFileSaysAndMayNoMore(t *testing.T) {
	s := deployed(t)
	admin := as(t, s, "admin", "")
	save(t, "an event of another cluster", put(admin.Bus, "cb"))
	watcherWorks(t, s, admin)
	projectorWorks(t, s)
	xdsWorks(t, s)
	readerWorks(t, s)
	save(t, "adopt", putRecord(admin.Bus, "cd"))
	admin.quietly(t)
}

func watcherWorks(t *testing.T, s *extServer, admin role) {
	w := as(t, s, "watcher-ca", "_INBOX_watcher_ca")
	save(t, "its record", putRecord(w.Bus, "ca"))
	save(t, "its event", put(w.Bus, "ca"))
	save(t, "a lost compare-and-set", put(w.Bus, "ca"))
	save(t, "reading it back", getEvent(w.Bus, "ca"))
	if r, seq, err := w.Events().Record(t.Context(), "ca"); err != nil || r.UID != "u" || seq == 0 {
		t.Errorf("its record: got %+v at %d, %v", r, seq, err)
	}
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: 9}, AsOf: 1, Count: 1}
	save(t, "its checkpoint", func() error { _, err := w.Events().Certify(t.Context(), "ca", cp, 0); return err })
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return w.Events().Follow(ctx, "ca", true, handle)
	})
	if got := r.WaitComplete(t, 1); len(got) != 5 {
		t.Errorf("its session: got %+v, want record, event and checkpoint", got)
	}
	release, err := w.Claim(t.Context(), "watcher.dir-ca")
	must(t, err)
	release()
	announce(t, w.Bus, "watcher-ca", "a")
	members(t, w.Bus, "watcher-ca").wait(t, "a")
	serve(t, w.Bus, "floor.ca", func(context.Context, []byte) ([]byte, error) { return []byte("1/9"), nil })
	if got, err := ask(t, as(t, s, "xds", "_INBOX_xds").Bus, "floor.ca", ""); got != "1/9" || err != nil {
		t.Errorf("the floor: got %q, %v", got, err)
	}
	history := admin.History()
	eventually(t, "the copy in history", func() bool {
		n := 0
		must(t, history.Replay(t.Context(), bus.HistoryQuery{Cluster: "ca"}, func(bus.HistoryEntry) error { n++; return nil }))
		return n == 1
	})
	w.quietly(t)

	w.refuses(t, "another cluster's event", put(w.Bus, "cb"))
	w.refuses(t, "another cluster's record", putRecord(w.Bus, "cb"))
	w.refuses(t, "reading another cluster's event", getEvent(w.Bus, "cb"))
	w.refuses(t, "a state", putState(w.Bus))
	w.refuses(t, "the list of proxies", putProxy(w.Bus))
	w.refuses(t, "a purge", purge(w.Bus))
	w.refusesFollow(t, "following another cluster", func(ctx context.Context, h func(ledger.Notice) error) error {
		return w.Events().Follow(ctx, "cb", true, h)
	})
	w.refusesFollow(t, "following all clusters", func(ctx context.Context, h func(ledger.Notice) error) error {
		return w.Events().Follow(ctx, "", true, h)
	})
	w.refusesFollow(t, "following states", func(ctx context.Context, h func(ledger.Notice) error) error {
		return w.States().Follow(ctx, "ca", h)
	})
	w.refuses(t, "an announcement as another role", func() error {
		_, err := w.Claim(t.Context(), "xds.me")
		return err
	})
	w.said(t, 3) // Events, states, the purge.
	hears(t, s, "watcher-ca", "slicecast.v1.events.cb.>", false)
	hears(t, s, "watcher-ca", "_INBOX.>", false)
	if n, err := admin.Events().Get(t.Context(), key("cb"), "shop-a"); err != nil || n.Kind != ledger.Changed {
		t.Errorf("the other cluster's event: got %+v, %v, want it as it was", n, err)
	}
}

func projectorWorks(t *testing.T, s *extServer) {
	p := as(t, s, "projector", "_INBOX_projector")
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return p.Events().Follow(ctx, "", false, handle)
	})
	if got := r.WaitComplete(t, 1); len(got) != 6 {
		t.Errorf("all events: got %+v, want those of both clusters", got)
	}
	save(t, "a state", putState(p.Bus))
	save(t, "a lost compare-and-set", putState(p.Bus))
	if n, err := p.States().Get(t.Context(), key("ca")); err != nil || n.Kind != ledger.Changed {
		t.Errorf("reading a state: got %+v, %v", n, err)
	}
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: 9}, AsOf: 1}
	save(t, "a checkpoint", func() error { _, err := p.States().Certify(t.Context(), "ca", cp, 0); return err })
	states := bustest.NewRecorder()
	states.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return p.States().Follow(ctx, "", handle)
	})
	states.WaitComplete(t, 1)
	announce(t, p.Bus, "projector", "p")
	members(t, p.Bus, "projector").wait(t, "p")
	p.quietly(t)

	p.refuses(t, "an event", put(p.Bus, "ca"))
	p.refuses(t, "a record", putRecord(p.Bus, "ca"))
	p.refuses(t, "a checkpoint of events", func() error { _, err := p.Events().Certify(t.Context(), "ca", cp, 0); return err })
	p.refuses(t, "the list of proxies", putProxy(p.Bus))
	p.refuses(t, "a purge", purge(p.Bus))
	p.said(t, 2)
}

func xdsWorks(t *testing.T, s *extServer) {
	x := as(t, s, "xds", "_INBOX_xds")
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return x.States().Follow(ctx, "", handle)
	})
	if got := r.WaitComplete(t, 1); len(got) != 4 {
		t.Errorf("states: got %+v, want a state and a checkpoint", got)
	}
	records := bustest.NewRecorder()
	records.Follow(t, x.Events().FollowRecords)
	if got := records.WaitComplete(t, 1); len(got) != 3 {
		t.Errorf("records: got %+v, want that of ca", got)
	}
	if last, err := x.States().Last(t.Context()); err != nil || last == 0 {
		t.Errorf("the last sequence: got %d, %v", last, err)
	}
	serve(t, x.Bus, "drain", func(context.Context, []byte) ([]byte, error) { return []byte("drained"), nil })
	if got, err := ask(t, as(t, s, "admin", "").Bus, "drain", ""); got != "drained" || err != nil {
		t.Errorf("a drain question: got %q, %v", got, err)
	}
	announce(t, x.Bus, "xds", "x")
	members(t, x.Bus, "xds").wait(t, "x")
	who := roster(t, x.Bus, "xds", func([]bus.Member) {})
	eventually(t, "the roster as of now", func() bool {
		set, err := who.Read(t.Context())
		return err == nil && len(set) == 1
	})
	save(t, "its list of proxies", putProxy(x.Bus))
	l := &list{}
	follow, unfollow := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- x.Proxies().Follow(follow, l) }()
	l.becomes(t, map[string]string{"r.1": "x"})
	unfollow()
	must(t, <-followed)
	x.quietly(t)

	x.refuses(t, "an event", put(x.Bus, "ca"))
	x.refuses(t, "a record", putRecord(x.Bus, "ca"))
	x.refuses(t, "a state", putState(x.Bus))
	x.refuses(t, "a purge", purge(x.Bus))
	x.refusesFollow(t, "following events", func(ctx context.Context, h func(ledger.Notice) error) error {
		return x.Events().Follow(ctx, "", true, h)
	})
	x.said(t, 3)
}

func readerWorks(t *testing.T, s *extServer) {
	x := as(t, s, "reader", "_INBOX_reader")
	events, states := bustest.NewRecorder(), bustest.NewRecorder()
	events.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return x.Events().Follow(ctx, "ca", false, handle)
	})
	states.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return x.States().Follow(ctx, "", handle)
	})
	events.WaitComplete(t, 1)
	states.WaitComplete(t, 1)
	save(t, "reading an event", getEvent(x.Bus, "cb"))
	n := 0
	save(t, "history", func() error {
		return x.History().Replay(t.Context(), bus.HistoryQuery{Last: 1}, func(bus.HistoryEntry) error { n++; return nil })
	})
	if n != 1 {
		t.Errorf("%d entries of history, want the last one", n)
	}
	members(t, x.Bus, "xds").wait(t, "x")
	for _, query := range [...]string{"clients", "drain"} {
		xds := as(t, s, "xds", "_INBOX_xds")
		serveOwn(t, xds.Bus, query)
		if query == "drain" {
			x.quietly(t)
			x.refuses(t, "a gate's question", func() error { _, err := x.Queries().AskReplica(t.Context(), xds.ID(), query, nil); return err })
		} else if got, err := askReplica(t, x.Bus, xds.ID(), query); got != query || err != nil {
			t.Errorf("the clients of a replica: got %q, %v", got, err)
		}
		xds.quietly(t)
	}
	hears(t, s, "reader", "slicecast.v1.events.>", true)

	x.refuses(t, "an event", put(x.Bus, "ca"))
	x.refuses(t, "a record", putRecord(x.Bus, "ca"))
	x.refuses(t, "a state", putState(x.Bus))
	x.refuses(t, "a purge", purge(x.Bus))
	x.refuses(t, "the list of proxies", putProxy(x.Bus))
	x.refuses(t, "a claim", func() error { _, err := x.Claim(t.Context(), "watcher.dir-ca"); return err })
	x.refuses(t, "a drain", func() error { _, err := x.Queries().Ask(t.Context(), "drain", nil); return err })
	x.said(t, 3)
}

// hears checks whether a user may subscribe to subject without a stream.
func hears(t *testing.T, s *extServer, user, subject string, want bool) {
	t.Helper()
	refused := make(chan error, 16)
	nc, err := nats.Connect(s.url, nats.UserInfo(user, strings.ReplaceAll(user, "-", "_")+"-password"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	must(t, err)
	defer nc.Close()
	_, err = nc.SubscribeSync(subject)
	must(t, err)
	must(t, nc.Flush())
	if want {
		select {
		case err := <-refused:
			t.Errorf("%s hears %s: %v", user, subject, err)
		default: // The answer to Flush came after it would have.
		}
		return
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: got %v", subject, err)
		}
	case <-time.After(patience):
		t.Errorf("%s may hear %s", user, subject)
	}
}

// An inbox that the server refuses would make every call wait for its time-out.
func TestAnInboxWithoutPermissionIsSaidAndFailsAtOnce(t *testing.T) {
	s := deployed(t)
	as(t, s, "admin", "")
	r := as(t, s, "reader", "_INBOX_elsewhere")
	for range 2 {
		if _, err := r.States().Last(t.Context()); !errors.Is(err, bus.ErrNoPermission) || !strings.Contains(err.Error(), "_INBOX_elsewhere") {
			t.Errorf("got %v, want ErrNoPermission with the inbox", err)
		}
	}
	if _, err := r.JetStream().Stream(t.Context(), "SLICECAST_EVENTS"); errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error("the stream is not there")
	}
}
