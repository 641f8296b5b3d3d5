package xdsserver

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// oracle gives an Assignment as the message that the library has for it.
func oracle(a Assignment) *endpointv3.ClusterLoadAssignment {
	address := func(at netip.AddrPort) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: at.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
		}}}
	}
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: a.Name}
	for _, l := range a.Localities {
		out := &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Region: l.Region, Zone: l.Zone}, Priority: l.Priority, LoadBalancingWeight: wrapperspb.UInt32(l.Weight()),
		}
		for _, e := range l.Endpoints {
			lb := &endpointv3.LbEndpoint{HealthStatus: corev3.HealthStatus_HEALTHY}
			if e.Draining {
				lb.HealthStatus = corev3.HealthStatus_DRAINING
			}
			ep := &endpointv3.Endpoint{Address: address(e.Addr)}
			for _, m := range e.More {
				ep.AdditionalAddresses = append(ep.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: address(m)})
			}
			lb.HostIdentifier = &endpointv3.LbEndpoint_Endpoint{Endpoint: ep}
			out.LbEndpoints = append(out.LbEndpoints, lb)
		}
		cla.Endpoints = append(cla.Endpoints, out)
	}
	return cla
}

// checkEncoding compares the hand encoder with the library, in both directions.
func checkEncoding(t *testing.T, a Assignment) {
	t.Helper()
	value, want := a.Encode(), oracle(a)
	got := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(value, got); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	library, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if len(library) != len(value) {
		t.Fatalf("%d bytes, the library takes %d", len(value), len(library))
	}
	if _, size := sizesOf(&a, nil); len(value) != size {
		t.Fatalf("%d bytes, sized %d", len(value), size)
	}
}

func TestTheHandEncoderWritesWhatTheLibraryReads(t *testing.T) {
	for seed := range uint64(1000) {
		r := endpointtest.NewRandom(seed)
		svc := randomService(r)
		for _, name := range namesOf(svc) {
			checkEncoding(t, Assign(svc, View{Zone: r.Text()}, name))
		}
	}
	checkEncoding(t, Assignment{Name: "cart.shop:http"})
	checkEncoding(t, Assign(bigService(1000), View{}, mustName(t, cart)))
}

func FuzzEncodeAssignment(f *testing.F) {
	f.Add("cart.shop:http", "eu", "z1", uint32(0), []byte{10, 0, 0, 1}, uint16(80), true)
	f.Add("", "", "", uint32(300), []byte{200, 30, 4, 255}, uint16(65535), false)
	f.Add("x", "r", "", uint32(1<<31), bytes.Repeat([]byte{0xfd}, 16), uint16(1), false)
	f.Fuzz(func(t *testing.T, name, region, zone string, priority uint32, addr []byte, port uint16, draining bool) {
		at, ok := netip.AddrFromSlice(addr)
		if !ok || at.Is4In6() {
			return
		}
		utf8 := func(s string) string { return strings.ToValidUTF8(s, "?") }
		target := Target{Addr: netip.AddrPortFrom(at, port), Draining: draining}
		more := Target{Addr: target.Addr, More: []netip.AddrPort{target.Addr, target.Addr}}
		checkEncoding(t, Assignment{Name: utf8(name), Localities: []Locality{
			{Priority: priority, Region: utf8(region), Zone: utf8(zone), Endpoints: []Target{target, more}},
			{Region: utf8(zone), Endpoints: []Target{target}},
		}})
	})
}

func TestEnvelopesAreReadByTheLibrary(t *testing.T) {
	a := Assign(bigService(3), View{}, mustName(t, cart))
	r := encodeAssignment(a)
	want, err := anypb.New(oracle(a))
	if err != nil {
		t.Fatal(err)
	}
	delta, sotw := &discoveryv3.DeltaDiscoveryResponse{}, &discoveryv3.DiscoveryResponse{}
	if err := proto.Unmarshal(append(bytes.Clone(r.delta), r.body...), delta); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(append(bytes.Clone(r.sotw), r.body...), sotw); err != nil {
		t.Fatal(err)
	}
	wantDelta := &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: cart, Version: r.version, Resource: want}}}
	if diff := gocmp.Diff(wantDelta, delta, protocmp.Transform()); diff != "" {
		t.Errorf("delta (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{want}}, sotw, protocmp.Transform()); diff != "" {
		t.Errorf("SotW (-want +got):\n%s", diff)
	}
}

