package watcher

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func ptr[T any](v T) *T { return &v }

// cond gives conditions from three of t, f and n (nil).
func cond(rst string) discoveryv1.EndpointConditions {
	b := func(c byte) *bool {
		switch c {
		case 't':
			return ptr(true)
		case 'f':
			return ptr(false)
		}
		return nil
	}
	return discoveryv1.EndpointConditions{Ready: b(rst[0]), Serving: b(rst[1]), Terminating: b(rst[2])}
}

// ep gives an endpoint of a pod; uid "" gives one without targetRef.
func ep(addr, rst, uid string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr}, Conditions: cond(rst)}
	if uid != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "pod-" + uid, UID: types.UID(uid)}
	}
	return e
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: ptr(name), Port: ptr(number)}
}

// esl gives an EndpointSlice of service shop/cart with port http:8080.
func esl(name string, version int, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, ResourceVersion: fmt.Sprint(version), UID: types.UID("uid-" + name),
			Labels: map[string]string{labelService: "cart"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{port("http", 8080)},
		Endpoints:   endpoints,
	}
}

// show gives a slice in short: ports, then addresses with conditions and target.
func show(s endpoint.Slice) string {
	var b strings.Builder
	for _, p := range s.Ports {
		fmt.Fprintf(&b, "%s:%d ", p.Name, p.Number)
	}
	for _, e := range s.Endpoints {
		fmt.Fprintf(&b, "%s[%s]%s ", e.Addr, e.Conditions, e.TargetUID)
	}
	return strings.TrimSpace(b.String())
}

func showSkips(s Skips) string {
	var parts []string
	for r, n := range s.All() {
		parts = append(parts, fmt.Sprintf("%s=%d", r, n))
	}
	return strings.Join(parts, " ")
}

