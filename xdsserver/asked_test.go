package xdsserver

import (
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read gives what is read of the bytes of a request.
func (m *sotwMessage) readBytes(b []byte) error { return m.read(mem.BufferSlice{mem.SliceBuffer(b)}) }

func TestNamesThatAreAsBeforeAreNotDecoded(t *testing.T) {
	m := &discoveryv3.DiscoveryRequest{
		VersionInfo: "v", Node: &corev3.Node{Id: "envoy"}, ResourceNames: []string{"a", "b"}, TypeUrl: typeAssignment, ResponseNonce: "7",
		ErrorDetail: &status.Status{Message: "no"},
	}
	last := map[string]digest{}
	ask := func(names ...string) *discoveryv3.DiscoveryRequest {
		t.Helper()
		m.ResourceNames = names
		in := sotwMessage{last: last}
		if err := in.readBytes(encoded(t, m)); err != nil {
			t.Fatal(err)
		}
		if in.names != digestOfNames(names) {
			t.Errorf("the digest of %q is not that of its names", names)
		}
		in.note(assignments)
		return &in.request
	}
	if got := ask("a", "b"); !proto.Equal(got, m) {
		t.Errorf("first: got %v, want %v", got, m)
	}
	got := ask("a", "b")
	if len(got.ResourceNames) > 0 {
		t.Errorf("again: %q were decoded", got.ResourceNames)
	}
	if got.ResourceNames = m.ResourceNames; !proto.Equal(got, m) {
		t.Errorf("again: got %v, want %v", got, m)
	}
	for _, names := range [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a", "b", ""}, {}} {
		if got := ask(names...); !slices.Equal(got.ResourceNames, names) {
			t.Errorf("got %q, want %q", got.ResourceNames, names)
		}
	}
	m.TypeUrl = typeCluster // The names of one type say nothing of those of another.
	if got := ask("a", "b"); len(got.ResourceNames) != 2 {
		t.Errorf("another type: got %q", got.ResourceNames)
	}
}

func TestNamesInAnyPlaceAreRead(t *testing.T) {
	name := func(s string) []byte { return appendText(nil, namesField, s) }
	url := appendText(nil, 4, typeAssignment)
	for what, b := range map[string][]byte{
		"names around the type": slices.Concat(name("a"), url, name("b")),
		"names first":           slices.Concat(name("a"), name("b"), url),
		"an unknown field":      slices.Concat(url, name("a"), name("b"), appendText(nil, 99, "x")),
	} {
		in := sotwMessage{last: map[string]digest{}}
		if err := in.readBytes(b); err != nil || !slices.Equal(in.request.ResourceNames, []string{"a", "b"}) || in.request.TypeUrl != typeAssignment {
			t.Errorf("%s: got %v, %v", what, &in.request, err)
		}
		if in.names != digestOfNames([]string{"a", "b"}) {
			t.Errorf("%s: another digest", what)
		}
	}
}

// FuzzRequestDecode compares what is read of any bytes with what the library reads.
func FuzzRequestDecode(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(encoded(f, &discoveryv3.DiscoveryRequest{TypeUrl: typeAssignment, ResourceNames: []string{"a", "b"}, Node: &corev3.Node{Id: "x"}}), []byte("ab"))
	f.Add(slices.Concat(appendText(nil, 3, "a"), appendText(nil, 4, typeCluster), appendText(nil, 3, "\xff")), []byte{0})
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 7), []byte{})
	f.Fuzz(func(t *testing.T, b, cut []byte) {
		var want discoveryv3.DiscoveryRequest
		wantErr := proto.Unmarshal(b, &want)
		in := sotwMessage{last: map[string]digest{}}
		var data mem.BufferSlice
		rest := b
		for _, n := range cut { // In pieces, as it comes.
			n := min(int(n), len(rest))
			data, rest = append(data, mem.SliceBuffer(rest[:n])), rest[n:]
		}
		err := in.read(append(data, mem.SliceBuffer(rest)))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: got %v, want %v", b, err, wantErr)
		}
		if err != nil {
			return
		}
		if !proto.Equal(&in.request, &want) {
			t.Fatalf("%x: got %v, want %v", b, &in.request, &want)
		}
		if in.names != digestOfNames(want.ResourceNames) && len(want.ResourceNames) < 100 {
			from, to, _ := namesRegion(b)
			if proper := appendAll(want.ResourceNames); slices.Equal(proper, b[from:to]) {
				t.Fatalf("%x: another digest", b)
			}
		}
	})
}

func appendAll(names []string) (b []byte) {
	for _, name := range names {
		b = protowire.AppendString(protowire.AppendTag(b, namesField, protowire.BytesType), name)
	}
	return b
}

// BenchmarkSotWRequest reads the acknowledgement of a client that wants many names.
func BenchmarkSotWRequest(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		m := &discoveryv3.DiscoveryRequest{TypeUrl: typeAssignment, ResponseNonce: "7", VersionInfo: "v"}
		for i := range n {
			m.ResourceNames = append(m.ResourceNames, fmt.Sprintf("service-%05d.shop:http", i))
		}
		wire := encoded(b, m)
		for name, last := range map[string]map[string]digest{"as before": {typeAssignment: digestOfNames(m.ResourceNames)}, "new": {}} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					in := sotwMessage{last: last}
					if err := in.readBytes(wire); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
