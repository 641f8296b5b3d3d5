package projector

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

var (
	histories = flag.Int("histories", 800, "random histories to simulate")
	firstSeed = flag.Uint64("seed", 0, "the first of them")
)

// world is one cluster, two watchers, both streams and several projectors.
type world struct {
	t              *testing.T
	r              endpointtest.Random
	api            *endpointtest.API
	asOf           [2]endpoint.Version // of the watchers' caches
	events, states *stream
	streams        int
	projectors     []*simulated
	born           int       // projectors, so far
	now            time.Time // goes on by a millisecond with each thing that a projector does
	orphans        []orphan  // on their way from projectors that have died
	trail          []string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: endpointtest.NewRandom(seed), api: endpointtest.NewAPI("prod"), events: newStream(0), states: newStream(1), streams: 2}
	w.now = time.Unix(0, 0)
	for range 3 {
		w.projectors = append(w.projectors, w.projector())
	}
	w.asOf = [2]endpoint.Version{w.api.Now(), w.api.Now()}
	return w
}

func (w *world) say(format string, args ...any) {
	w.trail = append(w.trail, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.trail, "\n"))
}

// cache is what a watcher that is complete as of v has of key.
func (w *world) cache(key endpoint.Key, v endpoint.Version) map[string]endpoint.Slice {
	out := map[string]endpoint.Slice{}
	for _, s := range w.api.At(key, v) {
		out[s.Name] = s
	}
	return out
}

// wants lists the events that a watcher complete as of v would write now.
func (w *world) wants(v endpoint.Version) []endpoint.Event {
	var out []endpoint.Event
	for _, key := range w.api.Keys() {
		cache := w.cache(key, v)
		for _, name := range slices.Sorted(maps.Keys(cache)) {
			s := cache[name]
			if had, some := w.events.last[key.String()+"/"+name]; some && !s.Version.After(had.Version) {
				continue
			}
			e := endpoint.Event{Slice: s}
			for _, peer := range slices.Sorted(maps.Keys(cache)) {
				if peer != name {
					e.Peers = append(e.Peers, endpoint.Ref{Name: peer, Version: cache[peer].Version})
				}
			}
			out = append(out, e)
		}
		for _, n := range w.events.snapshot() {
			if _, live := cache[n.Slice]; n.Key == key && n.Slice != "" && !n.Gone && !live && v.After(n.Version) {
				gone := endpoint.Event{Gone: true, Slice: endpoint.Slice{Key: key, Name: n.Slice, Version: v}}
				for _, peer := range slices.Sorted(maps.Keys(cache)) {
					gone.Peers = append(gone.Peers, endpoint.Ref{Name: peer, Version: cache[peer].Version})
				}
				out = append(out, gone)
			}
		}
	}
	return out
}

// watch lets a watcher see more of the API, write an event, or write a checkpoint.
func (w *world) watch(i int) {
	switch w.r.UintN(3) {
	case 0:
		w.asOf[i].Resource += w.r.Uint64N(w.api.Now().Resource - w.asOf[i].Resource + 1)
	case 1:
		if all := w.wants(w.asOf[i]); len(all) > 0 {
			e := endpointtest.OneOf(w.r, all...)
			n := noticeOf(e, 0)
			w.events.put(n, w.events.last[subjectOf(n)].Seq)
			w.say("watcher %d: %s", i, endpointtest.Step{Event: &e})
		}
	case 2:
		w.checkpoint(i)
	}
}

// checkpoint writes one if it is true: the content of the stream is complete as of the watcher's version.
func (w *world) checkpoint(i int) {
	v := w.asOf[i]
	if len(w.wants(v)) > 0 {
		return
	}
	last := w.events.last["_checkpoint"]
	if last.Seq > 0 && !v.After(last.Checkpoint.Complete) {
		return
	}
	view := maps.Clone(w.events.last)
	delete(view, "_checkpoint")
	for _, n := range view {
		// A slice that the cache has live, and another watcher has buried since: a tombstone is in no sum, so a reader
		// that missed it, since the slice was made anew meanwhile, agrees all the same, takes it for gone as of v, and
		// knows nothing of the tombstone's peers.
		if _, live := w.cache(n.Key, v)[n.Slice]; live && n.Gone {
			return
		}
	}
	count, sum := sumOf(view)
	cp := ledger.Checkpoint{Complete: v, AsOf: w.events.seq, Count: count, Sum: sum}
	w.events.put(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Checkpoint: cp}, last.Seq)
	w.say("watcher %d: checkpoint %s", i, v)
}

