package watcher_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/watcher"
)

const manifest = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [ADDR]}]
`

func text(name, addr string) string {
	return strings.NewReplacer("NAME", name, "ADDR", addr).Replace(manifest)
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// reader follows a cluster's events and proves its view by checkpoints.
type reader struct {
	mu    sync.Mutex
	led   *ledger.Ledger
	live  map[string]ledger.Notice
	gone  map[string]ledger.Notice
	cp    ledger.Checkpoint
	puts  int
	moved chan struct{}
}

func (r *reader) handle(n ledger.Notice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := n.Key.String() + "/" + n.Slice
	switch n.Kind {
	case ledger.Opened:
		r.led, r.live, r.gone = ledger.New(), map[string]ledger.Notice{}, map[string]ledger.Notice{}
	case ledger.Changed:
		r.puts++
		if delete(r.live, n.Slice); n.Gone {
			r.gone[n.Slice] = n
			r.led.Put(id, n.Seq, 0, ledger.Sum{})
			break
		}
		r.live[n.Slice] = n
		r.led.Put(id, n.Seq, 1, ledger.Digest(n.Key, n.Slice, n.Version, n.Hash))
	case ledger.Certified:
		r.cp = n.Checkpoint
		r.led.Advance(n.Seq)
	case ledger.Complete:
		r.led.Complete(n.Seq)
	}
	close(r.moved)
	r.moved = make(chan struct{})
	return nil
}

// until waits for the view to be as wanted.
func (r *reader) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		done, moved := ok(), r.moved
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("%s: live %v, gone %v, checkpoint %+v", what, r.live, r.gone, r.cp)
		}
	}
}

// proved reports whether the view agrees with the last checkpoint and holds these slices.
func (r *reader) proved(addrs map[string]string) bool {
	if r.led == nil || r.led.Judge(r.cp) != ledger.Agrees || len(r.live) != len(addrs) {
		return false
	}
	for name, addr := range addrs {
		n, ok := r.live[name]
		if !ok || n.Version.After(r.cp.Complete) || n.Event.Slice.Endpoints[0].Addr.String() != addr {
			return false
		}
	}
	return true
}

// TestAFolderReachesTheRealBus runs a watcher of a folder on an embedded server, through a restart of the watcher.
func TestAFolderReachesTheRealBus(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{Name: "test", Server: server, Log: quiet, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), text("a", "10.0.0.1"))
	put(t, filepath.Join(dir, "b.yaml"), text("b", "10.0.0.2"))

	start := func() (w *watcher.Watcher, stop func()) {
		d, err := watcher.NewDir(watcher.DirConfig{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		w, err = watcher.New(watcher.Config{Cluster: "east", Source: d, Events: b.Events(), Certifier: b.Events(), Records: b.Events()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		return w, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	_, stopFirst := start()
	r := &reader{moved: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- b.Events().Follow(ctx, "east", false, r.handle) }()
	defer func() {
		cancel()
		if err := <-followed; err != nil {
			t.Error(err)
		}
	}()

	r.until(t, "start", func() bool { return r.proved(map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}) })
	put(t, filepath.Join(dir, "a.yaml"), text("a", "10.0.0.9"))
	r.until(t, "change", func() bool { return r.proved(map[string]string{"a": "10.0.0.9", "b": "10.0.0.2"}) })
	r.mu.Lock()
	changed := r.live["a"]
	puts := r.puts
	r.mu.Unlock()
	if len(changed.Event.Transitions) != 2 || changed.Event.Previous.IsZero() || len(changed.Event.Peers) != 1 {
		t.Errorf("event %+v", changed.Event)
	}
	stopFirst()

	w, stop := start()
	defer stop()
	floor, err := w.Floor(t.Context())
	for err != nil { // not ready yet; bounded by the test's own time
		floor, err = w.Floor(t.Context())
	}
	r.until(t, "floor", func() bool { return !floor.After(r.cp.Complete) })
	r.mu.Lock()
	if r.puts != puts || r.live["a"].Version != changed.Version {
		t.Errorf("a restart without a change published %d events, a is at %s, was at %s", r.puts-puts, r.live["a"].Version, changed.Version)
	}
	r.mu.Unlock()
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "a.yaml"), "kind: nonsense")
	put(t, filepath.Join(dir, "c.yaml"), text("c", "10.0.0.3"))
	r.until(t, "removal", func() bool { return r.proved(map[string]string{"a": "10.0.0.9", "c": "10.0.0.3"}) })
	r.until(t, "tombstone", func() bool { return r.gone["b"].Version.After(changed.Version) })
	if !w.Ready() {
		t.Errorf("not ready: %s", w.Status().Why)
	}
}
