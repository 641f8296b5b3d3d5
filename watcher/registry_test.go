package watcher

import (
	"context"
	"crypto/rand"
	"fmt"

	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// registry is a Registry in memory.
type registry struct {
	mu      sync.Mutex
	infos   map[string][]byte
	changed chan struct{}
}

func newRegistry() *registry {
	return &registry{infos: map[string][]byte{}, changed: make(chan struct{})}
}

func (r *registry) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// one gives the registry as one process has it.
func (r *registry) one() *process { return &process{registry: r, id: rand.Text()} }

type process struct {
	*registry
	id    string
	newer []byte
}

// Announce implements Registry.
func (p *process) Announce(ctx context.Context, _ string, info []byte) error {
	p.change(func() {
		if p.newer != nil {
			info = p.newer
		}
		p.infos[p.id] = info
	})
	<-ctx.Done()
	p.change(func() { delete(p.infos, p.id) })
	return nil
}

// Update implements Registry.
func (p *process) Update(_ string, info []byte) error {
	p.change(func() {
		p.newer = info
		if _, there := p.infos[p.id]; there {
			p.infos[p.id] = info
		}
	})
	return nil
}

// Members implements Registry.
func (p *process) Members(ctx context.Context, _ string, handle func([]Member)) error {
	for ctx.Err() == nil {
		var all []Member
		p.mu.Lock()
		for id, info := range p.infos {
			all = append(all, Member{ID: id, Info: info})
		}
		changed := p.changed
		p.mu.Unlock()
		handle(all)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// fixed registers a watcher that always says the same; stop ends it.
func (r *registry) fixed(info string) (stop func()) {
	id := "fixed " + info
	r.change(func() { r.infos[id] = []byte(info) })
	return func() { r.change(func() { delete(r.infos, id) }) }
}

// leftover writes a slice of a service at a version, as a watcher of an older generation does.
func (r *rig) leftover(service, name string, v endpoint.Version) {
	r.t.Helper()
	sl, _, err := Translate("prod", v.Generation, esl(name, int(v.Resource), ep("10.9.9.9", "ttf", "x")))
	if err != nil {
		r.t.Fatal(err)
	}
	sl.Key.Service = service
	n, err := r.fake.Events().Get(r.t.Context(), sl.Key, name)
	if err != nil {
		r.t.Fatal(err)
	}
	if res, err := r.fake.Events().Put(r.t.Context(), endpoint.Event{Slice: sl}, n.Seq); err != nil || !res.Saved {
		r.t.Fatal(res, err)
	}
}

func (r *rig) record(rec ledger.Record) {
	r.t.Helper()
	e := r.fake.Events()
	_, seq, err := e.Record(r.t.Context(), "prod")
	if err != nil {
		r.t.Fatal(err)
	}
	if res, err := e.PutRecord(r.t.Context(), "prod", rec, seq); err != nil || !res.Saved {
		r.t.Fatal(res, err)
	}
}

func TestLeftoversWaitForEveryRegisteredWatcherOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		a.set(esl("a", 0))
		r.record(ledger.Record{UID: "uid-1", Generation: 2, Scope: "all"})
		r.leftover("old", "gone", ver(1, 500))
		behind := reg.fixed(`{"self":"other","uid":"uid-1","generation":1,"scope":"all"}`)
		reg.fixed(`{"self":"foreign","uid":"uid-9","generation":1}`)
		reg.fixed(`{"self":"starting","uid":"uid-1"}`)
		reg.fixed(`of another release`)
		w, _ := r.start(&apiSource{a: a}, func(c *Config) { c.Registry = reg.one() })
		time.Sleep(time.Hour)
		r.want("one still writes with the old generation", "a@2/101", "gone@1/500")
		if r.log.count("leftovers of the last generation wait") != 1 {
			t.Errorf("log:\n%s", r.log)
		}
		behind()
		time.Sleep(10 * time.Second)
		r.want("all have raised", "a@2/101")
		info, err := ReadRegistration(w.info())
		if want := (Registration{Self: w.self, UID: "uid-1", Generation: 2, Extent: "all"}); err != nil || info != want {
			t.Errorf("registration %+v, error %v", info, err)
		}
	})
}