// shrinksNot is decision D7: no State has fewer usable endpoints than some state that the API went through since
// the last complete view, which is that of the State itself, of the one that it replaces, or of the checkpoint.
func (w *world) shrinksNot(st, before endpoint.State) {
	w.t.Helper()
	has, since := usable(st.Slices), st.Floor
	for _, v := range []endpoint.Version{before.Floor, w.states.last["_checkpoint"].Checkpoint.Complete} {
		if v.After(since) {
			since = v
		}
	}
	for v := since; !v.After(w.api.Now()); v.Resource++ {
		if covers(has, usable(w.api.At(st.Key, v))) {
			return
		}
	}
	w.fail("state of %s has fewer endpoints than the API ever had since %s: %v", st.Key, since, endpointtest.FormatState(st))
}

func usable(list []endpoint.Slice) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		for _, e := range s.Endpoints {
			if ready, _ := e.Conditions.Usable(); ready {
				out[e.Addr.String()] = true
			}
		}
	}
	return out
}

func covers(has, wants map[string]bool) bool {
	for addr := range wants {
		if !has[addr] {
			return false
		}
	}
	return true
}

// fault breaks something.
func (w *world) fault() {
	s := &w.events
	if w.r.UintN(2) == 0 {
		s = &w.states
	}
	w.streams++
	switch w.r.UintN(6) {
	case 0:
		w.say("stream made anew, empty")
		*s = newStream(w.streams)
	case 1:
		(*s).copied = (*s).clone()
	case 2:
		if back := (*s).copied; back != nil {
			w.say("stream rolled back")
			back.created = w.streams
			*s = back
		}
	case 3: // A tombstone's time is up.
		for _, n := range w.events.snapshot() {
			if n.Gone {
				delete(w.events.last, subjectOf(n))
				w.say("tombstone of %s expired", n.Slice)
				break
			}
		}
	case 4: // The connection is lost.
		p := endpointtest.OneOf(w.r, w.projectors...)
		p.events.created, p.states.created = -1, -1
	case 5: // A projector dies, perhaps between fold and write, and another starts. What is on its way may arrive yet.
		i := w.r.IntN(len(w.projectors))
		dead := w.projectors[i]
		if w.r.UintN(2) == 0 {
			for _, wr := range dead.flying {
				w.orphans = append(w.orphans, orphan{dead, wr})
			}
		}
		w.projectors[i] = w.projector()
		w.say("%s died, %s started", dead.id, w.projectors[i].id)
	}
}

// certifies checks the checkpoint of STATE that a projector would write, and writes it: at its position the stream had
// that sum, and was complete.
func (w *world) certifies(p *simulated) {
	cp, expect, ok := p.m.certify()
	if !ok || p.states.created != w.states.created {
		return
	}
	held := map[endpoint.Key]endpoint.State{}
	for _, n := range w.states.log {
		if n.Kind == ledger.Changed && n.Seq <= cp.AsOf {
			held[n.Key] = *n.State
		}
	}
	var count uint64
	var sum ledger.Sum
	for _, key := range w.api.Keys() {
		c, s := ledger.OfState(held[key])
		count, sum = count+c, sum.Add(s)
		if own, known := p.m.services[key]; known {
			w.complete(key, own.stored.Slices, cp.Complete)
		} else {
			w.complete(key, nil, cp.Complete)
		}
	}
	// A late reader certifies what it has read. What was replaced before it was read is in no other reader's sum, or
	// that one has missed it too: either way nobody believes what is not so.
	late := !p.states.ahead && w.missed(cp.AsOf)
	if late {
		return
	}
	if cp.Count != count || cp.Sum != sum {
		w.fail("checkpoint of %s at %d has a sum that the stream did not have there: %v", cp.Complete, cp.AsOf, held)
	}
	if w.r.UintN(4) == 0 {
		w.states.put(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Checkpoint: cp}, expect)
	}
}

