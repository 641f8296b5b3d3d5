package projector

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// sizes of a service: slices, and endpoints in each of them.
var sizes = [...]struct{ slices, endpoints int }{{1, 10}, {1, 100}, {1, 1000}, {5, 1000}, {50, 100}}

// large is a service to measure with.
type large struct {
	key    endpoint.Key
	slices []endpoint.Slice
	flips  []endpoint.Slice // the same slices with one endpoint terminating
	rv     uint64
}

func newLarge(service string, count, endpoints int) *large {
	l := &large{key: endpoint.Key{Cluster: "prod", Namespace: "shop", Service: service}}
	for i := range count {
		s := endpoint.Slice{Key: l.key, Name: fmt.Sprintf("%s-%03d", service, i), UID: fmt.Sprint("uid-", i), Ports: []endpoint.Port{{Name: "http", Number: 80}}}
		for j := range endpoints {
			s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), Conditions: endpoint.Ready | endpoint.Serving,
				Zone: "zone-1", Node: "node-1", TargetKind: "Pod", TargetName: fmt.Sprint("pod-", i, "-", j), TargetUID: fmt.Sprint("uid-", i, "-", j),
			})
		}
		l.rv++
		s.Version = endpoint.Version{Generation: 1, Resource: l.rv}
		flip := copied(s)
		flip.Endpoints[0].Conditions = endpoint.Serving | endpoint.Terminating
		l.slices, l.flips = append(l.slices, s), append(l.flips, flip)
	}
	return l
}

// copied gives a slice that shares no memory with s, as one that was decoded from a message.
func copied(s endpoint.Slice) endpoint.Slice {
	s.Name, s.Ports, s.Endpoints = strings.Clone(s.Name), slices.Clone(s.Ports), slices.Clone(s.Endpoints)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Zone, e.Node, e.TargetKind = strings.Clone(e.Zone), strings.Clone(e.Node), strings.Clone(e.TargetKind)
		e.TargetName, e.TargetUID = strings.Clone(e.TargetName), strings.Clone(e.TargetUID)
	}
	return s
}

func (l *large) events() []endpoint.Event {
	var all []endpoint.Event
	for _, s := range l.slices {
		all = append(all, endpoint.Event{Slice: s})
	}
	return all
}

// change gives the next write of the API server to slice i.
func (l *large) change(i int) endpoint.Event {
	l.slices[i], l.flips[i] = l.flips[i], l.slices[i]
	l.rv++
	l.slices[i].Version.Resource = l.rv
	return endpoint.Event{Slice: l.slices[i]}
}

func eachSize(b *testing.B, do func(b *testing.B, l *large)) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.slices, size.endpoints), func(b *testing.B) {
			b.ReportAllocs()
			do(b, newLarge("cart", size.slices, size.endpoints))
		})
	}
}

// BenchmarkFoldAnew folds all slices of a service.
func BenchmarkFoldAnew(b *testing.B) {
	eachSize(b, func(b *testing.B, l *large) {
		events := l.events()
		for b.Loop() {
			Fold(l.key, endpoint.Version{}, events...)
		}
	})
}

// BenchmarkFoldOneChanged learns one changed slice of a service whose other slices are known, and folds it.
func BenchmarkFoldOneChanged(b *testing.B) {
	eachSize(b, func(b *testing.B, l *large) {
		s := newService(l.key)
		for _, e := range l.events() {
			s.learn(&e, endpoint.Version{})
		}
		for i := 0; b.Loop(); i++ {
			e := l.change(i % len(l.slices))
			s.learn(&e, endpoint.Version{})
			s.closed(endpoint.Version{})
			s.fold(endpoint.Version{})
		}
	})
}

// BenchmarkChange is the whole path of one changed slice through the machine whose write is taken: the event, the fold,
// the write, its answer, and the message of STATE that the session reads.
func BenchmarkChange(b *testing.B) {
	eachSize(b, func(b *testing.B, l *large) { benchmarkPath(b, l, true) })
}

// BenchmarkHeardChange is that path in a machine to which another projector is first: the message of STATE is not its own.
func BenchmarkHeardChange(b *testing.B) {
	eachSize(b, func(b *testing.B, l *large) { benchmarkPath(b, l, false) })
}

