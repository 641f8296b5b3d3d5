package endpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

var (
	cart = endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
	v1   = endpoint.Version{Generation: 1, Resource: 1}
	same = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}
)

func ep(addr, uid string) endpoint.Endpoint {
	return endpoint.Endpoint{Addr: netip.MustParseAddr(addr), TargetUID: uid}
}

func TestASliceIsValidOrSaysWhatIsWrong(t *testing.T) {
	good := endpoint.Slice{Key: cart, Name: "cart-a", Version: v1}
	many := make([]endpoint.Endpoint, endpoint.MaxEndpoints+1)
	for i := range many {
		many[i] = endpoint.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
	}
	for _, tt := range []struct {
		name   string
		change func(*endpoint.Slice)
		want   string
	}{
		{"plain", func(*endpoint.Slice) {}, ""},
		{"key", func(s *endpoint.Slice) { s.Key.Cluster = "" }, "cluster name"},
		{"name", func(s *endpoint.Slice) { s.Name = "" }, "subdomain"},
		{"generation", func(s *endpoint.Slice) { s.Version.Generation = 0 }, "no version"},
		{"resource", func(s *endpoint.Slice) { s.Version.Resource = 0 }, "no version"},
		{"port", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{}} }, "number 0"},
		{"ports out of order", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{Name: "b", Number: 1}, {Name: "a", Number: 1}} }, "out of order"},
		{"port twice", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{Number: 1}, {Number: 2}} }, "twice"},
		{"largest", func(s *endpoint.Slice) { s.Endpoints = many[1:] }, ""},
		{"too large", func(s *endpoint.Slice) { s.Endpoints = many }, "more than 1000"},
		{"endpoint", func(s *endpoint.Slice) { s.Endpoints = make([]endpoint.Endpoint, 1) }, "address"},
		{"endpoints out of order", func(s *endpoint.Slice) { s.Endpoints = []endpoint.Endpoint{ep("10.0.0.2", ""), ep("10.0.0.1", "")} }, "out of order"},
		{"endpoint twice", func(s *endpoint.Slice) { s.Endpoints = []endpoint.Endpoint{ep("10.0.0.1", "a"), ep("10.0.0.1", "a")} }, "twice"},
		{"one address of two pods", func(s *endpoint.Slice) { s.Endpoints = []endpoint.Endpoint{ep("10.0.0.1", "a"), ep("10.0.0.1", "b")} }, ""},
		{"families", func(s *endpoint.Slice) { s.Endpoints = []endpoint.Endpoint{ep("10.0.0.1", ""), ep("fd00::1", "")} }, "both families"},
	} {
		s := good
		tt.change(&s)
		fails(t, tt.name, s.Valid(), tt.want)
	}
}

func TestCanonicalSortsACopy(t *testing.T) {
	ports := []endpoint.Port{{Name: "b", Number: 1}, {Name: "a", Number: 2}}
	eps := []endpoint.Endpoint{ep("10.0.0.2", ""), ep("10.0.0.1", "b"), ep("10.0.0.1", "a")}
	s := endpoint.Slice{Key: cart, Name: "cart-a", Version: v1, Ports: slices.Clone(ports), Endpoints: slices.Clone(eps)}
	c := s.Canonical()
	fails(t, "canonical", c.Valid(), "")
	if !slices.Equal(s.Ports, ports) || !slices.Equal(s.Endpoints, eps) {
		t.Error("the input was changed")
	}
	if c.Hash() != c.Canonical().Hash() {
		t.Error("a second Canonical changes the content")
	}
}

func TestShufflesGiveEqualBytes(t *testing.T) {
	for seed := range uint64(300) {
		r := endpointtest.NewRandom(seed)
		s := r.Slice(r.Key())
		mixed := s
		mixed.Ports, mixed.Endpoints = slices.Clone(s.Ports), slices.Clone(s.Endpoints)
		r.Shuffle(len(mixed.Ports), func(i, j int) { mixed.Ports[i], mixed.Ports[j] = mixed.Ports[j], mixed.Ports[i] })
		r.Shuffle(len(mixed.Endpoints), func(i, j int) {
			mixed.Endpoints[i], mixed.Endpoints[j] = mixed.Endpoints[j], mixed.Endpoints[i]
		})
		if !bytes.Equal(mixed.Canonical().Content(), s.Content()) {
			t.Fatalf("seed %d: other bytes", seed)
		}
	}
}