// TestTranslateKeepsTheRowsOfTheCaseTable has the rows of the table of known faults that a translation decides.
func TestTranslateKeepsTheRowsOfTheCaseTable(t *testing.T) {
	with := func(es *discoveryv1.EndpointSlice, change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		change(es)
		return es
	}
	many := func(n int) []discoveryv1.Endpoint {
		var out []discoveryv1.Endpoint
		for i := range n {
			out = append(out, ep(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250), "ttf", fmt.Sprintf("u%04d", i)))
		}
		return out
	}
	tests := []struct {
		name, want, skips string
		in                *discoveryv1.EndpointSlice
	}{
		{"1: two pods of one address stay two, old first", "http:8080 10.0.0.1[rs-]new 10.0.0.1[--t]old", "", esl("a", 1, ep("10.0.0.1", "fft", "old"), ep("10.0.0.1", "ttf", "new"))},
		{"1: two pods of one address stay two, new first", "http:8080 10.0.0.1[rs-]new 10.0.0.1[--t]old", "", esl("a", 1, ep("10.0.0.1", "ttf", "new"), ep("10.0.0.1", "fft", "old"))},
		{"8: endpoints need no pod", "http:8080 10.0.0.1[rs-]", "", esl("a", 1, ep("10.0.0.1", "ttf", ""))},
		{"10: IPv6 is a slice of its own", "http:8080 fd00::1[rs-]x", "", with(esl("a", 1, ep("fd00::1", "ttf", "x")), func(es *discoveryv1.EndpointSlice) { es.AddressType = discoveryv1.AddressTypeIPv6 })},
		{"17: a manual slice with conditions {}", "http:8080 10.0.0.1[rs-]", "", esl("a", 1, ep("10.0.0.1", "nnn", ""))},
		{"18: ports are those of the slice", "grpc:9090 10.0.0.2[rs-]b", "", with(esl("b", 1, ep("10.0.0.2", "ttf", "b")), func(es *discoveryv1.EndpointSlice) {
			es.Ports = []discoveryv1.EndpointPort{port("grpc", 9090)}
		})},
		{"19: no ports is legal", "10.0.0.1[rs-]a", "", with(esl("a", 1, ep("10.0.0.1", "ttf", "a")), func(es *discoveryv1.EndpointSlice) { es.Ports = nil })},
		{"29: a full slice", "", "", esl("a", 1, many(1000)...)},
		{"31: serving and terminating", "http:8080 10.0.0.1[-st]a", "", esl("a", 1, ep("10.0.0.1", "ftt", "a"))},
		{"33: ready and terminating side by side", "http:8080 10.0.0.1[rs-]a 10.0.0.2[-st]b", "", esl("a", 1, ep("10.0.0.2", "ftt", "b"), ep("10.0.0.1", "ttf", "a"))},
		{"42: publishNotReadyAddresses", "http:8080 10.0.0.1[r--]a 10.0.0.2[r-t]b", "", esl("a", 1, ep("10.0.0.1", "tff", "a"), ep("10.0.0.2", "tft", "b"))},
		{"44: nil ready is true", "http:8080 10.0.0.1[rs-]a", "", esl("a", 1, ep("10.0.0.1", "nff"[:1]+"nn", "a"))},
		{"R1: nil serving is true although ready is false", "http:8080 10.0.0.1[-s-]a", "", esl("a", 1, ep("10.0.0.1", "fnn", "a"))},
		{"45: no endpoints", "http:8080", "", esl("a", 1)},
		{"47: nothing but an address", "http:8080 10.0.0.1[rs-]", "", esl("a", 1, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})},
		{"49: the first address only", "http:8080 10.0.0.1[rs-]a", "more_addresses=1", with(esl("a", 1, ep("10.0.0.1", "ttf", "a")), func(es *discoveryv1.EndpointSlice) {
			es.Endpoints[0].Addresses = append(es.Endpoints[0].Addresses, "10.0.0.2")
		})},
		{"R7: ports without number and of other protocols", "dns:53 x:1 10.0.0.1[rs-]a", "no_port=2 protocol=2", with(esl("a", 1, ep("10.0.0.1", "ttf", "a")), func(es *discoveryv1.EndpointSlice) {
			udp, sctp, tcp := port("u", 53), port("s", 54), port("dns", 53)
			udp.Protocol, sctp.Protocol, tcp.Protocol = ptr(corev1.ProtocolUDP), ptr(corev1.ProtocolSCTP), ptr(corev1.ProtocolTCP)
			es.Ports = []discoveryv1.EndpointPort{udp, sctp, tcp, {Name: ptr("all")}, port("zero", 0), port("x", 1)}
		})},
		{"an unnamed port", ":80 10.0.0.1[rs-]a", "", with(esl("a", 1, ep("10.0.0.1", "ttf", "a")), func(es *discoveryv1.EndpointSlice) {
			es.Ports = []discoveryv1.EndpointPort{{Port: ptr(int32(80))}}
		})},
		{"bad ports alone are left out", "http:8080 10.0.0.1[rs-]a", "bad_port=3 duplicate_port=1", with(esl("a", 1, ep("10.0.0.1", "ttf", "a")), func(es *discoveryv1.EndpointSlice) {
			es.Ports = append(es.Ports, port("http", 9), port("big", 70000), port("neg", -1), port("Bad_Name", 1))
		})},
		{"bad addresses alone are left out", "http:8080 10.0.0.1[rs-]a", "bad_address=5", esl("a", 1, ep("10.0.0.1", "ttf", "a"), ep("", "ttf", "b"),
			ep("fd00::1", "ttf", "c"), ep("10.0.0.300", "ttf", "d"), ep("::ffff:10.0.0.9%eth0", "ttf", "e"), discoveryv1.Endpoint{})},
		{"an old address in the form of IPv6", "http:8080 10.0.0.9[rs-]a", "", esl("a", 1, ep("::ffff:10.0.0.9", "ttf", "a"))},
		{"old addresses with zeros are decimal", "http:8080 10.0.0.10[rs-]a", "", esl("a", 1, ep("10.000.0.010", "ttf", "a"))},
		{"an exact duplicate is merged, the usable one stays", "http:8080 10.0.0.1[rs-]a", "duplicate_endpoint=2", esl("a", 1, ep("10.0.0.1", "fft", "a"), ep("10.0.0.1", "ttf", "a"), ep("10.0.0.1", "ftt", "a"))},
		{"of unusable duplicates the fallback stays", "http:8080 10.0.0.1[-st]a", "duplicate_endpoint=1", esl("a", 1, ep("10.0.0.1", "ftt", "a"), ep("10.0.0.1", "ftf", "a"))},
	}
	for _, tt := range tests {
		before, _ := json.Marshal(tt.in)
		got, skips, err := Translate("prod", 3, tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if err := got.Valid(); err != nil {
			t.Errorf("%s: the slice is not valid: %v", tt.name, err)
		}
		if tt.want != "" && show(got) != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, show(got), tt.want)
		}
		if s := showSkips(skips); s != tt.skips {
			t.Errorf("%s: skipped %q, want %q", tt.name, s, tt.skips)
		}
		if len(tt.in.Endpoints) == 1000 && len(got.Endpoints) != 1000 {
			t.Errorf("%s: %d endpoints", tt.name, len(got.Endpoints))
		}
		if after, _ := json.Marshal(tt.in); string(after) != string(before) {
			t.Errorf("%s: the object was changed", tt.name)
		}
	}
}

