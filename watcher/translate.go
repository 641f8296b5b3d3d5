// Pure: one EndpointSlice object becomes one endpoint.Slice.

package watcher

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	netutils "k8s.io/utils/net"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// TranslatorVersion counts the releases whose Translate makes other content of the same object, publishes other
// objects, or hashes another canonical form (endpoint.ContentVersion). At equal versions of a slice the higher one wins.
const TranslatorVersion uint32 = 1

// Labels and annotations that Translate reads.
const (
	labelService         = discoveryv1.LabelServiceName
	labelImportedService = "multicluster.kubernetes.io/service-name"
	labelTerminating     = "slicecast.io/terminating"
	labelFailover        = "slicecast.io/failover"
	annotationTrigger    = corev1.EndpointsLastChangeTriggerTime
)

// errNoService says that a slice belongs to no service.
var errNoService = errors.New("no service-name label")

// Translate reduces an EndpointSlice of cluster to what matters, at the version (generation, its resourceVersion).
//
// It follows rules R1 to R7: nil conditions are resolved, only addresses[0] counts, ports without number and ports
// that are not TCP are left out, a nil protocol is TCP. A bad endpoint, port or hint is left out alone and the rest
// is unharmed; everything left out is counted in Skips. An error says that the slice as a whole is not published:
// it belongs to no service, is of type FQDN, or is wrong in a way that leaves nothing to publish.
//
// The result is valid and shares nothing that from could change; Observed is left zero. from is only read. No
// object, legal or not, makes it panic.
func Translate(cluster string, generation uint64, from *discoveryv1.EndpointSlice) (endpoint.Slice, Skips, error) {
	var skips Skips
	if from == nil {
		return endpoint.Slice{}, skips, skips.refuse(RefusedName, "no object")
	}
	out, err := place(cluster, generation, from, &skips)
	if err != nil {
		return endpoint.Slice{}, skips, fmt.Errorf("slice %s/%s: %w", clip(from.Namespace), clip(from.Name), err)
	}
	out.UID = text(string(from.UID))
	out.TerminatingPolicy = text(from.Labels[labelTerminating])
	out.FailoverPolicy = text(from.Labels[labelFailover])
	if at, err := time.Parse(time.RFC3339Nano, from.Annotations[annotationTrigger]); err == nil {
		out.Triggered = at
	}
	out.Ports = translatePorts(from.Ports, &skips)
	out.Endpoints = translateEndpoints(from.AddressType, from.Endpoints, &skips)
	if n := len(out.Endpoints); n > endpoint.MaxEndpoints {
		err := skips.refuse(RefusedSize, "%d endpoints are more than %d", n, endpoint.MaxEndpoints)
		return endpoint.Slice{}, skips, fmt.Errorf("slice %s/%s: %w", from.Namespace, from.Name, err)
	}
	return out, skips, nil
}

// place gives the Key, name and version of a slice, or says why it is not published.
func place(cluster string, generation uint64, from *discoveryv1.EndpointSlice, skips *Skips) (endpoint.Slice, error) {
	service := from.Labels[labelService]
	if service == "" {
		service = from.Labels[labelImportedService]
	}
	if service == "" {
		skips.add(SkippedNoService, 1)
		return endpoint.Slice{}, errNoService
	}
	switch from.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	case discoveryv1.AddressTypeFQDN:
		skips.add(SkippedFQDN, 1)
		return endpoint.Slice{}, errors.New("addressType FQDN is not published")
	default:
		return endpoint.Slice{}, skips.refuse(RefusedType, "addressType %q is none of IPv4, IPv6, FQDN", clip(string(from.AddressType)))
	}
	resource, err := strconv.ParseUint(from.ResourceVersion, 10, 64)
	if err != nil || resource == 0 {
		return endpoint.Slice{}, skips.refuse(RefusedVersion, "resourceVersion %q is not a positive integer", clip(from.ResourceVersion))
	}
	out := endpoint.Slice{
		Key:        endpoint.Key{Cluster: cluster, Namespace: from.Namespace, Service: service},
		Name:       from.Name,
		Version:    endpoint.Version{Generation: generation, Resource: resource},
		Translator: TranslatorVersion,
	}
	if err := out.Valid(); err != nil {
		return endpoint.Slice{}, skips.refuse(RefusedName, "%w", err)
	}
	return out, nil
}

func translatePorts(from []discoveryv1.EndpointPort, skips *Skips) []endpoint.Port {
	out := make([]endpoint.Port, 0, len(from))
	names := make(map[string]bool, len(from))
	for i := range from {
		p := &from[i]
		name := value(p.Name)
		switch {
		case p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
			skips.add(SkippedProtocol, 1)
			continue
		case p.Port == nil || *p.Port == 0:
			skips.add(SkippedPort, 1)
			continue
		case *p.Port < 0 || *p.Port > 65535:
			_ = skips.refuse(RefusedPort, "port %q has number %d", clip(name), *p.Port)
			continue
		case names[name]:
			_ = skips.refuse(RefusedPortTwice, "port name %q occurs twice", clip(name))
			continue
		}
		port := endpoint.Port{Name: name, Number: uint16(*p.Port), AppProtocol: text(value(p.AppProtocol))}
		if err := port.Valid(); err != nil {
			_ = skips.refuse(RefusedPort, "%w", err)
			continue
		}
		names[name] = true
		out = append(out, port)
	}
	slices.SortFunc(out, func(a, b endpoint.Port) int { return strings.Compare(a.Name, b.Name) })
	return slices.Clip(out)
}

