package projector

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// bed is a projector on the fake that passes the contract of the real bus.
type bed struct {
	t    *testing.T
	f    *bustest.Fake
	view map[string]ledger.Notice // what the test has put since the last wipe
	last uint64
}

func newBed(t *testing.T, replicas int) *bed {
	b := &bed{t: t, f: bustest.NewFake(), view: map[string]ledger.Notice{}}
	for range replicas {
		p, err := New(Config{Events: b.f.Events(), States: b.f.States(), Certifier: b.f.States()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	return b
}

// tell puts events in the notation of traces.
func (b *bed) tell(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		e := *step(b.t, line).Event
		n, err := b.f.Events().Get(b.t.Context(), e.Slice.Key, e.Slice.Name)
		if err != nil {
			b.t.Fatal(err)
		}
		r, err := b.f.Events().Put(b.t.Context(), e, n.Seq)
		if err != nil || !r.Saved {
			b.t.Fatalf("put %s: %+v, %v", line, r, err)
		}
		b.view[e.Slice.Key.String()+"/"+e.Slice.Name] = noticeOf(e, r.Seq)
		b.last = r.Seq
	}
	synctest.Wait()
}

// complete certifies what was told, as the first checkpoint since the last wipe.
func (b *bed) complete(v string) {
	b.t.Helper()
	count, sum := sumOf(b.view)
	cp := ledger.Checkpoint{Complete: versionOf(b.t, v), AsOf: b.last, Count: count, Sum: sum, Written: time.Now()}
	if r, err := b.f.Events().Certify(b.t.Context(), "prod", cp, 0); err != nil || !r.Saved {
		b.t.Fatalf("checkpoint %s: %+v, %v", v, r, err)
	}
	synctest.Wait()
}

// wipe loses what do says, and the test forgets what it has put.
func (b *bed) wipe(do func()) {
	do()
	clear(b.view)
	b.last = 0
	time.Sleep(time.Second)
	synctest.Wait()
}

func (b *bed) holds(want ...string) {
	b.t.Helper()
	n, err := b.f.States().Get(b.t.Context(), cart)
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	if n.State != nil {
		for _, s := range n.State.Slices {
			got = append(got, endpointtest.FormatSlice(s))
		}
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		b.t.Errorf("stored %q, want %q", got, want)
	}
}

func TestALostConnectionShrinksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 2)
		b.tell(set(a10), set(b20))
		b.complete("20")
		b.holds(a10, b20)
		b.f.SetDown(true)
		time.Sleep(time.Minute)
		b.f.SetDown(false)
		synctest.Wait()
		b.holds(a10, b20)
		b.tell(set(a11 + " 10.0.0.7[rs-]"))
		b.holds(a11+"  10.0.0.7[rs-]", b20)
	})
}

func TestALostStateStreamIsWrittenAnewFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 2)
		b.tell(set(a10), set(b20), "set prod/ops/api x rv=21 -")
		b.complete("21")
		b.f.WipeStates()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.holds(a10, b20)
		other := endpoint.Key{Cluster: "prod", Namespace: "ops", Service: "api"}
		if n, err := b.f.States().Get(t.Context(), other); err != nil || n.Kind != ledger.Changed {
			t.Errorf("the other service: got %+v, %v", n, err)
		}
		if last, err := b.f.States().Last(t.Context()); err != nil || last != 3 {
			t.Errorf("got %d messages, %v, want two states and a checkpoint", last, err)
		}
	})
}

func TestALostBusShrinksNothingWhileItIsRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 2)
		b.tell(set(a10), set(b20))
		b.complete("20")
		b.wipe(b.f.Wipe)
		b.holds(a10, b20) // From memory, although the bus holds no event.
		b.tell(set(b20))
		b.holds(a10, b20)
		b.complete("22") // cart-a was deleted at 21 or 22, while nobody could say so.
		b.holds(b20)
	})
}
