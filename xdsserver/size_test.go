package xdsserver

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// sizes are the numbers of endpoints of a service that benchmarks are made with.
var sizes = []int{10, 100, 1000, 5000}

// bigService gives a service of n pods in slices of 100 and three zones.
func bigService(n int) Service {
	var all []endpoint.Slice
	for i := 0; i < n; i += 100 {
		var eps []endpoint.Endpoint
		for j := i; j < min(n, i+100); j++ {
			eps = append(eps, ep(fmt.Sprintf("10.0.%d.%d rs-@z%d pod-%d", j/250, j%250, j%3, j)))
		}
		all = append(all, sliceOf("prod", fmt.Sprintf("cart-%03d", i), uint64(i+1), eps...))
	}
	return Service{States: []endpoint.State{stateOf(all...)}}
}

// dualService gives a service of n pods with an address of each family.
func dualService(n int) Service {
	svc := bigService(n)
	st := &svc.States[0]
	for _, sl := range slices.Clone(st.Slices) {
		sl.Name, sl.Endpoints = "six-"+sl.Name, slices.Clone(sl.Endpoints)
		for i := range sl.Endpoints {
			four := sl.Endpoints[i].Addr.As4()
			sl.Endpoints[i].Addr = netip.AddrFrom16([16]byte{0: 0xfd, 14: four[2], 15: four[3]})
		}
		st.Slices = append(st.Slices, sl)
	}
	return svc
}

// changes is one service whose first pod changes again and again, heard by a hub with one client.
type changes struct {
	hub    *Hub
	store  *Store
	client *stream
	states [2]endpoint.State // as received: ready and not, nothing of them shared with the memory
	seq    uint64
}

func newChanges(t testing.TB, n int) *changes {
	t.Helper()
	m, err := newMetrics(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu := &sync.Mutex{}
	c := &changes{store: newStore(mu, nil, failoverAny), seq: 10_000}
	c.hub = newHub(mu, c.store, m, 100, time.Second)
	for i := range c.states {
		c.states[i] = bigService(n).States[0]
	}
	c.states[1].Slices[0].Endpoints[0].Conditions = endpoint.Serving
	for _, n := range []ledger.Notice{{Kind: ledger.Opened}, stateNoticeAt(1, bigService(n).States[0]), {Kind: ledger.Complete, Seq: 1}} {
		if err := c.store.notice(n); err != nil {
			t.Fatal(err)
		}
	}
	c.client = c.hub.open(streamOptions{service: "ads", delta: true})
	c.hub.request(c.client, request{kind: assignments, subscribe: []string{cart}})
	c.answer()
	return c
}

func (c *changes) answer() {
	for r, _ := c.hub.next(c.client); r != nil; r, _ = c.hub.next(c.client) {
		c.hub.request(c.client, request{kind: assignments, nonce: r.nonce})
	}
}

// change takes the next State, in which one endpoint differs, up to its acknowledgement.
func (c *changes) change() {
	c.seq++
	st := c.states[c.seq%2]
	st.Slices[0].Version.Resource = c.seq
	c.hub.mu.Lock()
	_ = c.store.notice(stateNoticeAt(c.seq, st))
	c.hub.mu.Unlock()
	c.answer()
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			svc, view, name := bigService(n), View{Cluster: "prod", Zone: "z1"}, mustName(b, cart)
			b.ReportAllocs()
			for b.Loop() {
				Assign(svc, view, name)
			}
		})
	}
}

// BenchmarkOneOf is one changed endpoint of a service: the join into the memory, the index of pods, the assignment, its
// encoding, and what the hub does for one client.
func BenchmarkOneOf(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newChanges(b, n)
			b.ReportAllocs()
			for b.Loop() {
				c.change()
			}
		})
	}
}

func TestEncodingAllocatesNothingPerEndpoint(t *testing.T) {
	count := func(svc Service) float64 {
		a := Assign(svc, View{}, mustName(t, cart))
		return testing.AllocsPerRun(20, func() { encodeAssignment(a) })
	}
	few, many := count(bigService(10)), count(bigService(5000))
	if few != many || few == 0 {
		t.Errorf("%v allocations for 10 endpoints, %v for 5,000", few, many)
	}
	if few, many := count(dualService(10)), count(dualService(2500)); few != many {
		t.Errorf("%v allocations for 10 pods of both families, %v for 2,500", few, many)
	}
}

func TestAChangeAllocatesNothingPerUnchangedEndpoint(t *testing.T) {
	count := func(n int) float64 {
		c := newChanges(t, n)
		return testing.AllocsPerRun(50, c.change)
	}
	// From two slices on: one alone needs no merging, and no table of pods.
	few, many := count(200), count(5000)
	if many > few+40 { // Maps of the runtime may grow now and then; one an endpoint would be thousands.
		t.Errorf("%v allocations for a change of one of 200 endpoints, %v for one of 5,000", few, many)
	}
}
