package projector_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/projector"
)

// atMost bounds a test that would otherwise wait for ever; nothing is measured by it.
const atMost = time.Minute

func TestMain(m *testing.M) { bustest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

func connect(t *testing.T, e *bus.Embedded, name string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{Name: name, Server: e, Log: quiet, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestReplicasOnTheRealBusHoldWhatTheClusterHas(t *testing.T) {
	e, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	b := connect(t, e, "test")
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	for _, name := range []string{"projector/1", "projector/2"} {
		pb := connect(t, e, name)
		p, err := projector.New(projector.Config{Events: pb.Events(), States: pb.States(), Certifier: pb.States(), Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- p.Run(run) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	w := writer{t: t, events: b.Events(), api: endpointtest.NewAPI("prod"), r: endpointtest.NewRandom(1), seqs: map[string]uint64{}, sums: map[string]ledger.Sum{}}
	w.certify(ctx)
	for i := range 600 {
		w.change(ctx)
		if i%100 == 99 {
			w.certify(ctx)
		}
	}
	w.certify(ctx)
	// A reader sees States that never go back, and in the end a checkpoint of what the cluster has now.
	got := map[endpoint.Key]endpoint.State{}
	read, found := context.WithCancel(ctx)
	defer found()
	err = b.States().Follow(read, "prod", func(n ledger.Notice) error {
		switch {
		case n.Kind == ledger.Changed:
			if before, known := got[n.Key]; known && !before.Join(*n.State).SameSlices(*n.State) {
				t.Errorf("%s went back", n.Key)
			}
			got[n.Key] = *n.State
		case n.Kind == ledger.Certified && n.Checkpoint.Complete == w.api.Now():
			found()
		}
		return nil
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("no checkpoint of %s: %v, %v", w.api.Now(), err, ctx.Err())
	}
	for _, key := range w.api.Keys() {
		if want := (endpoint.State{Slices: w.api.At(key, w.api.Now())}); !got[key].SameSlices(want) {
			t.Errorf("%s: got %v\nwant %v", key, endpointtest.FormatState(got[key]), want)
		}
	}
}

// writer stands in for a watcher that is always up to date.
type writer struct {
	t      *testing.T
	events *bus.Events
	api    *endpointtest.API
	r      endpointtest.Random
	seqs   map[string]uint64     // last sequence of each subject
	sums   map[string]ledger.Sum // of the live slices
	last   uint64
	cert   uint64
}

// change makes one write of the API server and puts its event.
func (w *writer) change(ctx context.Context) {
	w.t.Helper()
	before := len(w.api.Writes)
	w.api.Change(w.r)
	for _, ev := range w.api.Writes[before:] {
		s := ev.Slice
		for name, peer := range w.api.Live(s.Key) {
			if name != s.Name {
				ev.Peers = append(ev.Peers, endpoint.Ref{Name: name, Version: peer.Version})
			}
		}
		if len(ev.Peers) == 2 && ev.Peers[0].Name > ev.Peers[1].Name {
			ev.Peers[0], ev.Peers[1] = ev.Peers[1], ev.Peers[0]
		}
		subject := s.Key.String() + "/" + s.Name
		res, err := w.events.Put(ctx, ev, w.seqs[subject])
		if err != nil || !res.Saved {
			w.t.Fatalf("put %s: %+v, %v", subject, res, err)
		}
		w.seqs[subject], w.last = res.Seq, res.Seq
		delete(w.sums, subject)
		if !ev.Gone {
			w.sums[subject] = ledger.Digest(s.Key, s.Name, s.Version, s.Hash())
		}
	}
}

// certify writes a checkpoint of all that was put.
func (w *writer) certify(ctx context.Context) {
	w.t.Helper()
	cp := ledger.Checkpoint{Complete: w.api.Now(), AsOf: w.last, Count: uint64(len(w.sums)), Written: time.Now()}
	for _, s := range w.sums {
		cp.Sum = cp.Sum.Add(s)
	}
	res, err := w.events.Certify(ctx, "prod", cp, w.cert)
	if err != nil || !res.Saved {
		w.t.Fatalf("checkpoint: %+v, %v", res, err)
	}
	w.cert = res.Seq
}
