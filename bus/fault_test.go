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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

const patience = 2 * time.Minute

// followed is a reader of all events of a bus, and a writer that knows what it wrote.
type followed struct {
	b    *bus.Bus
	r    *bustest.Recorder
	last map[string]uint64 // sequence by slice
	next uint64            // resourceVersion
}

func followAll(t *testing.T, b *bus.Bus) *followed {
	t.Helper()
	f := &followed{b: b, r: bustest.NewRecorder(), last: map[string]uint64{}, next: 1}
	f.r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.Events().Follow(ctx, "", false, handle)
	})
	f.r.WaitComplete(t, 1)
	return f
}

// write puts each of n slices until it is taken.
func (f *followed) write(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		ev := bustest.Event("ca", "shop", fmt.Sprintf("shop-%d", i), f.next, 1)
		f.next++
		f.last[ev.Slice.Name] = f.mustPut(t, ev)
	}
}

// mustPut puts ev until it is taken, reading what is there after every doubt, as a writer does.
func (f *followed) mustPut(t *testing.T, ev endpoint.Event) uint64 {
	t.Helper()
	deadline := time.Now().Add(patience)
	expect := f.last[ev.Slice.Name]
	for {
		r, err := f.b.Events().Put(t.Context(), ev, expect)
		if err == nil && r.Saved {
			return r.Seq
		}
		if time.Now().After(deadline) {
			t.Fatalf("put %s: %+v, %v until the end", ev.Slice.Name, r, err)
		}
		if there, err := f.b.Events().Get(t.Context(), ev.Slice.Key, ev.Slice.Name); err == nil {
			if expect = there.Seq; there.Version == ev.Slice.Version {
				return there.Seq
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settled waits until the newest session shows what was written, and gives the number of sessions.
func (f *followed) settled(t *testing.T) int {
	t.Helper()
	sessions := f.r.Wait(t, "the content that was written", func(sessions [][]ledger.Notice) bool {
		view, complete := map[string]uint64{}, false
		for _, n := range sessions[len(sessions)-1] {
			complete = complete || n.Kind == ledger.Complete
			if n.Kind == ledger.Changed {
				view[n.Slice] = n.Seq
			}
		}
		if !complete || len(view) != len(f.last) {
			return false
		}
		for name, seq := range f.last {
			if view[name] != seq {
				return false
			}
		}
		return true
	})
	return len(sessions)
}

// after runs a fault between two rounds of writes and checks that a new session ended with the right content.
func after(t *testing.T, f *followed, fault func()) {
	t.Helper()
	f.write(t, 50)
	before := f.settled(t)
	fault()
	f.r.Wait(t, "a new session", func(s [][]ledger.Notice) bool { return len(s) > before })
	f.write(t, 50)
	f.settled(t)
}

func TestAReaderSurvivesARestartWithTheSameStore(t *testing.T) {
	s := startServer(t)
	f := followAll(t, connect(t, bus.Config{URLs: []string{s.url}}))
	after(t, f, func() { s.restart(t) })
}

func TestAReaderSurvivesALostStore(t *testing.T) {
	s := startServer(t)
	f := followAll(t, connect(t, bus.Config{URLs: []string{s.url}}))
	after(t, f, func() { s.wipe(t) })
}

func TestAReaderSurvivesAStreamThatIsDeletedWhileConnected(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	after(t, f, func() { must(t, b.DeleteStreams(t.Context())) })
}

func TestAReaderSurvivesAStreamThatIsPurgedWhileItIsQuiet(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	after(t, f, func() {
		st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
		must(t, err)
		must(t, st.Purge(t.Context()))
	})
}

// The purge of one cluster leaves the last sequence and the other clusters as they are.
func TestAReaderNoticesThatTheLastOfItsClusterIsPurgedInABusyStream(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.Events().Follow(ctx, "ca", false, handle)
	})
	r.WaitComplete(t, 1)
	_, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a", 1, 1), 0)
	must(t, err)
	_, err = b.Events().Put(t.Context(), bustest.Event("cb", "shop", "shop-b", 1, 1), 0)
	must(t, err)
	r.Wait(t, "the event", func(s [][]ledger.Notice) bool { return len(s[len(s)-1]) == 3 })
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
	must(t, err)
	must(t, st.Purge(t.Context(), jetstream.WithPurgeSubject("slicecast.v1.events.ca.>")))
	r.Wait(t, "an empty session", func(s [][]ledger.Notice) bool {
		last := s[len(s)-1]
		return len(last) == 2 && last[1].Kind == ledger.Complete
	})
}

// What lies in the middle of a stream may be lost without a trace in its first and last sequence.
func TestAnOldSessionIsRenewedAgainstWhateverNoCheckFinds(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, RefreshEvery: 200 * time.Millisecond})
	f := followAll(t, b)
	f.write(t, 3)
	f.settled(t)
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
	must(t, err)
	must(t, st.Purge(t.Context(), jetstream.WithPurgeSubject("slicecast.v1.events.ca.prod.shop.shop-1")))
	delete(f.last, "shop-1")
	f.settled(t)
}

