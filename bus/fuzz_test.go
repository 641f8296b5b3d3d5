package bus

import (
	"reflect"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// What a decoder accepts is valid, and written again it reads back as the same.

func FuzzEventDecode(f *testing.F) {
	body, err := encodeEvent(fullEvent())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	gone, _ := encodeEvent(endpoint.Event{Slice: endpoint.Slice{Key: fullEvent().Slice.Key, Name: "x", Version: version(1)}, Gone: true})
	f.Add(gone)
	for seed := range uint64(20) {
		r := endpointtest.NewRandom(seed)
		ev := r.Event(r.Key())
		ev.Transitions = randomTransitions(r)
		if body, err := encodeEvent(ev); err == nil {
			f.Add(body)
		}
	}
	f.Add(slicesOf(body, body))         // every field twice
	f.Add(body[:len(body)-1])           // cut off
	f.Add(slicesOf(body, []byte{0x7b})) // an open group
	c := mustCodec(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := decodeEvent(body)
		if err != nil {
			return
		}
		m, err := c.event(ev)
		if err != nil {
			t.Fatalf("decoded an invalid event: %v", err)
		}
		n, err := c.notice(m, false)
		if err != nil || !reflect.DeepEqual(*n.Event, ev) {
			t.Fatalf("got %+v, %v, want %+v", n, err, ev)
		}
	})
}

func FuzzStateDecode(f *testing.F) {
	c := mustCodec(f)
	m, err := c.state(endpoint.State{Key: fullEvent().Slice.Key, Slices: []endpoint.Slice{fullEvent().Slice}, Floor: version(2)})
	if err != nil {
		f.Fatal(err)
	}
	bodies := [][]byte{m.body, {}, m.body[:len(m.body)-1], slicesOf(m.body, []byte("\x22\x02\x0a\x00"))}
	for seed := range uint64(20) {
		if body, err := encodeState(endpointtest.NewRandom(seed).State(fullEvent().Slice.Key)); err == nil {
			bodies = append(bodies, body)
		}
	}
	for _, body := range bodies {
		f.Add(body, false)
		f.Add(c.enc.EncodeAll(body, nil), true)
	}
	f.Add(c.enc.EncodeAll(make([]byte, 1<<20), nil), true)
	f.Add(m.body, true)
	f.Fuzz(func(t *testing.T, body []byte, compressed bool) {
		h := header{}
		if compressed {
			h.set(contentEncoding, zstdEncoding)
		}
		n, err := c.notice(message{m.subject, h, body}, false)
		if err != nil {
			return
		}
		again, err := c.state(*n.State)
		if err != nil {
			t.Fatalf("decoded an invalid state: %v", err)
		}
		second, err := c.notice(again, false)
		if err != nil || !reflect.DeepEqual(n, second) {
			t.Fatalf("got %+v, %v, want %+v", second, err, n)
		}
	})
}

func FuzzCheckpointDecode(f *testing.F) {
	body, err := encodeCheckpoint(ledger.Checkpoint{Complete: version(9), AsOf: 7, Count: 2, Sum: ledger.Sum{Hi: 1, Lo: 2}, Written: at})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte{})
	f.Add(slicesOf(body, []byte("\x22\x0fshort")))                                                // a sum that is cut off
	f.Add(slicesOf(body, []byte("\x0a\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")))         // the highest sequence
	f.Add(slicesOf(body, []byte("\x2a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")))         // a second before 1970
	f.Add(slicesOf(body, []byte("\x2a\x07\x08\x80\x92\xb8\xc3\x98\xfe\x01"), []byte("\x7b\x7c"))) // a late time, and a group
	c := mustCodec(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		cp, err := decodeCheckpoint(body)
		if err != nil {
			return
		}
		m, err := c.checkpoint(stateRoot, "ca", cp)
		if err != nil {
			t.Fatalf("decoded an invalid checkpoint: %v", err)
		}
		for _, headersOnly := range [...]bool{false, true} {
			if n, err := c.notice(m, headersOnly); err != nil || n.Checkpoint != cp {
				t.Fatalf("headers only %v: got %+v, %v, want %+v", headersOnly, n, err, cp)
			}
		}
	})
}

func FuzzSubject(f *testing.F) {
	for _, s := range [...]string{
		"slicecast.v1.events.ca.prod.shop.a_b", "slicecast.v1.state.ca.prod.shop.0", "slicecast.v1.events.ca._checkpoint",
		"slicecast.v1.events.ca._cluster", "slicecast.v1.state.ca._stale", "slicecast.v1.history.ca.prod.shop.a",
		"", "slicecast.v1.events.", "slicecast.v1.events.ca.prod.shop.a_b_c", "slicecast.v1.events.ca.prod.shop._", "slicecast.v1.events.c_a.prod.shop.a",
		"slicecast.v1.events.ca.prod.shop.*", "slicecast.v1.events.>", "slicecast.v1.state.ca.prod.shop.1", "slicecast.v2.events.ca.prod.shop.a",
		"slicecast.v1.events.CA.prod.shop.a", "slicecast.v1.query.floor.ca", "slicecast.v1.events.ca.prod.shop.-a", "slicecast.v1.events.ca.prod..a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSubject(text)
		if err == nil && s.String() != text {
			t.Fatalf("%q reads as %+v, which is %q", text, s, s)
		}
	})
}
