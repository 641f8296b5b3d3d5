package endpoint

import (
	"fmt"
	"strings"
)

// Key names one service of one Kubernetes cluster.
//
// Invariants:
//
//	K1: no part is empty.
//	K2: each part is a DNS label (RFC 1123: at most 63 of a-z, 0-9 and '-', no '-' at an end), so that a part can
//	    be a token of a bus subject and of a resource name.
//	K3: String is injective, since no part holds a '/'.
type Key struct {
	Cluster   string
	Namespace string
	Service   string
}

// String gives "cluster/namespace/service".
func (k Key) String() string { return k.Cluster + "/" + k.Namespace + "/" + k.Service }

// Valid returns an error that names the first invariant that k breaks.
func (k Key) Valid() error {
	for _, p := range [...]struct{ what, text string }{
		{"cluster", k.Cluster}, {"namespace", k.Namespace}, {"service", k.Service},
	} {
		if !IsLabel(p.text) {
			return fmt.Errorf("%s name %q is not a DNS label", p.what, clip(p.text))
		}
	}
	return nil
}

// Compare orders keys by cluster, namespace, service.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Cluster, o.Cluster); c != 0 {
		return c
	}
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Service, o.Service)
}

// ParseKey reads what Key.String wrote. The error names the text.
func ParseKey(text string) (Key, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("key %q is not cluster/namespace/service", clip(text))
	}
	k := Key{parts[0], parts[1], parts[2]}
	if err := k.Valid(); err != nil {
		return Key{}, fmt.Errorf("key %q: %w", clip(text), err)
	}
	return k, nil
}

// IsLabel reports whether s is a DNS label as RFC 1123 and Kubernetes have it.
func IsLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// IsSubdomain reports whether s is a DNS subdomain (dot-separated labels, at most 253 bytes): what Kubernetes
// allows as the name of an EndpointSlice.
func IsSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(label) {
			return false
		}
	}
	return true
}

// clip bounds foreign text in an error.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