func TestASliceThatIsNotPublishedIsCountedByItsReason(t *testing.T) {
	tests := []struct {
		name   string
		want   Reason
		change func(*discoveryv1.EndpointSlice)
	}{
		{"FQDN", SkippedFQDN, func(es *discoveryv1.EndpointSlice) {
			es.AddressType, es.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"example.org"}
		}},
		{"no service", SkippedNoService, func(es *discoveryv1.EndpointSlice) { es.Labels = nil }},
		{"service name with a dot", RefusedName, func(es *discoveryv1.EndpointSlice) { es.Labels[labelService] = "a.b" }},
		{"no namespace", RefusedName, func(es *discoveryv1.EndpointSlice) { es.Namespace = "" }},
		{"bad name", RefusedName, func(es *discoveryv1.EndpointSlice) { es.Name = "A" }},
		{"no version", RefusedVersion, func(es *discoveryv1.EndpointSlice) { es.ResourceVersion = "" }},
		{"version 0", RefusedVersion, func(es *discoveryv1.EndpointSlice) { es.ResourceVersion = "0" }},
		{"version of letters", RefusedVersion, func(es *discoveryv1.EndpointSlice) { es.ResourceVersion = "abc" }},
		{"unknown type", RefusedType, func(es *discoveryv1.EndpointSlice) { es.AddressType = "IPv5" }},
		{"too many endpoints", RefusedSize, func(es *discoveryv1.EndpointSlice) {
			for i := range 1001 {
				es.Endpoints = append(es.Endpoints, ep(fmt.Sprintf("10.1.%d.%d", i/250, i%250), "ttf", fmt.Sprint(i)))
			}
		}},
	}
	for _, tt := range tests {
		es := esl("a", 1, ep("10.0.0.1", "ttf", "a"))
		tt.change(es)
		_, skips, err := Translate("prod", 1, es)
		if err == nil || skips.Count(tt.want) != 1 {
			t.Errorf("%s: error %v, skipped %q", tt.name, err, showSkips(skips))
		}
		if (skips.Refused != "") != tt.want.Refusal() {
			t.Errorf("%s: refused %q", tt.name, skips.Refused)
		}
	}
}