// missed reports whether some State up to a position has been replaced since.
func (w *world) missed(asOf uint64) bool {
	return slices.ContainsFunc(w.states.log, func(n ledger.Notice) bool {
		return n.Kind == ledger.Changed && n.Seq <= asOf && w.states.last[subjectOf(n)].Seq > asOf
	})
}

// complete fails unless held has everything that the API had of key at v, and nothing else up to v.
func (w *world) complete(key endpoint.Key, held []endpoint.Slice, v endpoint.Version) {
	now, later := w.cache(key, v), w.cache(key, w.api.Now())
	for _, s := range held {
		was, live := now[s.Name]
		if !live && !s.Version.After(v) {
			w.fail("checkpoint of %s with %s@%s, which was gone", v, s.Name, s.Version)
		}
		if was.Version.After(s.Version) {
			w.fail("checkpoint of %s with %s@%s, which was at %s", v, s.Name, s.Version, was.Version)
		}
		delete(now, s.Name)
	}
	for name, s := range now {
		if l, live := later[name]; live && l.Version == s.Version {
			w.fail("checkpoint of %s without %s@%s", v, name, s.Version)
		}
	}
}

// quiet lets everybody catch up, and compares.
func (w *world) quiet() {
	for i := range 20_000 {
		if i%2000 == 1999 {
			w.api.Tick() // The next checkpoint, for a session that has to disagree with two.
		}
		w.asOf = [2]endpoint.Version{w.api.Now(), w.api.Now()}
		idle := len(w.wants(w.asOf[0])) == 0
		for i := range w.asOf {
			w.watch(i)
		}
		for _, p := range w.projectors {
			idle = !w.project(p) && idle && p.m.floor == w.api.Now() && len(p.m.queue) == 0 && len(p.flying)+len(p.answers)+len(p.held) == 0 &&
				p.events.created == w.events.created && p.states.created == w.states.created &&
				p.events.read == len(w.events.log) && p.states.read == len(w.states.log) && len(p.events.pending)+len(p.states.pending) == 0
		}
		if idle {
			break
		}
	}
	for _, key := range w.api.Keys() {
		want := w.api.At(key, w.api.Now())
		var got []endpoint.Slice
		if n, some := w.states.last[key.String()]; some {
			got = n.State.Slices
		}
		if !(endpoint.State{Key: key, Slices: got}).SameSlices(endpoint.State{Key: key, Slices: want}) {
			w.fail("in quiet, %s: got %v\nwant %v", key, endpointtest.FormatState(endpoint.State{Key: key, Slices: got}), want)
		}
	}
	for _, p := range w.projectors {
		if _, _, ok := p.m.certify(); !ok && (w.states.last["_checkpoint"].Checkpoint.Complete != w.api.Now()) {
			w.fail("in quiet, nobody can certify: counts %v, ahead %d, read %d of %d", p.m.counts, p.m.ahead, p.m.states.ledger.Seq(), w.states.seq)
		}
		w.certifies(p)
	}
}

func TestNoStateShrinksWithoutEvidenceInRandomHistories(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
		w := newWorld(t, seed)
		w.say("seed %d", seed)
		for range 40 + w.r.IntN(200) {
			switch w.r.UintN(12) {
			case 0, 1:
				w.api.Change(w.r)
				e := w.api.Writes[max(0, len(w.api.Writes)-1):]
				for i := range e {
					w.say("api: %s", endpointtest.Step{Event: &e[i]})
				}
			case 2, 3, 4:
				w.watch(w.r.IntN(2))
			case 5:
				if w.r.UintN(4) == 0 {
					w.fault()
				}
				w.regroup(endpointtest.OneOf(w.r, w.projectors...))
				if n := len(w.orphans); n > 0 {
					w.write(w.orphans[n-1].of, w.orphans[n-1].write)
					w.orphans = w.orphans[:n-1]
				}
			default:
				p := endpointtest.OneOf(w.r, w.projectors...)
				w.project(p)
				w.certifies(p)
			}
		}
		w.quiet()
		if t.Failed() {
			return
		}
	}
}
