package endpoint

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Endpoint is one endpoint of a slice. It is comparable: equal endpoints are ==.
//
// Invariants:
//
//	E1: Addr is valid, unmapped (no IPv4 in IPv6) and without zone.
//	E2: Conditions are resolved: no bit but Ready, Serving, Terminating.
//	E3: ZoneHints and NodeHints are sorted, unique, joined by ','.
type Endpoint struct {
	Addr       netip.Addr // addresses[0]; the others have no meaning (rule R6)
	Conditions Conditions
	Zone       string // topology zone, empty when unknown
	Node       string // node name, empty when unknown
	ZoneHints  string // hints.forZones as "a,b", empty when there are none
	NodeHints  string // hints.forNodes as "a,b", empty when there are none
	TargetKind string // targetRef.kind, mostly "Pod"; empty without targetRef
	TargetName string // targetRef.name
	TargetUID  string // targetRef.uid
	Hostname   string // hostname of the endpoint, empty when unset
}

// Valid returns an error that names the first invariant that e breaks.
func (e Endpoint) Valid() error {
	if !e.Addr.IsValid() || e.Addr.Is4In6() || e.Addr.Zone() != "" {
		return fmt.Errorf("address %q is not a plain IPv4 or IPv6 address", e.Addr)
	}
	if e.Conditions&^(Ready|Serving|Terminating) != 0 {
		return fmt.Errorf("endpoint %s has unknown conditions %#x", e.Addr, uint8(e.Conditions))
	}
	for _, h := range [...]string{e.ZoneHints, e.NodeHints} {
		if !sortedList(h) {
			return fmt.Errorf("endpoint %s has hints %q that are not sorted and unique", e.Addr, clip(h))
		}
	}
	return nil
}

// Compare orders endpoints by address, then by the uid and name of their target: the order inside a Slice.
func (e Endpoint) Compare(o Endpoint) int {
	if c := e.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(e.TargetUID, o.TargetUID), strings.Compare(e.TargetName, o.TargetName))
}

// Port is one port of a slice.
//
// Invariants: PT1: Number is not 0. PT2: Name is empty or a DNS label.
type Port struct {
	Name        string // empty for the only, unnamed port
	Number      uint16 // the target port
	AppProtocol string // "" when unset; "kubernetes.io/h2c" and "grpc" mean HTTP/2 to the pod
}

// Valid returns an error that names the first invariant that p breaks.
func (p Port) Valid() error {
	if p.Number == 0 {
		return fmt.Errorf("port %q has number 0", clip(p.Name))
	}
	if p.Name != "" && !IsLabel(p.Name) {
		return fmt.Errorf("port name %q is not a DNS label", clip(p.Name))
	}
	return nil
}

// sortedList reports whether a comma-joined list is strictly ascending without empty items.
func sortedList(list string) bool {
	if list == "" {
		return true
	}
	before := ""
	for item := range strings.SplitSeq(list, ",") {
		if item <= before {
			return false
		}
		before = item
	}
	return true
}

var errFamilies = errors.New("addresses of both families in one slice")
