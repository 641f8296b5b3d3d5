package bus_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/test/bus/rig"
)

// patience bounds waits that would otherwise be for ever; nothing is measured by it.
const patience = time.Minute

var (
	seed    = flag.Uint64("seed", 1, "of the changes, and of the first random history of faults")
	verbose = flag.Bool("log", false, "print what the roles log")
)

func TestMain(m *testing.M) {
	if was, err := rig.ServeChild(); was {
		if err != nil {
			slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("server", "err", err)
		}
		return
	}
	bustest.Main(m)
}

// world is a rig under test.
type world struct {
	*rig.Rig
	t    *testing.T
	urls []string
}

// newWorld starts a rig on the servers at urls, and waits until all readers have what the API servers hold.
func newWorld(t *testing.T, urls []string, change ...func(*rig.Config)) *world {
	t.Helper()
	var once sync.Mutex
	said := 0
	cfg := rig.Fast(rig.Config{URLs: urls, Seed: *seed, Violation: func(text string) {
		once.Lock()
		defer once.Unlock()
		if said++; said <= 5 {
			t.Error(text)
		}
	}})
	if *verbose {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := rig.New(t.Context(), cfg)
	must(t, err)
	w := &world{r, t, urls}
	t.Cleanup(r.Close)
	w.settle("at the start")
	return w
}

// settle wants every reader to hold exactly what the API servers have, once the changes pause.
func (w *world) settle(when string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.Settle(ctx); err != nil {
		w.t.Fatalf("%s: %v", when, err)
	}
}

// changes waits for n changes.
func (w *world) changes(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	must(w.t, w.Changes(ctx, n))
}

// admin does something to the streams, as an operator. A server that is not ready for it is asked again.
func (w *world) admin(do func(ctx context.Context, js jetstream.JetStream) error) {
	w.t.Helper()
	nc, err := nats.Connect(strings.Join(w.urls, ","))
	must(w.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(w.t, err)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		err := do(ctx, js)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// single starts one server.
func single(t *testing.T) *rig.Server {
	t.Helper()
	s, err := rig.NewServer(t.TempDir())
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// three starts a cluster of three.
func three(t *testing.T) *rig.Cluster {
	t.Helper()
	c, err := rig.NewCluster(t.TempDir())
	must(t, err)
	t.Cleanup(c.Close)
	return c
}