// BenchmarkChangeAmongMany is that path in a cluster of many services.
func BenchmarkChangeAmongMany(b *testing.B) {
	b.ReportAllocs()
	m, seq := liveMachine(), uint64(1)
	all := make([]*path, 10_000)
	for i := range all {
		all[i] = newPath(newLarge(fmt.Sprint("s-", i), 1, 10))
		all[i].fill(m, &seq)
	}
	for i := 0; b.Loop(); i++ {
		all[i%len(all)].change(m, &seq, 0, true)
	}
}

func TestTheOtherSlicesOfAServiceCostNoAllocation(t *testing.T) {
	allocs := func(slices, endpoints int) float64 {
		m, seq := liveMachine(), uint64(1)
		p := newPath(newLarge("cart", slices, endpoints))
		p.fill(m, &seq)
		i := 0
		return testing.AllocsPerRun(100, func() {
			p.change(m, &seq, i%slices, true)
			i++
		})
	}
	small := allocs(1, 10)
	for _, size := range sizes {
		if got := allocs(size.slices, size.endpoints); got > small+10 { // one an endpoint or slice would be many more
			t.Errorf("one changed slice of %d with %d endpoints: %v allocations, of 1 with 10: %v", size.slices, size.endpoints, got, small)
		}
	}
}

func benchmarkPath(b *testing.B, l *large, own bool) {
	m, seq := liveMachine(), uint64(1)
	p := newPath(l)
	p.fill(m, &seq)
	for i := 0; b.Loop(); i++ {
		p.change(m, &seq, i%len(l.slices), own)
	}
}

// liveMachine is one that has matched.
func liveMachine() *machine {
	m := newMachine("prod")
	m.event(ledger.Notice{Kind: ledger.Opened})
	m.event(ledger.Notice{Kind: ledger.Complete})
	m.event(ledger.Notice{Kind: ledger.Certified, Seq: 1})
	m.state(ledger.Notice{Kind: ledger.Opened})
	m.state(ledger.Notice{Kind: ledger.Complete})
	return m
}

// path sends the changes of a service through a machine.
type path struct {
	*large
	hashes, flipHashes []endpoint.Hash
	decoded, flipped   []endpoint.Slice // what the bus makes of slices and flips
}

func newPath(l *large) *path {
	p := &path{large: l}
	for i := range l.slices {
		p.hashes, p.flipHashes = append(p.hashes, l.slices[i].Hash()), append(p.flipHashes, l.flips[i].Hash())
		p.decoded, p.flipped = append(p.decoded, copied(l.slices[i])), append(p.flipped, copied(l.flips[i]))
	}
	return p
}

// fill makes all slices known.
func (p *path) fill(m *machine, seq *uint64) {
	for i := range p.slices {
		p.change(m, seq, i, true)
	}
	for key, some := m.pop(); some; key, some = m.pop() {
		look(m, key)
	}
}

// change sends one change of slice i through.
func (p *path) change(m *machine, seq *uint64, i int, own bool) {
	e := p.large.change(i)
	p.hashes[i], p.flipHashes[i] = p.flipHashes[i], p.hashes[i]
	p.decoded[i], p.flipped[i] = p.flipped[i], p.decoded[i]
	p.decoded[i].Version = e.Slice.Version
	*seq++
	s := &e.Slice
	m.event(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: *seq, Key: s.Key, Slice: s.Name, Version: s.Version, Hash: p.hashes[i], Event: &e})
	if key, some := m.pop(); own && some {
		if w, ok := look(m, key); ok {
			m.done(w, *seq)
		}
	}
	st := endpoint.State{Key: p.key, Slices: p.known(m)}
	m.state(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: *seq, Key: p.key, State: &st})
	if key, some := m.pop(); some {
		look(m, key)
	}
}

// known is the State as the bus would decode it: those slices that the machine has heard of.
func (p *path) known(m *machine) []endpoint.Slice {
	return slices.Clone(p.decoded[:len(m.services[p.key].slots)])
}
