package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// api is a model of an API server: a history of changes, and what is there now.
type api struct {
	mu      sync.Mutex
	uid     string
	version int
	now     map[object]*discoveryv1.EndpointSlice
	history []change
	down    bool
	moved   chan struct{}
}

type change struct {
	version int
	es      *discoveryv1.EndpointSlice
	gone    bool
}

func newAPI() *api {
	return &api{uid: "uid-1", version: 100, now: map[object]*discoveryv1.EndpointSlice{}, moved: make(chan struct{})}
}

func (a *api) do(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.moved)
	a.moved = make(chan struct{})
}

func (a *api) set(es *discoveryv1.EndpointSlice) {
	a.do(func() {
		a.version++
		es = es.DeepCopy()
		es.ResourceVersion = fmt.Sprint(a.version)
		a.now[object{es.Namespace, es.Name}] = es
		a.history = append(a.history, change{version: a.version, es: es})
	})
}

func (a *api) remove(name string) { a.removeFrom("shop", name) }

func (a *api) removeFrom(namespace, name string) {
	a.do(func() {
		id := object{namespace, name}
		es := a.now[id]
		if es == nil {
			return
		}
		a.version++
		delete(a.now, id)
		a.history = append(a.history, change{version: a.version, es: es, gone: true})
	})
}

// restore brings back an older content at a lower version, as an etcd restored from a backup does.
func (a *api) restore(version int, slices ...*discoveryv1.EndpointSlice) {
	a.do(func() {
		a.version, a.history = version, nil
		clear(a.now)
		for _, es := range slices {
			a.now[object{es.Namespace, es.Name}] = es
		}
	})
}

func (a *api) setDown(down bool) { a.do(func() { a.down = down }) }

// apiSource is a Source on the model. lag delays what it hears.
type apiSource struct {
	a         *api
	lag       time.Duration
	in        func(*discoveryv1.EndpointSlice) bool // which objects it is told of; nil: all
	translate func(Scope, *discoveryv1.EndpointSlice) (endpoint.Slice, bool)
	parts     bool // hears its namespace and a quiet one each by itself
	probed    atomic.Bool
}

// quietly says how far the quiet namespace is.
func (s *apiSource) quietly(at int, handle func(Update)) {
	if s.parts {
		handle(Update{Kind: Heard, Namespace: "quiet", AsOf: uint64(at)})
	}
}

// tell hands on what is said of the namespace of all slices.
func (s *apiSource) tell(u Update, handle func(Update)) {
	if s.parts && u.Kind == Heard {
		u.Namespace = "shop"
	}
	handle(u)
}

func (s *apiSource) slice(scope Scope, es *discoveryv1.EndpointSlice) (endpoint.Slice, bool) {
	if s.translate != nil {
		return s.translate(scope, es)
	}
	sl, _, err := Translate(scope.Cluster, scope.Generation, es)
	return sl, err == nil
}

func (s *apiSource) sees(es *discoveryv1.EndpointSlice) bool { return s.in == nil || s.in(es) }

var errDown = errors.New("connection refused")

func (s *apiSource) UID(context.Context) (string, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.a.down {
		return "", errDown
	}
	return s.a.uid, nil
}

func (s *apiSource) Floor(context.Context) (uint64, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.a.down {
		return 0, errDown
	}
	s.probed.Store(true)
	close(s.a.moved)
	s.a.moved = make(chan struct{})
	return uint64(s.a.version), nil
}