func TestAReaderSurvivesAStreamThatAnotherProcessMakesAgain(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	after(t, f, func() {
		must(t, b.DeleteStreams(t.Context()))
		connect(t, bus.Config{URLs: []string{s.url}})
	})
}

func TestAReaderSurvivesThatAllReadersAreDeletedOnTheServer(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	after(t, f, func() {
		st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
		must(t, err)
		names := st.ConsumerNames(t.Context())
		n := 0
		for name := range names.Name() {
			n++
			must(t, st.DeleteConsumer(t.Context(), name))
		}
		must(t, names.Err())
		if n == 0 {
			t.Fatal("no reader on the server")
		}
	})
}

// A server that shows its heartbeat and delivers nothing, as some have done after a change of leader.
func TestAReaderSurvivesAServerThatStopsToDeliver(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	f.write(t, 10)
	before := f.settled(t)
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
	must(t, err)
	names := st.ConsumerNames(t.Context())
	for name := range names.Name() {
		_, err := st.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour))
		must(t, err)
	}
	must(t, names.Err())
	f.write(t, 10)
	if got := f.settled(t); got <= before {
		t.Errorf("%d sessions, want another one than the paused", got)
	}
}

func TestASlowHandlerIsNotTakenForASilentServer(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	r := bustest.NewRecorder()
	slow := make(chan struct{})
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.Events().Follow(ctx, "", false, func(n ledger.Notice) error {
			if n.Kind == ledger.Changed && n.Version.Resource == 1 {
				<-slow
			}
			return handle(n)
		})
	})
	r.WaitComplete(t, 1)
	for i := range uint64(3) {
		_, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", fmt.Sprintf("shop-%d", i), i+1, 1), 0)
		must(t, err)
	}
	time.Sleep(time.Second) // Ten checks of a quiet session.
	close(slow)
	r.Wait(t, "three events", func(s [][]ledger.Notice) bool { return len(s[len(s)-1]) >= 5 })
	last, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-last", 4, 1), 0)
	must(t, err)
	sessions := r.Wait(t, "the last event", func(s [][]ledger.Notice) bool {
		newest := s[len(s)-1]
		return newest[len(newest)-1].Seq == last.Seq
	})
	if len(sessions) != 1 {
		t.Errorf("%d sessions, want 1", len(sessions))
	}
}

func TestAReaderSurvivesAStoreThatGoesBack(t *testing.T) {
	s := startServer(t)
	f := followAll(t, connect(t, bus.Config{URLs: []string{s.url}}))
	f.write(t, 20)
	f.settled(t)
	s.stop()
	old := t.TempDir()
	must(t, os.CopyFS(old, os.DirFS(s.options.StoreDir)))
	s.start(t)
	after(t, f, func() {
		s.stop()
		must(t, os.RemoveAll(filepath.Join(s.options.StoreDir, "jetstream")))
		must(t, os.CopyFS(s.options.StoreDir, os.DirFS(old)))
		s.start(t)
	})
}

