package endpoint_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func fails(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("%s: got %v, want no error", what, err)
	} else if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want an error with %q", what, err, want)
	}
}

func TestAKeyHasThreeLabels(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct{ text, want string }{
		{"prod/shop/cart", ""},
		{"a/0/b-1", ""},
		{"prod/shop", "cluster/namespace/service"},
		{"prod/shop/cart/x", "cluster/namespace/service"},
		{"/shop/cart", "cluster name"},
		{"prod//cart", "namespace name"},
		{"prod/shop/", "service name"},
		{"Prod/shop/cart", "cluster name"},
		{"prod/-shop/cart", "namespace name"},
		{"prod/shop/cart-", "service name"},
		{"prod/sh.op/cart", "namespace name"},
		{"prod/shop/" + long, "service name"},
		{"prod/shop/" + strings.Repeat("x", 200) + ".", "..."},
	} {
		k, err := endpoint.ParseKey(tt.text)
		fails(t, tt.text, err, tt.want)
		if err == nil && k.String() != tt.text {
			t.Errorf("got %s, want %s", k, tt.text)
		}
	}
}

func TestKeysAreOrderedByTheirParts(t *testing.T) {
	sorted := []endpoint.Key{{"a", "b", "c"}, {"a", "b", "d"}, {"a", "c", "a"}, {"b", "a", "a"}}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s against %s: got %d", a, b, got)
			}
		}
	}
}

func TestASubdomainIsLabelsWithDots(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "cart-x1.b": true, "": false, ".": false, "a..b": false, "a.": false, "A": false,
		strings.Repeat("a.", 126) + "a": true, strings.Repeat("a.", 126) + "aa": false,
	} {
		if got := endpoint.IsSubdomain(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestVersionsCompareByGenerationFirst(t *testing.T) {
	sorted := []endpoint.Version{{}, {0, 9}, {1, 1}, {1, 10}, {2, 1}}
	for i, a := range sorted {
		for j, b := range sorted {
			if a.After(b) != (i > j) {
				t.Errorf("%s after %s: got %v", a, b, a.After(b))
			}
		}
		if back, err := endpoint.ParseVersion(a.String()); err != nil || back != a {
			t.Errorf("%s was read as %s, %v", a, back, err)
		}
		if a.IsZero() != (i == 0) {
			t.Errorf("%s is zero: %v", a, a.IsZero())
		}
	}
	for text, want := range map[string]string{"7": "generation/resourceVersion", "x/1": "generation of", "1/-1": "resourceVersion of", "1/": "resourceVersion of"} {
		_, err := endpoint.ParseVersion(text)
		fails(t, text, err, want)
	}
}

// Rules R1 to R3: ready is looked at first; the fallback is serving and terminating.
func TestTheTableOfConditions(t *testing.T) {
	for text, want := range map[string][2]bool{
		"rst": {true, false}, "rs-": {true, false}, "r-t": {true, false}, "r--": {true, false},
		"-st": {false, true}, "--t": {false, false}, "-s-": {false, false}, "---": {false, false}, "absent": {false, false},
	} {
		c, err := endpoint.ParseConditions(text)
		if err != nil || c.String() != text {
			t.Errorf("%s was read as %s, %v", text, c, err)
		}
		if ready, fallback := c.Usable(); [2]bool{ready, fallback} != want {
			t.Errorf("%s: got ready %v, fallback %v, want %v", text, ready, fallback, want)
		}
	}
	for _, text := range []string{"", "rs", "rstx", "sr-", "ready"} {
		_, err := endpoint.ParseConditions(text)
		fails(t, text, err, "three of")
	}
}

func TestAnEndpointIsValidOrSaysWhatIsWrong(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for _, tt := range []struct {
		name string
		e    endpoint.Endpoint
		want string
	}{
		{"plain", endpoint.Endpoint{Addr: addr}, ""},
		{"all conditions", endpoint.Endpoint{Addr: addr, Conditions: 7}, ""},
		{"hints", endpoint.Endpoint{Addr: addr, ZoneHints: "a,b", NodeHints: "n"}, ""},
		{"no address", endpoint.Endpoint{}, "address"},
		{"mapped", endpoint.Endpoint{Addr: netip.MustParseAddr("::ffff:10.0.0.1")}, "address"},
		{"scoped", endpoint.Endpoint{Addr: netip.MustParseAddr("fe80::1%eth0")}, "address"},
		{"absent", endpoint.Endpoint{Addr: addr, Conditions: endpoint.Absent}, "conditions"},
		{"unsorted hints", endpoint.Endpoint{Addr: addr, ZoneHints: "b,a"}, "hints"},
		{"repeated hints", endpoint.Endpoint{Addr: addr, NodeHints: "a,a"}, "hints"},
		{"empty hint", endpoint.Endpoint{Addr: addr, ZoneHints: "a,,b"}, "hints"},
	} {
		fails(t, tt.name, tt.e.Valid(), tt.want)
	}
	for _, tt := range []struct {
		p    endpoint.Port
		want string
	}{
		{endpoint.Port{Number: 1}, ""},
		{endpoint.Port{Name: "http", Number: 65535}, ""},
		{endpoint.Port{Name: "http"}, "number 0"},
		{endpoint.Port{Name: "HTTP", Number: 1}, "DNS label"},
	} {
		fails(t, tt.p.Name, tt.p.Valid(), tt.want)
	}
}