func (s *apiSource) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	at, listed, lost := 0, false, false
	for ctx.Err() == nil {
		s.a.mu.Lock()
		down, version, moved := s.a.down, s.a.version, s.a.moved
		s.a.mu.Unlock()
		switch {
		case down && !lost:
			lost = true
			handle(Update{Kind: Lost, Err: errDown})
		case down:
		case !listed || version < at:
			handle(Update{Kind: Listing})
			at, listed, lost = s.list(scope, handle), true, false
			continue
		case lost:
			lost = false
			handle(Update{Kind: Heard})
		}
		if next, ok := s.next(at); ok && !down {
			if s.lag > 0 {
				pause(ctx, s.lag)
			}
			at = next.version
			s.tell(s.update(scope, next), handle)
			continue
		}
		if !down && s.probed.CompareAndSwap(true, false) {
			s.quietly(at, handle)
		}
		select {
		case <-moved:
		case <-ctx.Done():
		case <-time.After(time.Minute):
			if !down {
				s.tell(Update{Kind: Heard, AsOf: uint64(version)}, handle) // a bookmark
				at = max(at, version)
				s.quietly(at, handle)
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *apiSource) list(scope Scope, handle func(Update)) int {
	s.a.mu.Lock()
	u := Update{Kind: Listed, AsOf: uint64(s.a.version), Hidden: map[object]uint64{}}
	if s.parts {
		u.Parts = map[string]uint64{"shop": u.AsOf, "quiet": u.AsOf}
	}
	for id, es := range s.a.now {
		if !s.sees(es) {
			continue
		}
		if sl, ok := s.slice(scope, es); ok {
			sl.Observed = time.Now()
			u.Slices = append(u.Slices, sl)
		} else {
			u.Hidden[id], _ = parseVersion(es.ResourceVersion)
		}
	}
	s.a.mu.Unlock()
	handle(u)
	return int(u.AsOf)
}

func (s *apiSource) next(at int) (change, bool) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	i := slices.IndexFunc(s.a.history, func(c change) bool { return c.version > at })
	if i < 0 {
		return change{}, false
	}
	return s.a.history[i], true
}

func (s *apiSource) update(scope Scope, c change) Update {
	u := Update{Kind: Removed, Namespace: c.es.Namespace, Name: c.es.Name, AsOf: uint64(c.version)}
	switch sl, ok := s.slice(scope, c.es); {
	case !s.sees(c.es):
		return Update{Kind: Heard, AsOf: u.AsOf}
	case c.gone:
	case !ok:
		u.There = true
	default:
		u.Kind, u.Slice = Changed, sl
		u.Slice.Observed = time.Now()
	}
	return u
}

// rig is a bus and watchers on it, in a bubble of virtual time.
type rig struct {
	t    *testing.T
	fake *bustest.Fake
	log  *lines
}

func newRig(t *testing.T) *rig { return &rig{t, bustest.NewFake(), &lines{}} }

// start runs a watcher of cluster prod until the test ends or stop is called.
func (r *rig) start(s Source, change ...func(*Config)) (w *Watcher, stop func()) {
	r.t.Helper()
	e := r.fake.Events()
	cfg := Config{Cluster: "prod", Source: s, Events: e, Certifier: e, Records: e, Log: slog.New(slog.NewTextHandler(r.log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return w, stop
}

// bus gives what the bus holds live, as "name@generation/resource ports endpoints", and the last checkpoint.
func (r *rig) bus() (live []string, cp ledger.Checkpoint) {
	v := r.view()
	for _, name := range slices.Sorted(maps.Keys(v.live)) {
		ev := v.live[name]
		live = append(live, name+"@"+ev.Slice.Version.String()+" "+show(ev.Slice))
	}
	return live, v.cp
}

type busView struct {
	live   map[string]*endpoint.Event
	gone   map[string]*endpoint.Event
	cp     ledger.Checkpoint
	cpSeq  uint64
	record ledger.Record
	led    *ledger.Ledger
}

// view reads the whole bus by a session of its own.
func (r *rig) view() busView {
	r.t.Helper()
	v := busView{live: map[string]*endpoint.Event{}, gone: map[string]*endpoint.Event{}, led: ledger.New()}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	err := r.fake.Events().Follow(ctx, "prod", false, func(n ledger.Notice) error {
		v.led.Advance(n.Seq)
		switch n.Kind {
		case ledger.Changed:
			id := n.Key.String() + "/" + n.Slice
			if n.Gone {
				v.gone[n.Slice] = n.Event
				v.led.Put(id, n.Seq, 0, ledger.Sum{})
				break
			}
			v.live[n.Slice] = n.Event
			v.led.Put(id, n.Seq, 1, ledger.Digest(n.Key, n.Slice, n.Version, n.Hash))
		case ledger.Certified:
			v.cp, v.cpSeq = n.Checkpoint, n.Seq
		case ledger.Recorded:
			v.record = n.Record
		case ledger.Complete:
			v.led.Complete(n.Seq)
			cancel()
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// want compares the live slices of the bus, by name and version only when a want has no space.
func (r *rig) want(what string, want ...string) {
	r.t.Helper()
	synctest.Wait()
	live, _ := r.bus()
	if len(want) > 0 && !strings.Contains(want[0], " ") {
		for i := range live {
			live[i], _, _ = strings.Cut(live[i], " ")
		}
	}
	if !slices.Equal(live, want) {
		r.t.Errorf("%s: the bus holds %q, want %q", what, live, want)
	}
}

// lines keeps a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func itoa(n int) string { return fmt.Sprint(n) }
