package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/bus"
)

// serve runs Serve until the test ends or stop is called.
func serve(t *testing.T, b *bus.Bus, name string, answer func(context.Context, []byte) ([]byte, error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Queries().Serve(ctx, name, answer) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve %s ended with %v", name, err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// ask asks until somebody answers: a subscription takes a moment.
func ask(t *testing.T, b *bus.Bus, name, body string) (string, error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		answer, err := b.Queries().Ask(t.Context(), name, []byte(body))
		if !errors.Is(err, bus.ErrNobody) || time.Now().After(deadline) {
			return string(answer), err
		}
		time.Sleep(time.Millisecond)
	}
}

// serveOwn answers questions to b alone with their name until the test ends.
func serveOwn(t *testing.T, b *bus.Bus, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Queries().ServeOwn(ctx, name, func(context.Context, []byte) ([]byte, error) { return []byte(name), nil })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve own %s ended with %v", name, err)
		}
	})
}

// askReplica is ask for one process.
func askReplica(t *testing.T, b *bus.Bus, id, name string) (string, error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		answer, err := b.Queries().AskReplica(t.Context(), id, name, nil)
		if !errors.Is(err, bus.ErrNobody) || time.Now().After(deadline) {
			return string(answer), err
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAQuestionToOneProcessIsAnsweredByThatOne(t *testing.T) {
	s := startServer(t)
	asker := connect(t, bus.Config{URLs: []string{s.url}})
	for _, name := range []string{"clients", "drain"} {
		serveOwn(t, connect(t, bus.Config{URLs: []string{s.url}}), name)
	}
	b := connect(t, bus.Config{URLs: []string{s.url}})
	serveOwn(t, b, "own")
	if got, err := askReplica(t, asker, b.ID(), "own"); got != "own" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := asker.Queries().AskReplica(t.Context(), b.ID(), "clients", nil); !errors.Is(err, bus.ErrNobody) {
		t.Errorf("got %v, want nobody: another process serves that", err)
	}
	for _, id := range []string{"", "*", "a.b"} {
		if _, err := asker.Queries().AskReplica(t.Context(), id, "own", nil); err == nil || errors.Is(err, bus.ErrNobody) {
			t.Errorf("id %q: got %v, want it refused", id, err)
		}
	}
}

func TestAQuestionGetsItsAnswer(t *testing.T) {
	s := startServer(t)
	b, asker := connect(t, bus.Config{URLs: []string{s.url}}), connect(t, bus.Config{URLs: []string{s.url}})
	if _, err := asker.Queries().Ask(t.Context(), "floor.ca", nil); !errors.Is(err, bus.ErrNobody) {
		t.Errorf("nobody serves: got %v, want ErrNobody", err)
	}
	stop := serve(t, b, "floor.ca", func(_ context.Context, body []byte) ([]byte, error) { return append([]byte("1/"), body...), nil })
	serve(t, b, "drain", func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no\nsuch pod") })
	if got, err := ask(t, asker, "floor.ca", "7"); got != "1/7" || err != nil {
		t.Errorf("floor: got %q, %v, want 1/7", got, err)
	}
	if got, err := ask(t, asker, "drain", ""); err == nil || !strings.Contains(err.Error(), "no such pod") {
		t.Errorf("drain: got %q, %v, want its error", got, err)
	}
	stop()
	if _, err := asker.Queries().Ask(t.Context(), "floor.ca", nil); !errors.Is(err, bus.ErrNobody) {
		t.Errorf("after the end: got %v, want ErrNobody", err)
	}
	for _, name := range [...]string{"", "a..b", "*"} {
		if _, err := asker.Queries().Ask(t.Context(), name, nil); err == nil {
			t.Errorf("ask %q: got no error", name)
		}
		if err := b.Queries().Serve(t.Context(), name, nil); err == nil {
			t.Errorf("serve %q: got no error", name)
		}
	}
}

func TestQuestionsAreAnsweredAtOnceAndEndWithTheirAsker(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	ended := make(chan error, 1)
	serve(t, b, "drain", func(ctx context.Context, body []byte) ([]byte, error) {
		if string(body) == "slow" {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}
		return body, nil
	})
	if _, err := ask(t, b, "drain", "ready"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	slow := make(chan error, 1)
	go func() {
		_, err := b.Queries().Ask(ctx, "drain", []byte("slow"))
		slow <- err
	}()
	if got, err := ask(t, b, "drain", "quick"); got != "quick" || err != nil {
		t.Errorf("beside a slow one: got %q, %v", got, err)
	}
	if err := <-slow; err == nil {
		t.Error("the slow one got an answer")
	}
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its context ended with %v", err)
	}
}

func TestAQueryIsServedAgainAfterARestart(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}})
	serve(t, b, "drain", func(_ context.Context, body []byte) ([]byte, error) { return body, nil })
	if _, err := ask(t, b, "drain", "x"); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	deadline := time.Now().Add(patience)
	for {
		got, err := b.Queries().Ask(t.Context(), "drain", []byte("y"))
		if err == nil && string(got) == "y" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, %v until the end", got, err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAClaimHasOneHolder(t *testing.T) {
	s := startServer(t)
	first := connect(t, bus.Config{URLs: []string{s.url}, Name: "watcher/one", ClaimTTL: time.Second})
	second := connect(t, bus.Config{URLs: []string{s.url}, Name: "watcher/two", ClaimTTL: time.Second})
	release, err := first.Claim(t.Context(), "dir.ca")
	must(t, err)
	// Longer than the time to live: the heartbeat keeps it.
	until := time.Now().Add(2500 * time.Millisecond)
	for time.Now().Before(until) {
		if _, err := second.Claim(t.Context(), "dir.ca"); !errors.Is(err, bus.ErrClaimed) || !strings.Contains(err.Error(), "watcher/one") {
			t.Fatalf("got %v, want ErrClaimed by watcher/one", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	release()
	release()
	again, err := second.Claim(t.Context(), "dir.ca")
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again()
	for _, key := range [...]string{"", "a b", "a.*", ">"} {
		if _, err := first.Claim(t.Context(), key); err == nil {
			t.Errorf("claim %q: got no error", key)
		}
	}
}

func TestAClaimOfADeadProcessLapses(t *testing.T) {
	s := startServer(t)
	first := connect(t, bus.Config{URLs: []string{s.url}, Name: "dead", ClaimTTL: time.Second})
	ctx, die := context.WithCancel(t.Context())
	if _, err := first.Claim(ctx, "xds.1"); err != nil {
		t.Fatal(err)
	}
	// It has been renewed at least once, which must not have made it live for ever.
	kv, err := first.JetStream().KeyValue(t.Context(), "SLICECAST_REPLICAS")
	must(t, err)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		entry, err := kv.Get(t.Context(), "xds.1")
		must(t, err)
		if entry.Revision() > 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the claim is not renewed")
		}
	}
	die()
	second := connect(t, bus.Config{URLs: []string{s.url}, Name: "alive", ClaimTTL: time.Second})
	deadline := time.Now().Add(patience / 6)
	for {
		release, err := second.Claim(t.Context(), "xds.1")
		if err == nil {
			release()
			return
		}
		if !errors.Is(err, bus.ErrClaimed) || time.Now().After(deadline) {
			t.Fatalf("got %v until the end", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAClaimIsTakenAgainWhenItsBucketIsLost(t *testing.T) {
	s := startServer(t)
	b := connect(t, bus.Config{URLs: []string{s.url}, Name: "me", ClaimTTL: time.Second})
	release, err := b.Claim(t.Context(), "xds.1")
	must(t, err)
	defer release()
	must(t, b.JetStream().DeleteKeyValue(t.Context(), "SLICECAST_REPLICAS"))
	deadline := time.Now().Add(patience)
	for {
		kv, err := b.JetStream().KeyValue(t.Context(), "SLICECAST_REPLICAS")
		var entry jetstream.KeyValueEntry
		if err == nil {
			entry, err = kv.Get(t.Context(), "xds.1")
		}
		if err == nil && string(entry.Value()) == "me" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("the claim did not come back: %w", err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