func TestContentIsWhatASliceSaysAndNothingElse(t *testing.T) {
	base := endpoint.Slice{
		Key: cart, Name: "cart-a", Version: v1, UID: "u", Ports: []endpoint.Port{{Name: "http", Number: 80}},
		Endpoints: []endpoint.Endpoint{ep("10.0.0.1", "a")},
	}
	at := func(change func(*endpoint.Endpoint)) func(*endpoint.Slice) {
		return func(s *endpoint.Slice) {
			s.Endpoints = slices.Clone(s.Endpoints)
			change(&s.Endpoints[0])
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*endpoint.Slice)
		same   bool
	}{
		{"name", func(s *endpoint.Slice) { s.Name = "b" }, true},
		{"key", func(s *endpoint.Slice) { s.Key.Service = "b" }, true},
		{"version", func(s *endpoint.Slice) { s.Version.Resource++ }, true},
		{"translator", func(s *endpoint.Slice) { s.Translator++ }, true},
		{"times", func(s *endpoint.Slice) { s.Observed, s.Triggered = time.Unix(1, 0), time.Unix(2, 0) }, true},
		{"uid", func(s *endpoint.Slice) { s.UID = "w" }, false},
		{"terminating", func(s *endpoint.Slice) { s.TerminatingPolicy = "drain" }, false},
		{"failover", func(s *endpoint.Slice) { s.FailoverPolicy = "none" }, false},
		{"port number", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{Name: "http", Number: 81}} }, false},
		{"port name", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{Name: "web", Number: 80}} }, false},
		{"app", func(s *endpoint.Slice) { s.Ports = []endpoint.Port{{Name: "http", Number: 80, AppProtocol: "grpc"}} }, false},
		{"no ports", func(s *endpoint.Slice) { s.Ports = nil }, false},
		{"no endpoints", func(s *endpoint.Slice) { s.Endpoints = nil }, false},
		{"address", at(func(e *endpoint.Endpoint) { e.Addr = netip.MustParseAddr("10.0.0.2") }), false},
		{"conditions", at(func(e *endpoint.Endpoint) { e.Conditions = endpoint.Serving }), false},
		{"zone", at(func(e *endpoint.Endpoint) { e.Zone = "z" }), false},
		{"node", at(func(e *endpoint.Endpoint) { e.Node = "z" }), false},
		{"zone hints", at(func(e *endpoint.Endpoint) { e.ZoneHints = "z" }), false},
		{"node hints", at(func(e *endpoint.Endpoint) { e.NodeHints = "z" }), false},
		{"target kind", at(func(e *endpoint.Endpoint) { e.TargetKind = "z" }), false},
		{"target name", at(func(e *endpoint.Endpoint) { e.TargetName = "z" }), false},
		{"target uid", at(func(e *endpoint.Endpoint) { e.TargetUID = "z" }), false},
		{"hostname", at(func(e *endpoint.Endpoint) { e.Hostname = "z" }), false},
	} {
		s := base
		tt.change(&s)
		if got := bytes.Equal(s.Content(), base.Content()); got != tt.same || (s.Hash() == base.Hash()) != tt.same || s.SameContent(base) != tt.same {
			t.Errorf("%s: same bytes %v, same hash %v, SameContent %v, want %v", tt.name, got, s.Hash() == base.Hash(), s.SameContent(base), tt.same)
		}
	}
}

func TestEqualBytesAreEqualContent(t *testing.T) {
	seen := map[endpoint.Hash]endpoint.Slice{}
	for seed := range uint64(3000) {
		r := endpointtest.NewRandom(seed)
		s := r.Slice(cart)
		if twin, some := seen[s.Hash()]; some && !twin.SameContent(s) {
			t.Fatalf("seed %d: one hash of two contents:\n%v\n%v", seed, twin, s)
		}
		seen[s.Hash()] = s
	}
}