func TestTranslateCarriesEverythingThatMatters(t *testing.T) {
	es := esl("cart-x1", 77, ep("10.0.0.1", "ttf", "u1"))
	es.Labels = map[string]string{labelImportedService: "cart", labelTerminating: "drain", labelFailover: "region"}
	es.Annotations = map[string]string{annotationTrigger: "2026-03-01T10:00:00.25Z"}
	e := &es.Endpoints[0]
	e.Zone, e.NodeName, e.Hostname = ptr("z1"), ptr("n1"), ptr("h1")
	e.Hints = &discoveryv1.EndpointHints{
		ForZones: []discoveryv1.ForZone{{Name: "z2"}, {Name: "z1"}, {Name: "z2"}, {Name: "a,b"}, {}},
		ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
	}
	es.Ports[0].AppProtocol = ptr("kubernetes.io/h2c")
	got, skips, err := Translate("prod", 3, es)
	if err != nil {
		t.Fatal(err)
	}
	want := endpoint.Slice{
		Key: endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}, Name: "cart-x1", UID: "uid-cart-x1",
		Version: endpoint.Version{Generation: 3, Resource: 77}, TerminatingPolicy: "drain", FailoverPolicy: "region",
		Translator: TranslatorVersion, Triggered: time.Date(2026, 3, 1, 10, 0, 0, 250e6, time.UTC),
		Ports: []endpoint.Port{{Name: "http", Number: 8080, AppProtocol: "kubernetes.io/h2c"}},
		Endpoints: []endpoint.Endpoint{{
			Addr: netip.MustParseAddr("10.0.0.1"), Conditions: endpoint.Ready | endpoint.Serving, Zone: "z1", Node: "n1",
			ZoneHints: "z1,z2", NodeHints: "n1", TargetKind: "Pod", TargetName: "pod-u1", TargetUID: "u1", Hostname: "h1",
		}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	if skips.Count(RefusedHint) != 2 {
		t.Errorf("skipped %q", showSkips(skips))
	}
}

func TestTheServiceNameLabelBeatsTheImportedOne(t *testing.T) {
	es := esl("a", 1)
	es.Labels[labelImportedService] = "other"
	if got, _, err := Translate("prod", 1, es); err != nil || got.Key.Service != "cart" {
		t.Errorf("got service %q, error %v", got.Key.Service, err)
	}
}

func TestTheOrderInTheObjectDoesNotMatter(t *testing.T) {
	a := esl("a", 1, ep("10.0.0.1", "ttf", "x"), ep("10.0.0.1", "ttf", "x"), ep("10.0.0.3", "fft", "y"), ep("10.0.0.2", "ttf", "z"))
	a.Endpoints[1].Zone = ptr("z1")
	a.Ports = append(a.Ports, port("admin", 9))
	b := a.DeepCopy()
	for i, j := 0, len(b.Endpoints)-1; i < j; i, j = i+1, j-1 {
		b.Endpoints[i], b.Endpoints[j] = b.Endpoints[j], b.Endpoints[i]
	}
	b.Ports[0], b.Ports[1] = b.Ports[1], b.Ports[0]
	x, _, _ := Translate("prod", 1, a)
	y, _, _ := Translate("prod", 1, b)
	if string(x.Content()) != string(y.Content()) {
		t.Errorf("got %s and %s", show(x), show(y))
	}
}

func TestAnyFieldThatMattersChangesTheHash(t *testing.T) {
	base, _, _ := Translate("prod", 1, esl("a", 1, ep("10.0.0.1", "ttf", "x")))
	for name, change := range map[string]func(*discoveryv1.EndpointSlice){
		"12: the port number": func(es *discoveryv1.EndpointSlice) { es.Ports[0].Port = ptr(int32(9090)) },
		"23: the port name":   func(es *discoveryv1.EndpointSlice) { es.Ports[0].Name = ptr("web") },
		"14: a new endpoint": func(es *discoveryv1.EndpointSlice) {
			es.Endpoints = append(es.Endpoints, ep("10.0.0.2", "ttf", "y"))
		},
		"13: an endpoint less": func(es *discoveryv1.EndpointSlice) { es.Endpoints = nil },
		"36: a condition":      func(es *discoveryv1.EndpointSlice) { es.Endpoints[0].Conditions = cond("ftt") },
		"50: a hint": func(es *discoveryv1.EndpointSlice) {
			es.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}
		},
		"a policy": func(es *discoveryv1.EndpointSlice) { es.Labels[labelFailover] = "none" },
	} {
		es := esl("a", 1, ep("10.0.0.1", "ttf", "x"))
		change(es)
		if got, _, err := Translate("prod", 1, es); err != nil || got.Hash() == base.Hash() {
			t.Errorf("%s: error %v, hash is the same: %v", name, err, got.Hash() == base.Hash())
		}
	}
	es := esl("a", 1, ep("10.0.0.1", "ttf", "x"))
	es.Labels["app"], es.Annotations = "x", map[string]string{annotationTrigger: "2026-03-01T10:00:00Z"}
	if got, _, _ := Translate("prod", 1, es); got.Hash() != base.Hash() {
		t.Error("30: another label or the trigger time changed the hash")
	}
}

func FuzzTranslate(f *testing.F) {
	for _, es := range []*discoveryv1.EndpointSlice{
		{}, esl("a", 1), esl("a", 1, ep("10.0.0.1", "nnn", "x"), discoveryv1.Endpoint{}),
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelService: "\xff"}}, Ports: []discoveryv1.EndpointPort{{}}},
	} {
		raw, err := json.Marshal(es)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, "10.0.0.1", "zone\xff")
	}
	f.Fuzz(func(t *testing.T, raw []byte, addr, dirty string) {
		es := &discoveryv1.EndpointSlice{}
		_ = json.Unmarshal(raw, es)
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, Zone: &dirty,
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: dirty}}}})
		got, skips, err := Translate("prod", 1, es)
		if err != nil {
			return
		}
		if err := got.Valid(); err != nil {
			t.Fatalf("not valid: %v", err)
		}
		if again, _, _ := Translate("prod", 1, es); again.Hash() != got.Hash() {
			t.Fatal("two translations of one object differ")
		}
		if len(got.Endpoints)+skips.Count(RefusedAddress)+skips.Count(SkippedDuplicate) != len(es.Endpoints) {
			t.Fatalf("%d endpoints became %d, skipped %s", len(es.Endpoints), len(got.Endpoints), showSkips(skips))
		}
		if !strings.Contains(got.Key.String(), "prod/") {
			t.Fatal("no key")
		}
	})
}