func TestOldReadersAreDeletedOnTheServer(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	r := bustest.NewRecorder()
	stop := r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.Events().Follow(ctx, "ca", true, handle)
	})
	sessions := 0
	for i := range 3 {
		r.WaitComplete(t, sessions+1)
		sessions = r.Sessions()
		r.Answer(ledger.ErrResync)
		ev := bustest.Event("ca", "shop", fmt.Sprintf("shop-%d", i), 1, 1)
		if res, err := b.Events().Put(t.Context(), ev, 0); err != nil || !res.Saved {
			t.Fatalf("put: %+v, %v", res, err)
		}
	}
	r.WaitComplete(t, sessions+1)
	readers := func() int {
		st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
		must(t, err)
		return st.CachedInfo().State.Consumers
	}
	if n := readers(); n != 1 {
		t.Errorf("%d readers on the server, want 1", n)
	}
	must(t, stop())
	if n := readers(); n != 0 {
		t.Errorf("%d readers on the server after the end, want 0", n)
	}
}

func TestAWriteFailsAtOnceWithoutAConnectionAndIsNotSentLater(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	f := followAll(t, b)
	f.write(t, 1)
	f.settled(t)
	s.stop()
	for b.Connected() {
		time.Sleep(time.Millisecond)
	}
	late := bustest.Event("ca", "shop", "shop-late", 100, 1)
	if r, err := b.Events().Put(t.Context(), late, 0); !errors.Is(err, bus.ErrNotConnected) || r.Saved {
		t.Errorf("put: got %+v, %v, want ErrNotConnected", r, err)
	}
	if _, err := b.States().Last(t.Context()); !errors.Is(err, bus.ErrNotConnected) {
		t.Errorf("last: got %v, want ErrNotConnected", err)
	}
	if _, err := b.Queries().Ask(t.Context(), "drain", nil); !errors.Is(err, bus.ErrNotConnected) {
		t.Errorf("ask: got %v, want ErrNotConnected", err)
	}
	s.start(t)
	f.write(t, 2)
	f.settled(t)
	if n, err := b.Events().Get(t.Context(), late.Slice.Key, late.Slice.Name); err != nil || n.Kind != ledger.Absent {
		t.Errorf("the failed write: got %+v, %v, want Absent", n, err)
	}
}

func TestConnectWaitsForAServerThatIsNotThereYet(t *testing.T) {
	s := startServer(t)
	s.stop()
	b := connect(t, bus.Config{URLs: []string{s.url}})
	if b.Connected() {
		t.Error("connected to nothing")
	}
	r := bustest.NewRecorder()
	r.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return b.States().Follow(ctx, "", handle)
	})
	s.start(t)
	r.WaitComplete(t, 1)
}

func TestAWriteIntoADeletedStreamSaysSoAndMakesItAgain(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	must(t, b.JetStream().DeleteStream(t.Context(), "SLICECAST_EVENTS"))
	ev := bustest.Event("ca", "shop", "shop-a", 1, 1)
	if r, err := b.Events().Put(t.Context(), ev, 0); !errors.Is(err, bus.ErrNoStream) || r.Saved {
		t.Errorf("first put: got %+v, %v, want ErrNoStream", r, err)
	}
	if r, err := b.Events().Put(t.Context(), ev, 0); err != nil || !r.Saved {
		t.Errorf("second put: got %+v, %v, want it saved", r, err)
	}
	must(t, b.JetStream().DeleteStream(t.Context(), "SLICECAST_EVENTS"))
	if _, err := b.Events().Get(t.Context(), ev.Slice.Key, "shop-a"); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("get: got %v, want ErrNoStream", err)
	}
}

