package projector

import (
	"maps"
	"slices"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// bench is a machine between two streams that do nothing but what a test asks for.
type bench struct {
	t      *testing.T
	m      *machine
	events uint64                       // last sequence of EVENTS
	view   map[string]ledger.Notice     // last message per subject, of EVENTS
	seq    uint64                       // last sequence of STATE
	states map[endpoint.Key]storedState // last message per Key, of STATE
	writes []write                      // accepted by settle
}

type storedState struct {
	seq   uint64
	state endpoint.State
}

// newBench gives a machine of cluster prod that has seen the end of both empty streams, and no checkpoint.
func newBench(t *testing.T) *bench {
	b := &bench{t: t, m: newMachine("prod"), view: map[string]ledger.Notice{}, states: map[endpoint.Key]storedState{}}
	b.open()
	b.openStates()
	return b
}

// matched gives a machine that has matched a checkpoint of the empty cluster.
func matched(t *testing.T) *bench {
	b := newBench(t)
	b.certify("0/0")
	return b
}

// open begins a new session with an empty EVENTS stream.
func (b *bench) open() {
	clear(b.view)
	b.m.event(ledger.Notice{Kind: ledger.Opened})
	b.m.event(ledger.Notice{Kind: ledger.Complete, Seq: b.events})
}

// openStates begins a new session with the STATE stream as it is.
func (b *bench) openStates() {
	b.m.state(ledger.Notice{Kind: ledger.Opened})
	keys := slices.SortedFunc(maps.Keys(b.states), func(x, y endpoint.Key) int { return int(b.states[x].seq) - int(b.states[y].seq) })
	for _, key := range keys {
		b.stated(key)
	}
	b.m.state(ledger.Notice{Kind: ledger.Complete, Seq: b.seq})
}

// stated lets the machine read the last message of a Key.
func (b *bench) stated(key endpoint.Key) {
	st := b.states[key]
	b.m.state(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: st.seq, Key: key, State: &st.state})
}

// noticeOf is the notice of an event, as the bus gives it.
func noticeOf(e endpoint.Event, seq uint64) ledger.Notice {
	s := e.Slice
	n := ledger.Notice{
		Kind: ledger.Changed, Cluster: s.Key.Cluster, Seq: seq, Key: s.Key, Slice: s.Name,
		Version: s.Version, Gone: e.Gone, Translator: s.Translator, Event: &e,
	}
	if !e.Gone {
		n.Hash = s.Hash()
	}
	return n
}

// tell lets the machine read events in the notation of traces.
func (b *bench) tell(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		step, err := endpointtest.ParseStep(line)
		if err != nil || step.Event == nil {
			b.t.Fatalf("%q is no event: %v", line, err)
		}
		b.event(*step.Event)
	}
}

func (b *bench) event(e endpoint.Event) {
	b.events++
	n := noticeOf(e, b.events)
	b.view[e.Slice.Key.String()+"/"+e.Slice.Name] = n
	b.m.event(n)
}

// sumOf is what a checkpoint says of messages.
func sumOf(view map[string]ledger.Notice) (count uint64, sum ledger.Sum) {
	for _, n := range view {
		if !n.Gone {
			count, sum = count+1, sum.Add(ledger.Digest(n.Key, n.Slice, n.Version, n.Hash))
		}
	}
	return count, sum
}

// certify lets the machine read a checkpoint that is true of the events that it was told.
func (b *bench) certify(v string) {
	b.t.Helper()
	count, sum := sumOf(b.view)
	cp := ledger.Checkpoint{Complete: versionOf(b.t, v), AsOf: b.events, Count: count, Sum: sum}
	b.events++
	if b.m.event(ledger.Notice{Kind: ledger.Certified, Cluster: "prod", Seq: b.events, Checkpoint: cp}) {
		b.t.Fatal("a true checkpoint made the machine ask for a new session")
	}
}

func versionOf(t *testing.T, text string) endpoint.Version {
	t.Helper()
	step, err := endpointtest.ParseStep("checkpoint prod rv=" + text)
	if err != nil {
		t.Fatal(err)
	}
	return step.Complete
}

// want gives the writes that the machine wants now, which are then on their way.
func (b *bench) want() []write {
	var all []write
	for {
		key, some := b.m.pop()
		if !some {
			return all
		}
		if w, ok := look(b.m, key); ok {
			all = append(all, w)
		}
	}
}

// look lets the machine take the write that it wants for key.
func look(m *machine, key endpoint.Key) (write, bool) {
	w, ok := m.wants(key)
	if ok {
		m.take(w)
	}
	return w, ok
}

// accept stores a write and tells the machine so; the session reads it too.
func (b *bench) accept(w write) {
	b.t.Helper()
	key := w.state.Key
	if b.states[key].seq != w.expect {
		b.t.Fatalf("write of %s expects %d, the stream has %d", key, w.expect, b.states[key].seq)
	}
	b.seq++
	b.states[key] = storedState{b.seq, w.state}
	b.writes = append(b.writes, w)
	b.m.done(w, b.seq)
	b.stated(key)
}

// settle accepts writes until there are none.
func (b *bench) settle() {
	b.t.Helper()
	for range 100 {
		ws := b.want()
		if len(ws) == 0 {
			return
		}
		for _, w := range ws {
			b.accept(w)
		}
	}
	b.t.Fatal("the machine writes for ever")
}

// holds compares the slices of the stored State of prod/shop/cart with lines in the notation of traces.
func (b *bench) holds(want ...string) {
	b.t.Helper()
	key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
	var got []string
	for _, s := range b.states[key].state.Slices {
		got = append(got, endpointtest.FormatSlice(s))
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("stored state: got %q, want %q", got, want)
	}
}
