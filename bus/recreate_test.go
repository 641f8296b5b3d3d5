package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// A server that is alone takes the name of a stream away before its files. Who makes the stream again between the two
// gets one whose files are then deleted: it takes messages and acknowledges none, until the server is started anew.
func TestAStreamThatIsDeletedUnderManyClientsTakesWritesAgain(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	operator := connect(t, bus.Config{URLs: []string{s.url}})
	for i := range 8 {
		b := connect(t, bus.Config{URLs: []string{s.url}})
		for range 2 {
			clients.Go(func() { _ = b.Events().Follow(ctx, "", false, func(ledger.Notice) error { return nil }) })
		}
		for k := range 4 {
			clients.Go(func() { rewrite(ctx, b, fmt.Sprintf("shop-%d-%d", i, k)) })
		}
	}
	for round := range 10 {
		must(t, operator.JetStream().DeleteStream(ctx, "SLICECAST_EVENTS"))
		for written := false; !written; {
			r, err := operator.Events().Put(ctx, bustest.Event("ca", "shop", "own", uint64(round+1), 1), 0)
			if written = r.Saved; !written && ctx.Err() != nil {
				t.Fatalf("deletion %d: nothing is written any more: %v", round, err)
			}
		}
	}
}

// rewrite writes a slice again and again, whatever becomes of it.
func rewrite(ctx context.Context, b *bus.Bus, name string) {
	last := uint64(0)
	for version := uint64(1); ctx.Err() == nil; version++ {
		ev := bustest.Event("ca", "shop", name, version, 20)
		if r, err := b.Events().Put(ctx, ev, last); r.Saved {
			last = r.Seq
		} else if err == nil {
			last = 0
			if n, err := b.Events().Get(ctx, ev.Slice.Key, name); err == nil {
				last = n.Seq
			}
		}
	}
}