// The form is on the bus: another one is another ContentVersion.
func TestTheCanonicalFormStaysAsItIs(t *testing.T) {
	s := endpoint.Slice{
		Key: cart, Name: "cart-a", Version: v1, UID: "u", TerminatingPolicy: "drain", FailoverPolicy: "any",
		Ports: []endpoint.Port{{Name: "http", Number: 8080, AppProtocol: "grpc"}},
		Endpoints: []endpoint.Endpoint{{
			Addr: netip.MustParseAddr("fd00::1"), Conditions: endpoint.Ready | endpoint.Serving, Zone: "z", Node: "n", ZoneHints: "a,b",
			NodeHints: "c", TargetKind: "Pod", TargetName: "p", TargetUID: "q", Hostname: "h",
		}},
	}
	const want = "01017505647261696e03616e79011f90046874747004677270630103" +
		"10fd000000000000000000000000000001017a016e03612c62016303506f64017001710168"
	if got := hex.EncodeToString(s.Content()); got != want || endpoint.ContentVersion != 1 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheHashIsThatOfTheContentWhateverItsLength(t *testing.T) {
	for count := range 200 {
		s := endpoint.Slice{Key: cart, Name: "cart-a", Version: v1, UID: strings.Repeat("u", 37*count)}
		for i := range count {
			s.Endpoints = append(s.Endpoints, ep("10.0.0.1", strings.Repeat("x", i)))
		}
		if full := sha256.Sum256(s.Content()); s.Hash() != endpoint.Hash(full[:16]) {
			t.Fatalf("%d endpoints: the hash is not that of the content", count)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s := endpoint.Slice{Key: cart, Name: "cart-a", Version: v1}
			for i := range count {
				e := ep(fmt.Sprintf("10.0.%d.%d", i>>8, i&255), fmt.Sprintf("0b5c0f3e-7a52-4a7e-9f0a-%012d", i))
				e.Zone, e.Node, e.TargetKind, e.TargetName = "zone-1", "node-1", "Pod", fmt.Sprintf("cart-6d5f-%04d", i)
				s.Endpoints = append(s.Endpoints, e)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Hash()
			}
		})
	}
}

func TestAnEventIsValidOrSaysWhatIsWrong(t *testing.T) {
	good := endpoint.Event{Slice: endpoint.Slice{Key: cart, Name: "cart-b", Version: endpoint.Version{Generation: 1, Resource: 5}}}
	ref := func(name string, resource uint64) endpoint.Ref {
		return endpoint.Ref{Name: name, Version: endpoint.Version{Generation: resource, Resource: resource}}
	}
	for _, tt := range []struct {
		name   string
		change func(*endpoint.Event)
		want   string
	}{
		{"plain", func(*endpoint.Event) {}, ""},
		{"gone", func(e *endpoint.Event) { e.Gone = true }, ""},
		{"slice", func(e *endpoint.Event) { e.Slice.Name = "" }, "subdomain"},
		{"gone with ports", func(e *endpoint.Event) { e.Gone, e.Slice.Ports = true, []endpoint.Port{{Number: 1}} }, "has content"},
		{"gone with policy", func(e *endpoint.Event) { e.Gone, e.Slice.FailoverPolicy = true, "any" }, "has content"},
		{"previous", func(e *endpoint.Event) { e.Previous = v1 }, ""},
		{"previous is not before", func(e *endpoint.Event) { e.Previous = e.Slice.Version }, "before it"},
		{"peers", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("cart-a", 1), ref("cart-c", 1)} }, ""},
		{"peers out of order", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("cart-c", 1), ref("cart-a", 1)} }, "out of order"},
		{"peer twice", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("cart-a", 1), ref("cart-a", 1)} }, "twice"},
		{"peer without version", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("cart-a", 0)} }, "without a version"},
		{"peer name", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("Cart", 1)} }, "subdomain"},
		{"own peer", func(e *endpoint.Event) { e.Peers = []endpoint.Ref{ref("cart-b", 1)} }, "its own peer"},
	} {
		e := good
		tt.change(&e)
		fails(t, tt.name, e.Valid(), tt.want)
	}
}
