package bus

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// wantBytes compares what was written with the generated types, and the size that was reckoned.
func wantBytes(t *testing.T, value any, got []byte, err error, reference proto.Message) {
	t.Helper()
	want, wantErr := marshal(reference)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%+v: got error %v, the generated types give %v", value, err, wantErr)
	}
	if err != nil {
		return
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%+v:\n got %x\nwant %x", value, got, want)
	}
	if cap(got) != len(got) {
		t.Fatalf("%+v: the size was reckoned as %d, it is %d", value, cap(got), len(got))
	}
}

func randomTransitions(r endpointtest.Random) []endpoint.Transition {
	var out []endpoint.Transition
	for range r.IntN(4) {
		e := r.Endpoint(r.UintN(2) == 0)
		tr := endpoint.Transition{Addr: e.Addr, Before: e.Conditions, After: r.Conditions()}
		switch r.UintN(3) {
		case 0:
			tr.Before = endpoint.Absent
		case 1:
			tr.After = endpoint.Absent
		}
		out = append(out, tr)
	}
	return out
}

func TestTheBytesAreThoseOfTheGeneratedTypes(t *testing.T) {
	check := func(ev endpoint.Event) {
		body, err := encodeEvent(ev)
		wantBytes(t, ev, body, err, eventMessage(ev))
		if err != nil {
			return
		}
		if back, err := decodeEvent(body); err != nil || !reflect.DeepEqual(back, ev) {
			t.Fatalf("got %+v, %v, want %+v", back, err, ev)
		}
	}
	check(fullEvent())
	refused := 0
	for seed := range uint64(3000) {
		r := endpointtest.NewRandom(seed)
		ev := r.Event(r.Key())
		ev.Transitions = randomTransitions(r)
		check(ev)
		st := r.State(r.Key())
		body, err := encodeState(st)
		wantBytes(t, st, body, err, stateMessage(st))
		if err != nil {
			refused++
			continue
		}
		if back, err := decodeState(body); err != nil || !reflect.DeepEqual(back, st) {
			t.Fatalf("got %+v, %v, want %+v", back, err, st)
		}
	}
	if refused == 0 || refused == 3000 {
		t.Errorf("%d of 3000 states held what is not UTF-8, want some", refused)
	}
}

func TestOddValuesGiveTheBytesOfTheGeneratedTypes(t *testing.T) {
	for _, ev := range [...]endpoint.Event{
		{},
		{Slice: endpoint.Slice{Version: endpoint.Version{Resource: 1}, Observed: time.Unix(-5, 7), Triggered: time.Unix(0, 0)}},
		{Slice: endpoint.Slice{Endpoints: []endpoint.Endpoint{{}, {Addr: netip.MustParseAddr("::ffff:1.2.3.4"), ZoneHints: ",", NodeHints: "a,,b,"}}}},
		{Transitions: []endpoint.Transition{{}, {Before: endpoint.Absent, After: endpoint.Absent | endpoint.Ready}}, Peers: []endpoint.Ref{{}, {Observed: at}}},
		{Slice: endpoint.Slice{Ports: []endpoint.Port{{}, {Name: string(bytes.Repeat([]byte("x"), 1<<15)), Number: 65535}}}},
	} {
		body, err := encodeEvent(ev)
		wantBytes(t, ev, body, err, eventMessage(ev))
	}
	for _, st := range [...]endpoint.State{{}, {Slices: []endpoint.Slice{{}}, Gone: []endpoint.Ref{{}}}, realState(5000)} {
		body, err := encodeState(st)
		wantBytes(t, len(st.Slices), body, err, stateMessage(st))
	}
}

// FuzzEncode is the comparison with the generated types for what a fuzzer thinks of.
func FuzzEncode(f *testing.F) {
	f.Add(uint64(1), "text", uint64(1), int64(1), []byte{10, 0, 0, 1})
	f.Add(uint64(2), "a,b", ^uint64(0), int64(-1), []byte{})
	f.Add(uint64(3), "\xff", uint64(128), int64(1<<40), bytes.Repeat([]byte{0}, 16))
	f.Fuzz(func(t *testing.T, seed uint64, text string, number uint64, seconds int64, address []byte) {
		r := endpointtest.NewRandom(seed)
		ev, st := r.Event(r.Key()), r.State(r.Key())
		ev.Transitions = randomTransitions(r)
		addr, _ := netip.AddrFromSlice(address)
		sl := &ev.Slice
		sl.UID, sl.TerminatingPolicy, sl.Version.Resource = text, text, number
		sl.Observed, sl.Triggered = time.Unix(seconds, int64(number%1e9)), time.Unix(seconds/2, 0) //nolint:gosec // below 1e9
		sl.Endpoints = append(sl.Endpoints, endpoint.Endpoint{Addr: addr, Zone: text, ZoneHints: text, NodeHints: "x," + text, Hostname: text})
		sl.Ports = append(sl.Ports, endpoint.Port{Name: text, Number: uint16(number), AppProtocol: text})                                //nolint:gosec // cut off on purpose
		ev.Peers = append(ev.Peers, endpoint.Ref{Name: text, Version: endpoint.Version{Generation: number}, Translator: uint32(number)}) //nolint:gosec // the same
		body, err := encodeEvent(ev)
		wantBytes(t, ev, body, err, eventMessage(ev))
		st.Slices = append(st.Slices, *sl)
		body, err = encodeState(st)
		wantBytes(t, st, body, err, stateMessage(st))
	})
}

// leastAllocs is AllocsPerRun without what the race detector and the collector add at times, as when they empty a pool.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(20, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(20, f))
	}
	return least
}

func TestEncodingAllocatesTheSameForAnyNumberOfEndpoints(t *testing.T) {
	const pooled = 2 // things that come from pools, which the race detector empties at random
	c := mustCodec(t)
	perEvent := func(n int) float64 {
		ev := endpoint.Event{Slice: realSlice("shop", "shop-abcde", 0, n)}
		return leastAllocs(func() {
			if _, err := c.event(ev); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := perEvent(10), perEvent(1000); many > few+pooled || few > 60 {
		t.Errorf("an event of 10 endpoints takes %v allocations, one of 1000 takes %v, want the same, 60 at most", few, many)
	}
	body := func(n int) float64 {
		st := realState(n)
		return leastAllocs(func() {
			if _, err := encodeState(st); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, n := range [...]int{10, 100, 1000, 5000} {
		if got := body(n); got != 1 {
			t.Errorf("the body of a state of %d endpoints takes %v allocations, want 1", n, got)
		}
	}
	perState := func(n, slices int) float64 {
		st := endpoint.State{Key: realState(1).Key}
		for i := range slices {
			st.Slices = append(st.Slices, realSlice("shop", string(rune('a'+i)), i*n, n))
		}
		return leastAllocs(func() {
			if _, err := c.state(st); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := perState(1, 20), perState(10, 20); many > few+pooled {
		t.Errorf("a state of 20 slices takes %v allocations with 1 endpoint each, %v with 10, want the same", few, many)
	}
}
