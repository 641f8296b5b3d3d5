// Pure: values in, values out.

package projector

import (
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// machine is the projector of one cluster without its hands: notices of both streams go in, writes come out. It knows
// no context, clock or goroutine, and the same input gives the same output.
//
// Invariants:
//
//	M1: what memory holds is changed by events newer than it and by matches only; sessions come and go.
//	M2: no write comes out before the first match, before the STATE snapshot is done, or for a Key that is not closed.
//	M3: at most one write per Key is out.
//	M4: counts[x] is the number of services of status x.
type machine struct {
	cluster  string
	services map[endpoint.Key]*service
	floor    endpoint.Version
	matched  bool // since the process began
	events   session
	states   session
	epoch    uint64 // number of the STATE session: what a write of an earlier one says of sequences counts no more
	ahead    uint64 // highest sequence that the STATE view took from answers; the session has to get there
	queue    []*service
	restless map[*service]struct{}      // services that the next match may change
	waiting  map[*service]struct{}      // services that a higher floor may change: behind and open
	owed     map[place]endpoint.Version // slices of the EVENTS view that cannot be read and memory does not have, as their headers say
	counts   [statuses]int
	tally    tally
}

// tally counts what a machine did, for metrics.
type tally struct {
	folds                        uint64
	eventVerdicts, stateVerdicts verdicts
}

// verdicts counts judged checkpoints.
type verdicts struct{ agree, disagree, passed uint64 }

// write is a State to put on the bus, expecting the sequence (0 for none).
type write struct {
	state  endpoint.State
	before endpoint.State // what that message says
	expect uint64
	epoch  uint64
	rank   int       // of this replica when it sent the write
	cause  time.Time // when the bus stored the oldest live event in it; zero when there is none
}

func newMachine(cluster string) *machine {
	return &machine{
		cluster:  cluster,
		services: map[endpoint.Key]*service{},
		events:   newSession(),
		states:   newSession(),
		restless: map[*service]struct{}{},
		waiting:  map[*service]struct{}{},
		owed:     map[place]endpoint.Version{},
	}
}

// event takes a notice of the EVENTS stream. It reports whether the view has been found wrong and the session is to
// be opened anew.
func (m *machine) event(n ledger.Notice) (resync bool) {
	switch n.Kind {
	case ledger.Opened:
		m.events = newSession()
		clear(m.owed)
		for _, s := range m.services {
			s.forget()
			if len(s.slots) > 0 {
				m.restless[s] = struct{}{}
			}
		}
	case ledger.Changed:
		m.changed(n)
	case ledger.Refused:
		m.refusedEvent(n)
	}
	m.events.note(n)
	verdict := m.events.judge()
	m.tally.eventVerdicts.count(verdict)
	if verdict == ledger.Agrees {
		if c, some := m.certain(m.events.checkpoint.Complete); some {
			m.match(c)
		}
	}
	return verdict == ledger.Disagree && m.events.lost()
}

// changed takes one event.
func (m *machine) changed(n ledger.Notice) {
	count, sum := uint64(0), ledger.Sum{}
	if !n.Gone && !n.Version.IsZero() {
		count, sum = 1, ledger.Digest(n.Key, n.Slice, n.Version, n.Hash)
	}
	m.events.ledger.Put(n.Key.String()+"/"+n.Slice, n.Seq, count, sum)
	if n.Event == nil {
		return
	}
	delete(m.owed, place{n.Key, n.Slice})
	s := m.service(n.Key)
	m.restless[s] = struct{}{}
	if !s.learn(n.Event, m.floor) {
		return
	}
	if m.events.ledger.IsComplete() && s.cause.IsZero() {
		if s.cause = n.Stored; s.cause.IsZero() {
			s.cause = n.Event.Slice.Observed
		}
	}
	m.enqueue(s)
}

// match takes in that the view is complete as of c.
func (m *machine) match(c endpoint.Version) {
	first, floor := !m.matched, m.floor
	m.matched = true
	if c.After(floor) {
		m.floor = c
	}
	for _, s := range sorted(m.restless) {
		changed, calm := s.match(floor, c)
		if changed {
			m.enqueue(s)
		}
		if calm {
			delete(m.restless, s)
			m.drop(s)
		}
	}
	if first {
		m.enqueueAll()
	} else if m.floor != floor {
		for _, s := range sorted(m.waiting) {
			m.enqueue(s)
		}
	}
}

// state takes a notice of the STATE stream, as event does.
func (m *machine) state(n ledger.Notice) (resync bool) {
	switch n.Kind {
	case ledger.Opened:
		m.states, m.ahead = newSession(), 0
		m.epoch++
		for _, s := range m.services {
			s.seq, s.stored, s.spoiled = 0, endpoint.State{Key: s.key}, false
		}
	case ledger.Refused:
		m.refusedState(n)
	case ledger.Changed:
		if n.State == nil {
			break
		}
		s := m.service(n.Key)
		news := n.Seq > s.seq
		count, sum := s.hear(n.State, n.Seq)
		m.states.ledger.Put(n.Key.String(), n.Seq, count, sum)
		if news {
			m.enqueue(s)
		}
	}
	m.states.note(n)
	if n.Kind == ledger.Complete {
		m.enqueueAll()
	}
	verdict := m.states.judge()
	m.tally.stateVerdicts.count(verdict)
	return verdict == ledger.Disagree && m.states.lost()
}

// pop gives the next Key that wants to be looked at, until there is none.
func (m *machine) pop() (endpoint.Key, bool) {
	if !m.ready() || len(m.queue) == 0 {
		return endpoint.Key{}, false
	}
	s := m.queue[0]
	m.queue[0] = nil
	m.queue = m.queue[1:]
	s.queued = false
	return s.key, true
}

// wants folds the service of key and gives the write that it wants. The Key stays fresh until take, or until it is popped
// again and wants nothing.
func (m *machine) wants(key endpoint.Key) (write, bool) {
	s, known := m.services[key]
	if !known || !m.ready() || s.status == writing {
		return write{}, false
	}
	if !s.closed(m.floor) {
		m.set(s, open)
		return write{}, false
	}
	m.tally.folds++
	fold := s.fold(m.floor)
	if s.spoiled {
		return write{state: s.stored.Join(fold), before: endpoint.State{Key: key}, expect: s.seq, epoch: m.epoch, cause: s.cause}, true
	}
	if fold.SameSlices(s.stored) {
		s.cause = time.Time{}
		m.set(s, settled)
		m.drop(s)
		return write{}, false
	}
	joined := s.stored.Join(fold)
	if joined.SameSlices(s.stored) {
		s.cause = time.Time{}
		m.set(s, behind)
		return write{}, false
	}
	return write{state: joined, before: s.stored, expect: s.seq, epoch: m.epoch, cause: s.cause}, true
}

// take sends the write that wants gave just now: it is out until done, read or failed is called with it.
func (m *machine) take(w write) {
	s := m.services[w.state.Key]
	s.cause = time.Time{}
	m.set(s, writing)
}

// done says that the bus took w, as the message at seq.
func (m *machine) done(w write, seq uint64) {
	s := m.returned(w)
	if w.epoch == m.epoch && seq > s.seq {
		s.seq, s.stored, s.spoiled = seq, w.state, false
		m.ahead = max(m.ahead, seq)
	}
}

// read says that w lost its compare-and-set, and what the bus holds instead.
func (m *machine) read(w write, n ledger.Notice) {
	s := m.returned(w)
	if s.cause.IsZero() {
		s.cause = w.cause
	}
	if w.epoch != m.epoch || (s.seq != w.expect && n.Seq < s.seq) {
		return // A newer session, or the session itself brought something newer meanwhile.
	}
	if n.Kind == ledger.Changed && n.State != nil {
		s.seq, s.stored, s.spoiled = n.Seq, *n.State, false
		m.ahead = max(m.ahead, n.Seq)
	} else if n.Kind == ledger.Refused {
		s.spoil(n.Seq)
		m.ahead = max(m.ahead, n.Seq)
	} else if n.Kind == ledger.Absent && s.seq == w.expect {
		// The session has seen a message that the bus does not hold: it is about to learn of a loss, and its sums
		// say nothing until then.
		s.seq, s.stored, s.spoiled = 0, endpoint.State{Key: s.key}, false
		m.ahead = max(m.ahead, m.states.ledger.Seq()+1)
	}
}

// failed says that nothing is known of the fate of w: as if it had not been sent. A conflict will tell.
func (m *machine) failed(w write) {
	if s := m.returned(w); s.cause.IsZero() {
		s.cause = w.cause
	}
}

// returned takes a write back.
func (m *machine) returned(w write) *service {
	s := m.services[w.state.Key]
	m.set(s, fresh)
	m.enqueue(s)
	return s
}

// certify gives the checkpoint of STATE that is true now, and the sequence of the one that it replaces, unless there
// is something left to write or to wait for, or the one on the bus says as much.
func (m *machine) certify() (cp ledger.Checkpoint, expect uint64, ok bool) {
	busy := m.counts[fresh] + m.counts[open] + m.counts[writing]
	l := m.states.ledger
	if !m.ready() || busy > 0 || l.Seq() < m.ahead {
		return cp, 0, false
	}
	count, sum := l.Total()
	cp = ledger.Checkpoint{Complete: m.floor, AsOf: l.Seq(), Count: count, Sum: sum}
	last := m.states.checkpoint
	if m.states.seq > 0 {
		same := last.Complete == cp.Complete && last.Count == count && last.Sum == sum && last.AsOf >= m.states.changed
		if same || last.Complete.After(cp.Complete) {
			return cp, 0, false
		}
	}
	return cp, m.states.seq, true
}

// ready reports whether writes may come out.
func (m *machine) ready() bool { return m.matched && m.states.ledger.IsComplete() }

// service gives the service of key, which is made when it is new: nothing in memory, nothing in the view.
func (m *machine) service(key endpoint.Key) *service {
	s, known := m.services[key]
	if !known {
		s = newService(key)
		m.services[key] = s
		m.counts[s.status]++
	}
	return s
}

// drop forgets a service of which there is nothing to know any more.
func (m *machine) drop(s *service) {
	if len(s.slots) == 0 && s.seq == 0 && s.status == settled {
		m.counts[s.status]--
		delete(m.services, s.key)
		delete(m.restless, s)
	}
}

// set changes the status of a service.
func (m *machine) set(s *service, to status) {
	m.counts[s.status]--
	m.counts[to]++
	s.status = to
	if to == behind || to == open {
		m.waiting[s] = struct{}{}
	} else {
		delete(m.waiting, s)
	}
}

// again makes pop give the Key once more.
func (m *machine) again(key endpoint.Key) {
	if s, known := m.services[key]; known {
		m.enqueue(s)
	}
}

// enqueue makes pop give the service. One that is being written comes back by itself.
func (m *machine) enqueue(s *service) {
	if s.status == writing {
		return
	}
	m.set(s, fresh)
	if !s.queued {
		s.queued = true
		m.queue = append(m.queue, s)
	}
}

func (m *machine) enqueueAll() {
	all := make(map[*service]struct{}, len(m.services))
	for _, s := range m.services {
		all[s] = struct{}{}
	}
	for _, s := range sorted(all) {
		m.enqueue(s)
	}
}

// sorted lists a set of services by key, so that the order of a map decides nothing.
func sorted(set map[*service]struct{}) []*service {
	list := make([]*service, 0, len(set))
	for s := range set {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *service) int { return a.key.Compare(b.key) })
	return list
}

func (v *verdicts) count(of ledger.Verdict) {
	switch of {
	case ledger.Agrees:
		v.agree++
	case ledger.Disagree:
		v.disagree++
	case ledger.Passed:
		v.passed++
	}
}