func TestVersionsAreStable(t *testing.T) {
	// A change of these is a change of what every client holds: all of them get everything again.
	if got, want := encodeAssignment(Assign(bigService(3), View{}, mustName(t, cart))).version, "CWc2k_IrGmn_k8sQ"; got != want {
		t.Errorf("assignment: got %s, want %s", got, want)
	}
	r, err := encodeCluster(clusterSpec{name: cart, http2: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := "5m3BEvnz8vFgmL0Z"; r.version != want {
		t.Errorf("cluster: got %s, want %s", r.version, want)
	}
}

func TestClustersAreWhatEnvoyNeeds(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		c, err := clusterOf(clusterSpec{name: cart, http2: http2})
		if err != nil {
			t.Fatal(err)
		}
		if c.GetType() != clusterv3.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
			t.Errorf("not EDS over ADS: %v", c)
		}
		if w := c.GetCommonLbConfig().GetUpdateMergeWindow(); w == nil || w.AsDuration() != 0 {
			t.Errorf("merge window %v", w)
		}
		if p := c.GetCommonLbConfig().GetHealthyPanicThreshold(); p == nil || p.GetValue() != 0 {
			t.Errorf("panic threshold %v: endpoints that drain would get new requests when all of them do", p)
		}
		if !c.GetIgnoreHealthOnHostRemoval() || c.GetConnectTimeout().AsDuration() <= 0 {
			t.Errorf("removal or connect timeout is missing: %v", c)
		}
		options := c.GetTypedExtensionProtocolOptions()[httpOptions]
		if !http2 {
			if options != nil {
				t.Errorf("protocol options without HTTP/2: %v", options)
			}
			continue
		}
		got := &httpv3.HttpProtocolOptions{}
		if err := options.UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		if got.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
			t.Errorf("no HTTP/2: %v", got)
		}
		if err := c.ValidateAll(); err != nil {
			t.Errorf("the cluster is not valid: %v", err)
		}
	}
}

func TestPortsOfAServiceAreMergedOverClustersAndSlices(t *testing.T) {
	a := withPorts(sliceOf("prod", "a", 5), endpoint.Port{Name: "http", Number: 8080}, endpoint.Port{Name: "grpc", Number: 9090, AppProtocol: "grpc"})
	b := withPorts(sliceOf("prod", "b", 6), endpoint.Port{Name: "http", Number: 8080, AppProtocol: "kubernetes.io/h2c"})
	c := withPorts(sliceOf("edge", "c", 1), endpoint.Port{Name: "http", Number: 81}, endpoint.Port{Number: 82, AppProtocol: "kubernetes.io/ws"})
	states := []endpoint.State{stateOf(a, b), stateOf(c)}
	if diff := gocmp.Diff(map[string]bool{"http": false, "grpc": true, "": false}, mergedPorts(states, nil)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	tests := []struct {
		name         string
		there, http2 bool
	}{
		{"cart.shop:http", true, false}, {"cart.shop.prod:http", true, true}, {"cart.shop.prod:9090", true, true}, {"cart.shop:8080", true, true},
		{"cart.shop.prod:81", false, false}, {"cart.shop", true, false}, {"cart.shop.prod", false, false}, {"cart.shop.moon:http", false, false},
	}
	for _, tt := range tests {
		spec, there := specOf(Service{States: states}, mustName(t, tt.name))
		if there != tt.there || spec.http2 != tt.http2 {
			t.Errorf("%s: got %t, HTTP/2 %t, want %t, %t", tt.name, there, spec.http2, tt.there, tt.http2)
		}
	}
}

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	good := map[string]Name{
		"cart.shop":             {"cart", "shop", "", ""},
		"cart.shop:http":        {"cart", "shop", "", "http"},
		"cart.shop.prod":        {"cart", "shop", "prod", ""},
		"cart.shop.prod-1:8080": {"cart", "shop", "prod-1", "8080"},
	}
	for text, want := range good {
		got, err := ParseName(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "cart", "cart.shop:", ".shop", "cart.", "cart.shop.prod.x", "Cart.shop", "cart.shop:a:b", "cart.shop:HTTP", "*", "cart/shop", strings.Repeat("a", 200) + ".shop"} {
		if n, err := ParseName(text); err == nil {
			t.Errorf("%q is read as %+v", text, n)
		}
	}
	for text, want := range map[string]uint16{"8080": 8080, "0": 0, "65536": 0, "080": 0, "http": 0, "": 0} {
		if got := (Name{Port: text}).number(); got != want {
			t.Errorf("port %q: got number %d, want %d", text, got, want)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"cart.shop:http", "cart.shop.prod:8080", "a.b", "*", "a.b:", "..:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseName(text)
		if err != nil {
			return
		}
		if n.String() != text {
			t.Errorf("%q is written as %q", text, n)
		}
	})
}

func TestAFamilyIsReadFromMetadata(t *testing.T) {
	for text, want := range map[string]Family{"": AnyFamily, "4": IPv4, "ipv4": IPv4, "IPv6": IPv6, "6": IPv6, "both": AnyFamily} {
		if got := ParseFamily(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func BenchmarkEncodeAssignment(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := Assign(bigService(n), View{Cluster: "prod", Zone: "z1"}, mustName(b, cart))
			b.ReportAllocs()
			for b.Loop() {
				encodeAssignment(a)
			}
		})
	}
}
