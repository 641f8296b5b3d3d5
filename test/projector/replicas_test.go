package projector_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/projector"
)

const cluster = "prod"

// replica is a projector with a connection of its own, which the others hear of, as in a process.
type replica struct {
	b     *bus.Bus
	reg   *prometheus.Registry
	ranks *projector.Ranks
	heard chan []bus.Member // the newest set that it heard of
	stop  func()            // ends the projector; nobody is told
	leave func()            // ends its membership, and says so to the others
	close func()            // ends its connection
}

func startReplica(t *testing.T, e *bus.Embedded, name string, hedge time.Duration) *replica {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{Name: name, Server: e, Log: quiet, Metrics: prometheus.NewRegistry(), ClaimTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{b: b, reg: prometheus.NewRegistry(), ranks: projector.NewRanks(b.ID()), heard: make(chan []bus.Member, 1)}
	p, err := projector.New(projector.Config{
		Events: b.Events(), States: b.States(), Certifier: b.States(), Ranks: r.ranks, Hedge: hedge, Registerer: r.reg, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.close = sync.OnceFunc(b.Close)
	r.stop = background(t, p.Run)
	r.leave = background(t, func(ctx context.Context) error { return b.Announce(ctx, "projector", nil) })
	listen := background(t, func(ctx context.Context) error {
		return b.Members(ctx, "projector", func(members []bus.Member) {
			var live []string
			for _, m := range members {
				live = append(live, m.ID)
			}
			r.ranks.Set(live)
			select {
			case <-r.heard:
			default:
			}
			r.heard <- members
		})
	})
	t.Cleanup(func() { r.stop(); r.leave(); listen(); r.close() })
	return r
}

// background runs something and gives what ends it.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// meets waits until the replica has heard of n members.
func (r *replica) meets(t *testing.T, n int) {
	t.Helper()
	for timeout := time.After(atMost); ; {
		select {
		case members := <-r.heard:
			if len(members) == n {
				return
			}
		case <-timeout:
			t.Fatalf("%s has not heard of %d members", r.b.ID(), n)
		}
	}
}

// counter sums up a counter of the projector over clusters, for one outcome.
func (r *replica) counter(t *testing.T, name, outcome string) (sum float64) {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "slicecast_projector_"+name && l.GetName() == "outcome" && l.GetValue() == outcome {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// attempts is how many writes of a State the replica has sent.
func (r *replica) attempts(t *testing.T) (sum float64) {
	t.Helper()
	for _, outcome := range []string{"saved", "conflict", "error"} {
		sum += r.counter(t, "writes_total", outcome)
	}
	return sum
}

// load changes services of one slice each, and follows what becomes of that.
type load struct {
	t      *testing.T
	b      *bus.Bus
	seqs   map[endpoint.Key]uint64
	last   map[endpoint.Key]endpoint.Slice
	rv     uint64
	cert   uint64
	grown  chan struct{} // something was heard
	writes int           // changes put

	mu       sync.Mutex // guards what follows
	put      map[endpoint.Key][]change
	states   int // messages of STATE
	heardOf  map[endpoint.Key]endpoint.State
	longest  time.Duration // from a change's storage to the receipt of a State that has it
	lastSeen time.Time
	gap      time.Duration // between two States, while changes came
	measured bool
}

// change is one that no State has yet.
type change struct {
	version endpoint.Version
	at      time.Time
}

func newLoad(t *testing.T, e *bus.Embedded) *load {
	l := &load{
		t: t, b: connect(t, e, "load"), seqs: map[endpoint.Key]uint64{}, last: map[endpoint.Key]endpoint.Slice{}, grown: make(chan struct{}, 1),
		put: map[endpoint.Key][]change{}, heardOf: map[endpoint.Key]endpoint.State{}, rv: 1,
	}
	stop := background(t, func(ctx context.Context) error {
		return l.b.States().Follow(ctx, cluster, func(n ledger.Notice) error { l.hear(n); return nil })
	})
	t.Cleanup(stop)
	return l
}

func (l *load) hear(n ledger.Notice) {
	if n.Kind != ledger.Changed || n.State == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.states++
	if l.measured {
		l.gap = max(l.gap, now.Sub(l.lastSeen))
	}
	l.lastSeen = now
	if before, known := l.heardOf[n.Key]; known && !before.Join(*n.State).SameSlices(*n.State) {
		l.t.Errorf("%s went back", n.Key)
	}
	l.heardOf[n.Key] = *n.State
	l.put[n.Key] = slices.DeleteFunc(l.put[n.Key], func(c change) bool {
		there := len(n.State.Slices) == 1 && !c.version.After(n.State.Slices[0].Version)
		if there && l.measured {
			l.longest = max(l.longest, now.Sub(c.at))
		}
		return there
	})
	select {
	case l.grown <- struct{}{}:
	default:
	}
}

// change puts the next write of the API server.
func (l *load) change(ctx context.Context) {
	l.t.Helper()
	l.rv++
	key := endpoint.Key{Cluster: cluster, Namespace: "shop", Service: fmt.Sprint("s", l.rv%5)}
	s := endpoint.Slice{
		Key: key, Name: key.Service + "-a", Version: endpoint.Version{Generation: 1, Resource: l.rv}, Ports: []endpoint.Port{{Number: 8080}},
		Endpoints: []endpoint.Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 0, byte(l.rv >> 8), byte(l.rv)}), Conditions: endpoint.Ready | endpoint.Serving}},
	}
	l.mu.Lock()
	l.put[key] = append(l.put[key], change{s.Version, time.Now()})
	l.mu.Unlock()
	res, err := l.b.Events().Put(ctx, endpoint.Event{Slice: s}, l.seqs[key])
	if err != nil || !res.Saved {
		l.t.Fatalf("put %s: %+v, %v", s.Name, res, err)
	}
	l.seqs[key], l.last[key] = res.Seq, s
	l.writes++
}

// certify writes a checkpoint of all that was put.
func (l *load) certify(ctx context.Context) {
	l.t.Helper()
	cp := ledger.Checkpoint{Complete: endpoint.Version{Generation: 1, Resource: l.rv}, Count: uint64(len(l.last)), Written: time.Now()}
	for key, s := range l.last {
		cp.AsOf = max(cp.AsOf, l.seqs[key])
		cp.Sum = cp.Sum.Add(ledger.Digest(key, s.Name, s.Version, s.Hash()))
	}
	res, err := l.b.Events().Certify(ctx, cluster, cp, l.cert)
	if err != nil || !res.Saved {
		l.t.Fatalf("checkpoint: %+v, %v", res, err)
	}
	l.cert = res.Seq
}

// run makes n changes, one each 5 ms.
func (l *load) run(ctx context.Context, n int) {
	l.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range n {
		l.change(ctx)
		<-tick.C
	}
}

// settle waits until every change is in a State or replaced by one that is, and compares.
func (l *load) settle(ctx context.Context) {
	l.t.Helper()
	for {
		l.mu.Lock()
		missing := 0
		for _, all := range l.put {
			missing += len(all)
		}
		l.mu.Unlock()
		if missing == 0 {
			break
		}
		select {
		case <-l.grown:
		case <-ctx.Done():
			l.t.Fatalf("%d changes have not come through", missing)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, s := range l.last {
		if want := (endpoint.State{Key: key, Slices: []endpoint.Slice{s}}); !l.heardOf[key].SameSlices(want) {
			l.t.Errorf("%s: got %v, want %v", key, l.heardOf[key], want)
		}
	}
	if l.states > l.writes {
		l.t.Errorf("%d States for %d changes: some change was written twice", l.states, l.writes)
	}
	l.measured = false
}

// measure begins to look for gaps.
func (l *load) measure() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measured, l.lastSeen, l.gap, l.longest = true, time.Now(), 0, 0
}

// pair starts two replicas that know each other, and gives them by rank.
func pair(t *testing.T, e *bus.Embedded, hedge time.Duration) (first, second *replica) {
	t.Helper()
	first, second = startReplica(t, e, "projector/1", hedge), startReplica(t, e, "projector/2", hedge)
	first.meets(t, 2)
	second.meets(t, 2)
	a, _ := first.ranks.Of(cluster)
	b, _ := second.ranks.Of(cluster)
	if a+b != 1 {
		t.Fatalf("ranks %d and %d, want 0 and 1", a, b)
	}
	if a == 1 {
		first, second = second, first
	}
	return first, second
}

func embedded(t *testing.T) *bus.Embedded {
	t.Helper()
	e, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

func TestInQuietOperationTheFirstReplicaAloneWrites(t *testing.T) {
	e := embedded(t)
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	// A hedge that no pause of a busy machine reaches.
	first, second := pair(t, e, 5*time.Second)
	l := newLoad(t, e)
	l.certify(ctx)
	l.run(ctx, 300)
	l.certify(ctx)
	l.settle(ctx)
	if n := second.attempts(t); n > 0 {
		t.Errorf("the second replica has sent %v writes", n)
	}
	if n := first.counter(t, "writes_total", "conflict"); n > 0 {
		t.Errorf("the first replica has lost %v writes", n)
	}
	t.Logf("%d changes, %d States; the second was spared %v hedges", l.writes, l.states, second.counter(t, "hedges_total", "spared"))
}

func TestTheDeathOfTheFirstReplicaLosesNoChange(t *testing.T) {
	for _, way := range []string{"crash", "stop"} {
		t.Run(way, func(t *testing.T) {
			e := embedded(t)
			ctx, cancel := context.WithTimeout(t.Context(), atMost)
			defer cancel()
			first, second := pair(t, e, 0)
			l := newLoad(t, e)
			l.certify(ctx)
			l.run(ctx, 5) // The first States wait for the first match.
			l.settle(ctx)
			l.measure()
			l.run(ctx, 200)
			l.settle(ctx)
			quiet, gap, longest := second.attempts(t), l.gap, l.longest
			l.measure()
			dying := make(chan struct{})
			go func() {
				defer close(dying)
				time.Sleep(500 * time.Millisecond)
				if way == "crash" {
					first.close() // Its entry lapses.
				}
				first.stop()
				first.leave()
			}()
			l.run(ctx, 400)
			<-dying
			l.settle(ctx)
			if n := second.counter(t, "writes_total", "saved"); n == 0 {
				t.Error("the second replica has written nothing")
			}
			t.Logf("%d changes, %d States; before the death the second sent %v writes; hedged writes: %v saved, %v conflicts, %v spared",
				l.writes, l.states, quiet, second.counter(t, "hedges_total", "saved"), second.counter(t, "hedges_total", "conflict"), second.counter(t, "hedges_total", "spared"))
			t.Logf("largest gap between States %s, before the death %s; longest time from a change to a State that has it %s, before %s", l.gap, gap, l.longest, longest)
			// What comes when the others have heard of it is no longer held back.
			second.meets(t, 1)
			if rank, known := second.ranks.Of(cluster); rank != 0 || !known {
				t.Errorf("rank %d, known %v, want 0", rank, known)
			}
			before := second.counter(t, "hedges_total", "saved")
			l.run(ctx, 50)
			l.settle(ctx)
			if n := second.counter(t, "hedges_total", "saved"); n > before {
				t.Errorf("%v hedged writes by the only replica", n-before)
			}
		})
	}
}