func translateEndpoints(family discoveryv1.AddressType, from []discoveryv1.Endpoint, skips *Skips) []endpoint.Endpoint {
	out := make([]endpoint.Endpoint, 0, len(from))
	for i := range from {
		if e, ok := translateEndpoint(family, &from[i], skips); ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b endpoint.Endpoint) int {
		if c := a.Compare(b); c != 0 {
			return c
		}
		return prefer(a, b)
	})
	all := len(out)
	out = slices.CompactFunc(out, func(a, b endpoint.Endpoint) bool { return a.Compare(b) == 0 })
	skips.add(SkippedDuplicate, all-len(out))
	return slices.Clip(out)
}

func translateEndpoint(family discoveryv1.AddressType, from *discoveryv1.Endpoint, skips *Skips) (endpoint.Endpoint, bool) {
	if len(from.Addresses) == 0 {
		_ = skips.refuse(RefusedAddress, "an endpoint has no address")
		return endpoint.Endpoint{}, false
	}
	skips.add(SkippedAddresses, len(from.Addresses)-1)
	addr, ok := parseAddr(family, from.Addresses[0])
	if !ok {
		_ = skips.refuse(RefusedAddress, "address %q is not a plain %s address", clip(from.Addresses[0]), family)
		return endpoint.Endpoint{}, false
	}
	out := endpoint.Endpoint{
		Addr:       addr,
		Conditions: resolve(from.Conditions),
		Zone:       text(value(from.Zone)),
		Node:       text(value(from.NodeName)),
		Hostname:   text(value(from.Hostname)),
	}
	if ref := from.TargetRef; ref != nil {
		out.TargetKind, out.TargetName, out.TargetUID = text(ref.Kind), text(ref.Name), text(string(ref.UID))
	}
	if h := from.Hints; h != nil {
		zones := make([]string, 0, len(h.ForZones))
		for _, z := range h.ForZones {
			zones = append(zones, z.Name)
		}
		nodes := make([]string, 0, len(h.ForNodes))
		for _, n := range h.ForNodes {
			nodes = append(nodes, n.Name)
		}
		out.ZoneHints, out.NodeHints = hints(zones, skips), hints(nodes, skips)
	}
	return out, true
}

// resolve gives the conditions with nil resolved (rule R1).
func resolve(c discoveryv1.EndpointConditions) endpoint.Conditions {
	var out endpoint.Conditions
	if c.Ready == nil || *c.Ready {
		out |= endpoint.Ready
	}
	if c.Serving == nil || *c.Serving {
		out |= endpoint.Serving
	}
	if c.Terminating != nil && *c.Terminating {
		out |= endpoint.Terminating
	}
	return out
}

// parseAddr reads an address of the slice's family. Leading zeros and IPv4 addresses written as IPv6 ones, which old API
// servers let through, mean what they mean to kube-proxy: zeros are decimal, and ::ffff:10.0.0.1 is 10.0.0.1.
func parseAddr(family discoveryv1.AddressType, s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if addr, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(s)); !addr.IsValid() {
			return addr, false
		}
	}
	plain := addr.Unmap() // It keeps the zone of an IPv6 address and drops that of a mapped one.
	if addr.Zone() != "" || plain.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return addr, false
	}
	return plain, true
}

// hints gives the names sorted, unique and joined.
func hints(names []string, skips *Skips) string {
	good := names[:0]
	for _, n := range names {
		if n = text(n); n == "" || strings.Contains(n, ",") {
			_ = skips.refuse(RefusedHint, "hint %q is not a name", clip(n))
			continue
		}
		good = append(good, n)
	}
	slices.Sort(good)
	return strings.Join(slices.Compact(good), ",")
}

// prefer orders endpoints of one address and target, the best first: the more usable one, then the one that is not
// terminating, then a total order of everything else, so that the order in the object does not matter.
func prefer(a, b endpoint.Endpoint) int {
	if c := rank(b.Conditions) - rank(a.Conditions); c != 0 {
		return c
	}
	return slices.Compare(
		[]string{a.Conditions.String(), a.Zone, a.Node, a.ZoneHints, a.NodeHints, a.TargetKind, a.Hostname},
		[]string{b.Conditions.String(), b.Zone, b.Node, b.ZoneHints, b.NodeHints, b.TargetKind, b.Hostname})
}

// rank orders conditions by how usable they are: ready, then the fallback, then the rest, not terminating first.
func rank(c endpoint.Conditions) int {
	ready, fallback := c.Usable()
	r := 0
	if ready {
		r = 4
	} else if fallback {
		r = 2
	}
	if c&endpoint.Terminating == 0 {
		r++
	}
	return r
}

// value gives what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// text makes s fit for the wire, which holds UTF-8 only.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// clip bounds foreign text in an error.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
