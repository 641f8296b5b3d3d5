package watcher

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

var (
	simSeeds = flag.Int("sim.seeds", 40, "number of random histories")
	simFirst = flag.Int("sim.first", 1, "the first seed")
)

// spy checks what watchers write against what the API went through.
type spy struct {
	*bustest.FakeEvents
	a *api
	t *testing.T

	mu        sync.Mutex
	written   map[uint64]endpoint.Event // by sequence, of the stream of now
	last      uint64
	checked   bool // whether the history of the cluster stays one
	mixed     bool // two releases are at work, which do not publish the same slices
	certs     int
	strangers int // checkpoints of a view that nobody sees who follows every message
}

func (s *spy) note(seq uint64) {
	if seq <= s.last {
		clear(s.written) // the stream was made again
	}
	s.last = seq
}

// Put delays the answer at times, and loses it at times.
func (s *spy) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	if err := ev.Valid(); err != nil {
		s.t.Errorf("an event is not valid: %v", err)
	}
	if rand.IntN(4) == 0 {
		pause(ctx, rand.N(200*time.Millisecond))
	}
	s.mu.Lock()
	res, err := s.FakeEvents.Put(ctx, ev, expect)
	if res.Saved {
		s.note(res.Seq)
		s.written[res.Seq] = ev
	}
	s.mu.Unlock()
	if rand.IntN(4) == 0 {
		pause(ctx, rand.N(200*time.Millisecond))
	}
	if rand.IntN(20) == 0 {
		return ledger.Result{}, errors.New("timeout")
	}
	return res, err
}

func (s *spy) PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.FakeEvents.PutRecord(ctx, cluster, r, expect)
	if res.Saved {
		s.note(res.Seq)
	}
	return res, err
}

// Certify checks that what the bus held at that position is complete as of the version.
func (s *spy) Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.FakeEvents.Certify(ctx, cluster, cp, expect)
	if !res.Saved {
		return res, err
	}
	s.note(res.Seq)
	s.certs++
	view := map[string]endpoint.Event{}
	for seq := uint64(1); seq <= cp.AsOf; seq++ {
		if ev, ok := s.written[seq]; ok {
			view[ev.Slice.Name] = ev
		}
	}
	var sum ledger.Sum
	count := uint64(0)
	for _, ev := range view {
		if !ev.Gone {
			sum = sum.Add(ledger.Digest(ev.Slice.Key, ev.Slice.Name, ev.Slice.Version, ev.Slice.Hash()))
			count++
		}
	}
	if sum != cp.Sum || count != cp.Count {
		s.strangers++
		return res, err
	}
	if !s.checked {
		return res, err
	}
	c := cp.Complete.Resource
	content := s.a.at(int(c))
	for name, version := range content {
		if s.mixed && (name == "s4" || name == "s5") {
			continue
		}
		ev, ok := view[name]
		if ok = ok && !ev.Gone; !ok && s.a.absentSince(name, int(c)) {
			continue // the bus is ahead: what was there at c is gone by now
		}
		if v := ev.Slice.Version.Resource; !ok || v <= c && v != uint64(version) {
			s.t.Errorf("checkpoint of %s: %s@%d is not on the bus: %v %+v", cp.Complete, name, version, ok, ev.Slice.Version)
		}
	}
	for name, ev := range view {
		if s.mixed && (name == "s4" || name == "s5") {
			continue
		}
		if _, ok := content[name]; !ok && !ev.Gone && ev.Slice.Version.Resource <= c {
			s.t.Errorf("checkpoint of %s: %s@%s is on the bus and was not in the cluster", cp.Complete, name, ev.Slice.Version)
		}
	}
	return res, err
}

// at gives the content as of a version, from the history: names with their versions.
func (a *api) at(version int) map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := map[string]int{}
	for _, c := range a.history {
		if c.version > version {
			break
		}
		if m[c.es.Name] = c.version; c.gone {
			delete(m, c.es.Name)
		}
	}
	return m
}

// absentSince reports whether the cluster did not hold a slice at some version after the given one.
func (a *api) absentSince(name string, version int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.history {
		if c.version > version && c.gone && c.es.Name == name {
			return true
		}
	}
	return false
}

// TestRandomHistoriesEndWithTheTruthOnTheBus runs watchers that lag, stall, die and come back over random changes and
// faults, then heals everything: the bus holds what the cluster holds, and a checkpoint says so.
func TestRandomHistoriesEndWithTheTruthOnTheBus(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+*simSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, rand.New(rand.NewPCG(uint64(seed), 7)), seed%2 == 0) })
		})
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

type sim struct {
	*rig
	rng      *rand.Rand
	a        *api
	spy      *spy
	stops    []func()
	restores bool
	reg      *registry
	mixed    bool // watchers of two releases
	forgets  bool
	backup   []*discoveryv1.EndpointSlice
	backupAt int
}

