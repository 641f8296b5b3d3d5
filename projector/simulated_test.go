package projector

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// hedge of the simulation: some twenty things that projectors do.
const hedge = 20 * time.Millisecond

// simulated is one projector: its machine, its sessions, what it knows of the others, and its writes on their way.
type simulated struct {
	id             string
	m              *machine
	ranks          *Ranks
	held           holds
	wanted         map[endpoint.Key][]wish // what it has wanted to write of a Key, since it last wanted nothing
	events, states follower
	flying         []write
	answers        []func()
}

// orphan is a write of a projector that has died.
type orphan struct {
	of    *simulated
	write write
}

// wish is a State that a projector wanted at a time.
type wish struct {
	at    time.Time
	state endpoint.State
}

func (w *world) projector() *simulated {
	w.born++
	id := fmt.Sprint("p", w.born)
	p := &simulated{id: id, m: newMachine("prod"), ranks: NewRanks(id), held: holds{}, wanted: map[endpoint.Key][]wish{}}
	p.events = follower{created: -1, feed: p.m.event, ahead: w.r.UintN(2) == 0}
	p.states = follower{created: -1, feed: p.m.state, ahead: w.r.UintN(2) == 0}
	return p
}

// project lets a projector do one thing.
func (w *world) project(p *simulated) bool {
	w.now = w.now.Add(time.Millisecond)
	switch w.r.UintN(5) {
	case 0:
		return p.events.step(w.events)
	case 1:
		return p.states.step(w.states)
	case 2:
		for _, key := range w.api.Keys() {
			if h, held := p.held[key]; held && !w.now.Before(h.until) {
				p.m.again(key)
			}
		}
		if key, some := p.m.pop(); some {
			w.attend(p, key)
			return true
		}
	case 3:
		if len(p.answers) > 0 {
			p.answers[0]()
			p.answers = p.answers[1:]
			return true
		}
	default:
		if len(p.flying) > 0 {
			i := w.r.IntN(len(p.flying))
			wr := p.flying[i]
			p.flying = slices.Delete(p.flying, i, i+1)
			w.write(p, wr)
			return true
		}
	}
	return false
}

// attend lets a projector look at a Key, as the owner does, and checks that one of rank n lets the others be first.
func (w *world) attend(p *simulated, key endpoint.Key) {
	w.t.Helper()
	wr, wanted := p.m.wants(key)
	if !wanted {
		p.held.end(key)
		delete(p.wanted, key)
		return
	}
	rank, _ := p.ranks.Of("prod")
	p.wanted[key] = append(p.wanted[key], wish{w.now, wr.state})
	since, waited := p.held[key]
	v, spared := p.held.ask(w.now, key, wr, rank, hedge)
	if v != goes {
		if until := p.held[key].until; !until.After(w.now) || until.Sub(w.now) > time.Duration(max(rank, since.rank))*hedge {
			w.fail("%s, rank %d, waits until %s at %s", p.id, rank, until, w.now)
		}
		return
	}
	if waited && !spared {
		rank = since.rank // The one that it had when it began to wait.
	}
	if rank > 0 && !slices.ContainsFunc(p.wanted[key], func(o wish) bool {
		return w.now.Sub(o.at) >= time.Duration(rank)*hedge && !o.state.Join(wr.before).SameSlices(wr.before)
	}) {
		w.fail("%s, rank %d, writes at %s what others may be about to write: %v", p.id, rank, w.now, endpointtest.FormatState(wr.state))
	}
	p.m.take(wr)
	p.flying = append(p.flying, wr)
}

// regroup lets a projector hear who is alive: all, some of them, or nobody, as is the case or as was.
func (w *world) regroup(p *simulated) {
	var live []string
	for i := max(1, w.born-5); i <= w.born; i++ {
		id := fmt.Sprint("p", i)
		alive := slices.ContainsFunc(w.projectors, func(o *simulated) bool { return o.id == id })
		if lie := w.r.UintN(6) == 0; alive != lie {
			live = append(live, id)
		}
	}
	p.ranks.Set(live)
	rank, _ := p.ranks.Of("prod")
	w.say("%s hears of %v: rank %d", p.id, live, rank)
}

// write is the bus taking a write, or refusing it, or losing its answer.
func (w *world) write(p *simulated, wr write) {
	key := wr.state.Key
	st := wr.state
	if w.r.UintN(20) == 0 {
		p.m.failed(wr) // It did not arrive.
		return
	}
	before := endpoint.State{Key: key}
	if n, some := w.states.last[key.String()]; some {
		before = *n.State
	}
	if !w.states.put(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Key: key, State: &st}, wr.expect) {
		n, some := w.states.last[key.String()]
		if !some {
			n = ledger.Notice{Kind: ledger.Absent, Cluster: "prod", Key: key}
		}
		p.answers = append(p.answers, func() { p.m.read(wr, n) })
		return
	}
	w.say("%s: %v", p.id, endpointtest.FormatState(st))
	w.shrinksNot(st, before)
	seq := w.states.seq
	p.answers = append(p.answers, func() {
		if w.r.UintN(20) == 0 {
			p.m.failed(wr) // It did arrive, and the answer did not.
		} else {
			p.m.done(wr, seq)
		}
	})
}
