package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a replica in memory: a few endpoints, and streams with the contents that they may hold.
type fake struct {
	mu       sync.Mutex
	changed  chan struct{}
	floor    endpoint.Version
	places   []Place
	owners   map[netip.AddrPort]string // uid of other live pods
	versions map[place]endpoint.Version
	streams  []*stream
	promised map[string]bool
	looks    int
}

// stream holds the addresses of what it acknowledged, and of what was sent or queued since.
type stream struct {
	Holder
	acked   []string
	unacked [][]string
}

func newFake() *fake {
	return &fake{
		changed: make(chan struct{}), versions: map[place]endpoint.Version{}, promised: map[string]bool{},
		owners: map[netip.AddrPort]string{}, floor: version(100),
	}
}

func version(resource uint64) endpoint.Version {
	return endpoint.Version{Generation: 1, Resource: resource}
}

// do changes the replica, and tells the gate.
func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fake) Release(pod Pod, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.promised, pod.UID)
}

func (f *fake) Step(pod Pod, _ string, see func(Moment) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if see(f) {
		f.promised[pod.UID] = true
	}
}

func (f *fake) Sight(pod Pod) Sighting {
	s := Sighting{Floor: f.floor}
	for _, p := range f.places {
		s.Places = append(s.Places, p)
		for _, port := range p.Ports {
			_, taken := f.owners[netip.AddrPortFrom(p.Addr, port.Number)]
			s.Shared = s.Shared || taken
		}
	}
	for at := range f.owners {
		s.Foreign = append(s.Foreign, at)
	}
	return s
}

func (f *fake) Version(key endpoint.Key, slice string) endpoint.Version {
	return f.versions[place{key, slice}]
}

func (f *fake) Holders(t Targets) (held []Holder) {
	for _, s := range f.streams {
		holds := s.Fresh
		for _, content := range append([][]string{s.acked}, s.unacked...) {
			holds = holds || slices.ContainsFunc(content, func(a string) bool { return t.Match(netip.MustParseAddrPort(a)) })
		}
		if holds {
			held = append(held, s.Holder)
		}
	}
	return held
}

// push sends every open stream a content.
func (f *fake) push(content ...string) {
	for _, s := range f.streams {
		if s.Ended.IsZero() {
			s.unacked = append(s.unacked, content)
			if s.Silent.IsZero() {
				s.Silent = time.Now()
			}
		}
	}
}

// ack acknowledges the oldest of what was sent to s.
func (s *stream) ack() {
	s.acked, s.unacked = s.unacked[0], s.unacked[1:]
	s.Fresh, s.Silent = false, time.Time{}
}

// nack rejects it: the older content stays.
func (s *stream) nack() { s.unacked = s.unacked[1:] }

const (
	podAddr   = "10.0.0.1:8080"
	otherAddr = "10.0.0.2:8080"
)

var (
	cart     = endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
	front    = endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "front"}
	httpPort = []endpoint.Port{{Name: "http", Number: 8080}}
)

// at is the pod in a slice of key.
func at(key endpoint.Key, resource uint64, conditions string, used bool) Place {
	c, err := endpoint.ParseConditions(conditions)
	if err != nil {
		panic(err)
	}
	return Place{
		Key: key, Slice: key.Service + "-x1", Version: version(resource), Addr: netip.MustParseAddr("10.0.0.1"),
		Ports: httpPort, Conditions: c, Used: used,
	}
}

// show makes places what the replica knows of the pod.
func (f *fake) show(places ...Place) {
	f.places = places
	for _, p := range places {
		f.versions[place{p.Key, p.Slice}] = p.Version
	}
}

func (f *fake) connect(node string, acked ...string) *stream {
	s := &stream{Holder: Holder{Stream: node + "/" + time.Now().String(), Node: node, Address: "192.0.2.1:5000", Since: time.Now()}, acked: acked}
	f.streams = append(f.streams, s)
	return s
}

var errNobody = errors.New("no watcher answers")

// bench is a gate over a fake, in a bubble of its own time.
type bench struct {
	*fake
	t      *testing.T
	gate   *Gate
	floors int // answered
	told   endpoint.Version
	reg    *prometheus.Registry
}

func withGate(t *testing.T, test func(b *bench), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{fake: newFake(), t: t, reg: prometheus.NewRegistry(), told: version(100)}
		cfg := Config{
			Name: "r1", Replica: b.fake, Clusters: func() []string { return []string{"prod"} },
			Floor: func(context.Context, string) (endpoint.Version, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.told.IsZero() {
					return b.told, errNobody
				}
				b.floors++
				return b.told, nil
			},
			Log: slog.New(slog.DiscardHandler), Registerer: b.reg,
		}
		for _, c := range change {
			c(&cfg)
		}
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.gate = g
		test(b)
	})
}

// asked is a wait that goes on.
type asked struct {
	b      *bench
	answer Answer
	err    error
	done   chan struct{}
	at     time.Time
	took   time.Duration
}

func (b *bench) ask(change ...func(*Request)) *asked {
	r := Request{Cluster: "prod", Namespace: "shop", Pod: "cart-1", UID: "u1", IP: "10.0.0.1"}
	for _, c := range change {
		c(&r)
	}
	a := &asked{b: b, done: make(chan struct{}), at: time.Now()}
	go func() {
		defer close(a.done)
		a.answer, a.err = b.gate.Drain(b.t.Context(), r)
		a.took = time.Since(a.at)
	}()
	synctest.Wait()
	return a
}

// waits fails the test if there is an answer already.
func (a *asked) waits(why string) {
	a.b.t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		a.b.t.Fatalf("%s: got answer %+v (%v), want none yet", why, a.answer, a.err)
	default:
	}
}

// says waits for the answer and checks it.
func (a *asked) says(drained bool, reason Reason, after time.Duration) {
	a.b.t.Helper()
	<-a.done
	if a.err != nil || a.answer.Drained != drained || a.answer.Reason != reason || a.took != after {
		a.b.t.Fatalf("got drained %t, reason %q after %s (%v), want %t, %q after %s",
			a.answer.Drained, a.answer.Reason, a.took, a.err, drained, reason, after)
	}
	if promised, want := a.b.promised["u1"], drained && len(a.b.places) > 0; promised != want {
		a.b.t.Fatalf("got promised %t, want %t", promised, want)
	}
}
