package gate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// others are the other replicas of a bench, each a fake with a gate of its own.
type others struct {
	t     *testing.T
	fakes map[string]*fake
	gates map[string]*Gate
	heard []string                 // as they were heard last
	read  func() ([]string, error) // as they are now; nil: as heard
	mute  map[string]bool          // those that do not answer
	asked map[string]int
	self  *fake
}

func (o *others) add(id string) *fake {
	f := newFake()
	g, err := New(Config{
		Name: id, Replica: f, Clusters: func() []string { return []string{"prod"} }, Floor: o.gates["self"].cfg.Floor,
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.fakes[id], o.gates[id] = f, g
	return f
}

func (o *others) Others() []string {
	o.self.mu.Lock()
	defer o.self.mu.Unlock()
	return slices.Clone(o.heard)
}

func (o *others) Read(context.Context) ([]string, error) {
	if o.read != nil {
		return o.read()
	}
	return o.Others(), nil
}

func (o *others) Ask(ctx context.Context, id string, body []byte) ([]byte, error) {
	o.self.mu.Lock()
	mute := o.mute[id]
	o.asked[id]++
	o.self.mu.Unlock()
	if mute {
		return nil, errors.New("nobody")
	}
	return o.gates[id].Peer(ctx, body)
}

func (o *others) times(id string) int {
	o.self.mu.Lock()
	defer o.self.mu.Unlock()
	return o.asked[id]
}

func (f *fake) hasPromised() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.promised["u1"]
}

// withPeers is withGate for a replica among others.
func withPeers(t *testing.T, ids []string, test func(b *bench, o *others)) {
	o := &others{t: t, fakes: map[string]*fake{}, gates: map[string]*Gate{}, mute: map[string]bool{}, asked: map[string]int{}}
	withGate(t, func(b *bench) {
		o.self, o.gates["self"], o.heard = b.fake, b.gate, ids
		for _, id := range ids {
			o.add(id)
		}
		test(b, o)
	}, func(c *Config) { c.Peers = o })
}

// leaves shows the pod leaving at a replica, as of a version.
func leaves(f *fake, rv uint64) { f.show(at(cart, rv, "-st", false)) }

func TestADrainWaitsForEveryReplicaThatIsRegistered(t *testing.T) {
	withPeers(t, []string{"r2", "r3"}, func(b *bench, o *others) {
		leaves(b.fake, 8)
		leaves(o.fakes["r2"], 8)
		leaves(o.fakes["r3"], 8)
		s := o.fakes["r3"].connect("envoy-3", podAddr)
		a := b.ask()
		time.Sleep(9 * time.Second) // Longer than a question is kept.
		a.waits("a proxy of another replica holds the address")
		o.fakes["r3"].do(func() { o.fakes["r3"].push(otherAddr); s.ack() })
		a.says(true, Acknowledged, 9*time.Second)
		if len(a.answer.Proxies) != 1 || a.answer.Proxies[0].Replica != "r3" || len(a.answer.Missing) != 0 {
			t.Errorf("got %+v, want the proxy of r3", a.answer)
		}
		for id, f := range o.fakes {
			if !f.hasPromised() {
				t.Errorf("%s has not promised", id)
			}
		}
	})
}

func TestAReplicaThatIsBehindTheEvidenceIsNotClean(t *testing.T) {
	withPeers(t, []string{"r2"}, func(b *bench, o *others) {
		r2 := o.fakes["r2"]
		leaves(b.fake, 8)
		r2.floor = version(7)
		r2.show(at(cart, 7, "rs-", true))
		a := b.ask()
		a.waits("r2 still uses it")
		r2.do(func() { r2.show() })
		a.waits("r2 does not know it, and not because it is ahead")
		r2.do(func() { leaves(r2, 8) })
		a.says(true, Acknowledged, 0)
	})
}

func TestAbsenceIsTakenFromEveryReplicaByTheFloorOnly(t *testing.T) {
	withPeers(t, []string{"r2"}, func(b *bench, o *others) {
		r2 := o.fakes["r2"]
		r2.floor = version(99)
		a := b.ask()
		a.waits("r2 is below what the API server had")
		r2.do(func() { r2.floor = version(100) })
		a.says(true, NoService, 0)
	})
}

// Counterexample: a replica that registered after the set was read.
func TestAReplicaThatRegistersLateIsAskedToo(t *testing.T) {
	withPeers(t, nil, func(b *bench, o *others) {
		leaves(b.fake, 8)
		late := o.add("late")
		leaves(late, 8)
		s := late.connect("mover", podAddr)
		o.read = func() ([]string, error) { return []string{"late"}, nil } // Its registration was not heard yet.
		a := b.ask()
		time.Sleep(time.Second)
		a.waits("the late one has a proxy")
		b.do(func() { o.heard = []string{"late"} })
		late.do(func() { late.push(otherAddr); s.ack() })
		a.says(true, Acknowledged, time.Second)
	})
}

func TestAReplicaThatDoesNotAnswerBlocksUntilItIsGone(t *testing.T) {
	withPeers(t, []string{"r2", "r3"}, func(b *bench, o *others) {
		leaves(b.fake, 8)
		leaves(o.fakes["r3"], 8)
		o.mute["r2"] = true
		a := b.ask()
		time.Sleep(5 * time.Second)
		a.waits("r2 is registered")
		before := o.times("r3")
		b.do(func() { o.heard = []string{"r3"} })
		a.says(true, Acknowledged, 5*time.Second)
		if o.times("r3") == before {
			t.Error("r3 was not asked again though the set had changed")
		}
	})
	withPeers(t, []string{"r2"}, func(b *bench, o *others) {
		leaves(b.fake, 8)
		o.mute["r2"] = true
		a := b.ask(func(r *Request) { r.Timeout = Duration(2 * time.Second) })
		<-a.done
		if a.answer.Drained || a.answer.Reason != Unacknowledged || len(a.answer.Missing) != 1 || a.answer.Missing[0].Replica != "r2" {
			t.Errorf("got %+v, want r2 missing", a.answer)
		}
		if b.hasPromised() {
			t.Error("the promise was not taken back")
		}
	})
}

func TestARegistryThatIsNotHeardLeavesTheAnswerUnknown(t *testing.T) {
	withPeers(t, nil, func(b *bench, o *others) {
		leaves(b.fake, 8)
		o.read = func() ([]string, error) { return nil, errors.New("not heard") }
		a := b.ask(func(r *Request) { r.Timeout = Duration(2 * time.Second) })
		a.says(false, Unknown, 2*time.Second)
	})
}

func TestAWaitThatEndsWithoutDrainedTakesThePromisesOfAllBack(t *testing.T) {
	withPeers(t, []string{"r2", "r3"}, func(b *bench, o *others) {
		leaves(b.fake, 8)
		leaves(o.fakes["r2"], 8)
		leaves(o.fakes["r3"], 8)
		o.fakes["r3"].connect("envoy", podAddr)
		a := b.ask(func(r *Request) { r.Timeout = Duration(2 * time.Second) })
		time.Sleep(time.Second)
		if !o.fakes["r2"].hasPromised() {
			t.Error("r2 has not promised")
		}
		a.says(false, Unacknowledged, 2*time.Second)
		if got := a.answer.Missing; len(got) != 1 || got[0].Node != "envoy" || got[0].Replica != "r3" {
			t.Errorf("got missing %+v, want the proxy of r3, though r3 may keep the question for longer", got)
		}
		if o.fakes["r2"].hasPromised() {
			t.Error("the promise of r2 was not taken back")
		}
	})
}

func TestAQuestionBetweenGatesThatMeansNothingIsRefused(t *testing.T) {
	withGate(t, func(b *bench) {
		for name, q := range map[string]any{
			"no JSON object": 7, "no wait": question{Cluster: "prod", UID: "u1"}, "no cluster": question{Wait: "w", UID: "u1"},
			"no pod": question{Wait: "w", Cluster: "prod"}, "no version": question{Wait: "w", Cluster: "prod", UID: "u1", Bound: "x"},
			"no version of evidence": question{Wait: "w", Cluster: "prod", UID: "u1", Evidence: []evidence{{Version: "x"}}},
		} {
			body, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := b.gate.Peer(t.Context(), body); !errors.As(err, &RequestError{}) {
				t.Errorf("%s: got %s and %v, want it refused", name, answer, err)
			}
		}
	})
}