func simulate(t *testing.T, rng *rand.Rand, restores bool) {
	r, a := newRig(t), newAPI()
	s := &sim{rig: r, rng: rng, a: a, restores: restores, reg: newRegistry(), mixed: rng.IntN(3) == 0, forgets: rng.IntN(3) == 0}
	s.spy = &spy{FakeEvents: r.fake.Events(), a: a, t: t, written: map[uint64]endpoint.Event{}}
	s.spy.checked, s.spy.mixed = !restores, s.mixed
	for range 2 {
		s.watcher()
	}
	for range 150 {
		s.step()
		time.Sleep(upTo(rng, 300*time.Millisecond))
	}
	r.fake.SetDown(false)
	r.fake.Fail(nil)
	a.setDown(false)
	s.watcherOf(2)
	time.Sleep(3 * time.Minute)
	a.set(esl("last", 0))
	time.Sleep(3 * time.Minute) // a quiet namespace says once a minute how far it is
	v := r.view()
	a.mu.Lock()
	defer a.mu.Unlock()
	published := 0
	for id, es := range a.now {
		want, _, _ := Translate("prod", v.record.Generation, es)
		if s.mixed {
			var ok bool
			if want, ok = release(2)(Scope{"prod", v.record.Generation}, es); !ok {
				continue
			}
		}
		published++
		ev := v.live[id.name]
		if ev == nil {
			t.Errorf("%s@%s is not on the bus", id.name, es.ResourceVersion)
			continue
		}
		if ev.Slice.Version != want.Version || !ev.Slice.SameContent(want) {
			t.Errorf("%s is %s on the bus, want %s", id.name, ev.Slice.Version, want.Version)
		}
	}
	if len(v.live) != published {
		t.Errorf("%d slices on the bus, %d in the cluster", len(v.live), published)
	}
	if v.cp.Complete.Generation != v.record.Generation || v.cp.Complete.Resource < uint64(a.version) || v.led.Judge(v.cp) != ledger.Agrees {
		t.Errorf("checkpoint %+v at %s, verdict %d", v.cp, ver(v.record.Generation, uint64(a.version)), v.led.Judge(v.cp))
	}
	if g := v.record.Generation; g > 1 && !s.restores && !s.mixed && !s.forgets {
		t.Errorf("generation %d without a reason", g)
	}
	if t.Failed() {
		t.Logf("checkpoints %d, strangers %d, log:\n%s", s.spy.certs, s.spy.strangers, r.log)
	}
}

func (s *sim) watcher() { s.watcherOf(uint32(1 + s.rng.IntN(2))) }

// watcherOf starts a watcher of a release, where two are at work.
func (s *sim) watcherOf(version uint32) {
	src := &apiSource{a: s.a, lag: upTo(s.rng, 400*time.Millisecond), parts: s.rng.IntN(3) == 0}
	if s.rng.IntN(2) == 0 {
		src.lag = 0
	}
	_, stop := s.start(src, func(c *Config) {
		c.Events, c.Certifier, c.Records = s.spy, s.spy, s.spy
		if s.reg != nil {
			c.Registry = s.reg.one()
		}
		if s.mixed {
			src.translate, c.translator = release(version), version
		}
	})
	s.stops = append(s.stops, stop)
}

func (s *sim) step() {
	name := fmt.Sprintf("s%d", s.rng.IntN(6))
	switch n := s.rng.IntN(100); {
	case n < 45:
		s.a.set(esl(name, 0, ep(fmt.Sprintf("10.0.0.%d", s.rng.IntN(4)), "ttf", "x")))
	case n < 65:
		s.a.remove(name)
	case n < 70:
		s.fake.Restart()
	case n < 72:
		s.fake.Wipe()
	case n < 76:
		s.fake.SetDown(s.rng.IntN(2) == 0)
	case n < 80:
		if s.rng.IntN(2) == 0 {
			s.fake.Fail(errors.New("no quorum"))
		} else {
			s.fake.Fail(nil)
		}
	case n < 84:
		s.a.setDown(s.rng.IntN(2) == 0)
	case n < 88 && len(s.stops) > 1:
		s.stops[0]()
		s.stops = s.stops[1:]
	case n < 92 && len(s.stops) < 4:
		s.watcher()
	case n < 94:
		key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
		if n, err := s.spy.Get(s.t.Context(), key, name); err == nil && n.Gone {
			s.spy.Expire(key, name)
		}
	case n < 96 && s.restores:
		s.restore()
	case n >= 99 && s.forgets:
		s.forget()
	}
}

// forget removes the cluster on purpose, although its watchers run, as far as that can be done now.
func (s *sim) forget() {
	r, seq, err := s.spy.Record(s.t.Context(), "prod")
	if err != nil || seq == 0 {
		return
	}
	r.Generation++
	r.Scope = ""
	if res, err := s.spy.PutRecord(s.t.Context(), "prod", r, seq); err != nil || !res.Saved {
		return
	}
	for i := range 6 {
		key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
		name := fmt.Sprintf("s%d", i)
		n, err := s.spy.Get(s.t.Context(), key, name)
		if err != nil || n.Kind == ledger.Absent || n.Gone || n.Version.Generation >= r.Generation {
			continue
		}
		at := endpoint.Version{Generation: r.Generation, Resource: 1}
		_, _ = s.spy.Put(s.t.Context(), endpoint.Event{Slice: endpoint.Slice{Key: key, Name: name, Version: at}, Gone: true, Previous: n.Version}, n.Seq)
	}
}

// restore takes a backup, or brings the last one back while the API server is away, as it is done.
func (s *sim) restore() {
	if s.backup == nil {
		s.a.mu.Lock()
		s.backupAt = s.a.version
		s.backup = []*discoveryv1.EndpointSlice{}
		for _, es := range s.a.now {
			s.backup = append(s.backup, es)
		}
		s.a.mu.Unlock()
		return
	}
	s.a.setDown(true)
	time.Sleep(upTo(s.rng, 5*time.Second))
	s.a.restore(s.backupAt, s.backup...)
	s.backup = nil
	s.a.setDown(false)
	time.Sleep(upTo(s.rng, 20*time.Second))
}
