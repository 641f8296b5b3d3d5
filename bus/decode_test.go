package bus

import (
	"bytes"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// sameDecode compares both ways to read a body. Which error there is may differ, and a limit of the hand-made way.
func sameDecode(t *testing.T, body []byte) {
	t.Helper()
	ev, err := decodeEvent(body)
	wantEvent, wantErr := referenceEvent(body)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(ev, wantEvent) {
		t.Fatalf("event of %x:\n got %+v, %v\nwant %+v, %v", body, ev, err, wantEvent, wantErr)
	}
	st, err := decodeState(body)
	wantState, wantErr := referenceState(body)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(st, wantState) {
		t.Fatalf("state of %x:\n got %+v, %v\nwant %+v, %v", body, st, err, wantState, wantErr)
	}
}

// randomBodies calls do with bodies of events and states.
func randomBodies(seeds uint64, do func(r endpointtest.Random, body []byte)) {
	for seed := range seeds {
		r := endpointtest.NewRandom(seed)
		ev := r.Event(r.Key())
		ev.Transitions = randomTransitions(r)
		if body, err := encodeEvent(ev); err == nil {
			do(r, body)
		}
		if body, err := encodeState(r.State(r.Key())); err == nil {
			do(r, body)
		}
	}
}

func TestABodyIsReadAsTheGeneratedTypesReadIt(t *testing.T) {
	randomBodies(2000, func(r endpointtest.Random, body []byte) {
		sameDecode(t, body)
		for range 20 {
			broken := bytes.Clone(body)
			for range 1 + r.IntN(3) {
				switch i := r.IntN(len(broken)); r.UintN(4) {
				case 0:
					broken[i] ^= 1 << r.UintN(8)
				case 1:
					broken = broken[:max(i, 1)]
				case 2:
					broken = append(broken[:i], append([]byte{byte(r.Uint32())}, broken[i:]...)...)
				case 3:
					broken = append(broken, broken[i:min(len(broken), i+20)]...)
				}
			}
			sameDecode(t, broken)
		}
	})
}

// Legal protobuf that no encoder of ours writes.
func TestUnusualProtobufIsReadAsTheGeneratedTypesReadIt(t *testing.T) {
	ev := fullEvent()
	var sl, ep writer
	ep.endpoint(&ev.Slice.Endpoints[0])
	sl.slice(&ev.Slice)
	part := func(field int, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(field), protowire.BytesType), b)
	}
	key := []byte("\x0a\x02ca\x12\x04prod\x1a\x04shop")
	group := protowire.AppendTag(protowire.AppendTag(protowire.AppendTag(nil, 99, protowire.StartGroupType), 98, protowire.StartGroupType), 98, protowire.EndGroupType)
	group = protowire.AppendTag(group, 99, protowire.EndGroupType)
	bits := []byte{0x90, 0x00, 0x05, 0x10, 0x00, 0x18, 0x80, 0x80, 0x04} // an overlong tag, values above 1, the last one counts
	for name, body := range map[string][]byte{
		"slice before key":       slicesOf(part(4, sl.b), key),
		"slice in two parts":     slicesOf(key, part(4, sl.b[:2+len(ev.Slice.Name)]), part(4, sl.b[2+len(ev.Slice.Name):])),
		"an endpoint again":      slicesOf(key, part(4, slicesOf(sl.b, part(5, ep.b)))),
		"endpoint in odd order":  slicesOf(key, part(4, slicesOf([]byte("\x0a\x01x\x1a\x04\x08\x01\x10\x01"), part(5, slicesOf([]byte("\x52\x01a\x52\x02bb\x2a\x01z\x2a\x00"), bits, part(1, []byte{1, 2, 3, 4})))))),
		"unknown fields":         slicesOf(key, group, part(4, slicesOf(sl.b, group)), part(77, []byte("x"))),
		"unknown in an endpoint": slicesOf(key, part(4, slicesOf([]byte("\x0a\x01x\x1a\x04\x08\x01\x10\x01"), part(5, slicesOf(part(1, []byte{1, 2, 3, 4}), group, part(13, []byte("x")), []byte{0x2d, 1, 2, 3, 4}))))),
		"a group left open":      slicesOf(key, part(4, slicesOf([]byte("\x0a\x01x\x1a\x04\x08\x01\x10\x01"), part(5, group[:2])))),
		"a field of number 0":    slicesOf(key, part(4, slicesOf([]byte("\x0a\x01x\x1a\x04\x08\x01\x10\x01"), part(5, slicesOf(part(1, []byte{1, 2, 3, 4}), []byte{0x00, 0x00}))))),
		"a number too high":      slicesOf(key, part(4, slicesOf([]byte("\x0a\x01x\x1a\x04\x08\x01\x10\x01"), part(5, slicesOf(part(1, []byte{1, 2, 3, 4}), []byte{0xf8, 0xff, 0xff, 0xff, 0x3f, 0x01}))))),
	} {
		t.Run(name, func(t *testing.T) { sameDecode(t, body) })
	}
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func FuzzDecode(f *testing.F) {
	randomBodies(20, func(_ endpointtest.Random, body []byte) { f.Add(body) })
	f.Fuzz(sameDecode)
}

func TestABodyThatGrowsIntoManyPartsIsRefusedEarly(t *testing.T) {
	if _, err := decodeState(bytes.Repeat([]byte{0x22, 0x00}, 16<<20)); err == nil || refusalOf(err) != badContent {
		t.Errorf("got %v, want too many slices", err)
	}
	st := endpoint.State{Key: fullEvent().Slice.Key}
	for i := range maxSlices + 1 {
		st.Slices = append(st.Slices, endpoint.Slice{Key: st.Key, Name: string([]byte{'a' + byte(i/676/26), 'a' + byte(i/676%26), 'a' + byte(i/26%26), 'a' + byte(i%26)}), Version: version(1)})
	}
	if _, err := mustCodec(t).state(st); err == nil {
		t.Error("a state of too many slices was written")
	}
	st.Slices = st.Slices[:maxSlices]
	if m, err := mustCodec(t).state(st); err != nil {
		t.Errorf("a state of %d slices: %v", maxSlices, err)
	} else if n, err := mustCodec(t).notice(m, false); err != nil || len(n.State.Slices) != maxSlices {
		t.Errorf("got %v, want %d slices back", err, maxSlices)
	}
}

func TestDecodingAllocatesTheSameForAnyNumberOfEndpoints(t *testing.T) {
	c := mustCodec(t)
	allocs := func(n int) float64 {
		ev := endpoint.Event{Slice: realSlice("shop", "shop-abcde", 0, n)}
		m, err := c.event(ev)
		if err != nil {
			t.Fatal(err)
		}
		return leastAllocs(func() {
			if _, err := c.notice(m, false); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(100), allocs(1000)
	if many > few+40 { // buffers that grow, in steps
		t.Errorf("an event of 100 endpoints takes %v allocations, one of 1000 takes %v, want about the same", few, many)
	}
}

// BenchmarkDecodeBody compares the two ways, without decompression and validation of the rest of a message.
func BenchmarkDecodeBody(b *testing.B) {
	body, err := encodeState(realState(1000))
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func([]byte) (endpoint.State, error){"here": decodeState, "generated": referenceState} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