func TestAFullStreamRefusesWhatIsNewAndKeepsWhatIsThere(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, EventsBytes: 64 << 10})
	var err error
	n, seq := 0, uint64(0)
	for ; err == nil && n < 1000; n++ {
		var r ledger.Result
		r, err = b.Events().Put(t.Context(), bustest.Event("ca", "shop", fmt.Sprintf("shop-%d", n), 1, 50), 0)
		if n == 0 {
			seq = r.Seq
		}
	}
	if !errors.Is(err, bus.ErrStreamFull) {
		t.Fatalf("after %d slices: got %v, want ErrStreamFull", n, err)
	}
	if there, err := b.Events().Get(t.Context(), bustest.Event("ca", "shop", "x", 1, 0).Slice.Key, "shop-0"); err != nil || there.Seq != seq {
		t.Errorf("the first slice: got %+v, %v, want it kept", there, err)
	}
	if r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-0", 2, -1), seq); err != nil || !r.Saved {
		t.Errorf("a tombstone in a full stream: got %+v, %v, want it saved", r, err)
	}
}

func TestATooLargeMessageIsRefused(t *testing.T) {
	s := startServer(t, func(o *server.Options) { o.MaxPayload = 32 << 10 })
	b := connect(t, bus.Config{URLs: []string{s.url}})
	if r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a", 1, 1000), 0); !errors.Is(err, bus.ErrTooLarge) || r.Saved {
		t.Errorf("above the server's limit: got %+v, %v, want ErrTooLarge", r, err)
	}
}

func TestUnfitStreamsAreRefusedWithTheSetting(t *testing.T) {
	s := startServer(t)
	first := connect(t, bus.Config{URLs: []string{s.url}})
	must(t, first.DeleteStreams(t.Context()))
	eventually(t, "a place for a stream of that name, once the files of ours are gone", func() bool {
		_, err := first.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "SLICECAST_EVENTS", Subjects: []string{"slicecast.v1.events.>"}, Discard: jetstream.DiscardNew})
		return err == nil
	})
	b := connect(t, bus.Config{URLs: []string{s.url}})
	if _, err := b.Events().Get(t.Context(), bustest.Event("ca", "shop", "x", 1, 0).Slice.Key, "shop-0"); !errors.Is(err, bus.ErrStreamSettings) {
		t.Errorf("got %v, want ErrStreamSettings", err)
	}
}

func TestAnExistingStreamIsNotChanged(t *testing.T) {
	s := startServer(t)
	connect(t, bus.Config{URLs: []string{s.url}, EventsBytes: 1 << 20})
	b := connect(t, bus.Config{URLs: []string{s.url}, EventsBytes: 2 << 20})
	st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
	must(t, err)
	if got := st.CachedInfo().Config.MaxBytes; got != 1<<20 {
		t.Errorf("max bytes are %d, want those of the first client", got)
	}
}

// A server whose disk is slow takes a write and says so too late: the writer knows nothing, and must not write over it.
func TestAWriteWhoseAnswerIsLateIsNeitherLostNorRefused(t *testing.T) {
	s := startServer(t)
	p := startProxy(t, strings.TrimPrefix(s.url, "nats://"))
	b := connect(t, bus.Config{URLs: []string{"nats://" + p.addr()}})
	direct := connect(t, bus.Config{URLs: []string{s.url}})
	ev := bustest.Event("ca", "shop", "shop-a", 1, 1)
	p.set(false, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := b.Events().Put(ctx, ev, 0)
	if !errors.Is(err, context.DeadlineExceeded) || r.Saved || isRefused(err) {
		t.Errorf("got %+v, %v, want the end of the time", r, err)
	}
	eventually(t, "the write", func() bool {
		n, err := direct.Events().Get(t.Context(), ev.Slice.Key, "shop-a")
		return err == nil && n.Kind == ledger.Changed
	})
	p.set(false, 0)
	if r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a", 2, 1), 0); err != nil || r.Saved {
		t.Errorf("a write that knows nothing of it: got %+v, %v, want it to lose", r, err)
	}
	f := &followed{b: b, last: map[string]uint64{}, next: 3}
	f.mustPut(t, bustest.Event("ca", "shop", "shop-a", 3, 1))
}