func TestAnAdoptedClusterHealsWithoutAnEmptyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		slow := &slowEvents{FakeEvents: r.fake.Events(), name: "new-10", pause: 10 * time.Second}
		r.record(ledger.Record{UID: "uid-1", Generation: 7, Region: "eu"})
		for i := range 30 {
			r.leftover(fmt.Sprintf("svc-%d", i), fmt.Sprintf("old-%d", i), ver(6, uint64(1000+i)))
			if i < 20 {
				es := esl(fmt.Sprintf("new-%d", i), 0, ep("10.0.0.1", "ttf", "x"))
				es.Labels[labelService] = fmt.Sprintf("svc-%d", i)
				a.set(es)
			}
		}
		live, empty := map[string]map[string]bool{}, map[string]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- r.fake.Events().Follow(ctx, "prod", true, func(n ledger.Notice) error {
				if n.Kind != ledger.Changed {
					return nil
				}
				s := n.Key.Service
				if live[s] == nil {
					live[s] = map[string]bool{}
				}
				if live[s][n.Slice] = true; n.Gone {
					delete(live[s], n.Slice)
				}
				if len(live[s]) == 0 {
					empty[s] = true
				}
				return nil
			})
		}()
		r.start(&apiSource{a: a}, func(c *Config) { c.Events = slow })
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for i := range 30 {
			s := fmt.Sprintf("svc-%d", i)
			if empty[s] != (i >= 20) {
				t.Errorf("%s was empty: %v", s, empty[s])
			}
		}
		v := r.view()
		if len(v.live) != 20 || len(v.gone) != 30 || v.record.Region != "eu" || v.record.Scope != "all" || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("%d live, %d gone, record %+v, checkpoint %+v", len(v.live), len(v.gone), v.record, v.cp)
		}
	})
}

// slowEvents takes its time to write one slice.
type slowEvents struct {
	*bustest.FakeEvents
	name  string
	pause time.Duration
}

func (s *slowEvents) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	if ev.Slice.Name == s.name {
		time.Sleep(s.pause) // longer than the write's own time: a timeout, then it is there
	}
	return s.FakeEvents.Put(ctx, ev, expect)
}

func TestAForgottenClusterIsPublishedAgainOnlyByItsOwnWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		a.set(esl("b", 0))
		w, _ := r.start(&apiSource{a: a})
		r.want("start", "a@1/101", "b@1/102")
		e := r.fake.Events()
		r.record(ledger.Record{UID: "uid-2", Generation: 2})
		for _, name := range []string{"a", "b"} {
			key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
			n, err := e.Get(t.Context(), key, name)
			if err != nil {
				t.Fatal(err)
			}
			ev := endpoint.Event{Slice: endpoint.Slice{Key: key, Name: name, Version: ver(2, 1)}, Gone: true, Previous: n.Version}
			if res, err := e.Put(t.Context(), ev, n.Seq); err != nil || !res.Saved {
				t.Fatal(res, err)
			}
		}
		time.Sleep(time.Hour)
		r.want("forgotten, and not this watcher's any more")
		if w.Ready() {
			t.Error("ready")
		}
		r.record(ledger.Record{UID: "uid-1", Generation: 3})
		time.Sleep(time.Minute)
		r.want("its own again", "a@3/101", "b@3/102")
	})
}

func TestMembersOfAnyOrderAreUnderstood(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `{"generation":"x"}`} {
		if _, err := ReadRegistration([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	r, err := ReadRegistration([]byte(`{"self":"s","uid":"u","generation":3,"scope":"all","later":[1]}`))
	if err != nil || r != (Registration{"s", "u", 3, "all"}) {
		t.Errorf("%+v, %v", r, err)
	}

}
