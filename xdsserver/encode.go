// Pure: values in, values out.

package xdsserver

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types that are served.
const (
	typeCluster    = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	typeAssignment = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// Values of envoy.config.core.v3.HealthStatus.
const (
	healthHealthy  = 1
	healthDraining = 3
)

// resource is one version of one resource, encoded as responses carry it. It never changes, and is shared by all
// streams and Views that see it.
type resource struct {
	version  string // hash of the content: equal on every replica, whatever library encodes
	delta    []byte // head of a Resource in a DeltaDiscoveryResponse; body follows
	sotw     []byte // head of an Any in a DiscoveryResponse; body follows
	body     []byte // the fields of the Any
	addrs    []heldAddr
	fallback bool // an assignment that nothing ready is in
	empty    bool // an assignment without endpoints
}

// heldAddr is an address that a stream holds with an assignment.
type heldAddr struct {
	at       netip.AddrPort
	draining bool
}

// size is about what the resource adds to a response.
func (r *resource) size() int { return len(r.delta) + len(r.body) }

// encodeAssignment makes the resource of an Assignment.
func encodeAssignment(a Assignment) *resource {
	value := a.Encode()
	r := newResource(a.Name, typeAssignment, contentVersion(value), value)
	r.fallback = a.Fallback
	r.empty = len(a.Localities) == 0
	total := 0
	for i := range a.Localities {
		total += len(a.Localities[i].Endpoints)
	}
	r.addrs = make([]heldAddr, 0, total)
	for i := range a.Localities {
		for _, t := range a.Localities[i].Endpoints {
			r.addrs = append(r.addrs, heldAddr{t.Addr, t.Draining})
			for _, m := range t.More {
				r.addrs = append(r.addrs, heldAddr{m, t.Draining})
			}
		}
	}
	return r
}

// contentVersion is the version of a resource: 96 bits of SHA-256 over its content, as 16 letters.
func contentVersion(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// newResource wraps an encoded message. Both responses have their resources in field 2: that of SotW is the Any alone,
// that of delta a Resource{version = 1, resource = 2, name = 3}, written with the name before the Any.
func newResource(name, typeURL, version string, value []byte) *resource {
	r := &resource{version: version}
	r.body = make([]byte, 0, len(typeURL)+len(value)+16)
	r.body = appendText(r.body, 1, typeURL)
	r.body = appendBytes(r.body, 2, value)
	r.sotw = appendHead(nil, 2, len(r.body))
	inner := appendText(appendText(nil, 1, version), 3, name)
	inner = appendHead(inner, 2, len(r.body))
	r.delta = appendHead(make([]byte, 0, len(inner)+8), 2, len(inner)+len(r.body))
	r.delta = append(r.delta, inner...)
	return r
}

// appendAssignment writes a ClusterLoadAssignment: cluster_name = 1, endpoints = 2.
func appendAssignment(b []byte, a Assignment) []byte {
	b = appendText(b, 1, a.Name)
	for i := range a.Localities {
		b = appendHead(b, 2, localitySize(&a.Localities[i]))
		b = appendLocality(b, &a.Localities[i])
	}
	return b
}

func assignmentSize(a Assignment) int {
	n := textSize(a.Name)
	for i := range a.Localities {
		n += messageSize(localitySize(&a.Localities[i]))
	}
	return n
}

// appendLocality writes a LocalityLbEndpoints: locality = 1 (always there: clients refuse its absence),
// lb_endpoints = 2, load_balancing_weight = 3 (always there: gRPC ignores a locality without), priority = 5.
func appendLocality(b []byte, l *Locality) []byte {
	b = appendHead(b, 1, textSize(l.Region)+textSize(l.Zone))
	b = appendText(b, 1, l.Region)
	b = appendText(b, 2, l.Zone)
	for i := range l.Endpoints {
		t := &l.Endpoints[i]
		size := endpointSize(t)
		b = appendHead(b, 2, messageSize(size)+2)
		b = appendTarget(b, t, size)
	}
	weight := uint64(l.Weight())
	b = appendHead(b, 3, 1+protowire.SizeVarint(weight))
	b = protowire.AppendVarint(append(b, 1<<3), weight)
	if l.Priority > 0 {
		b = protowire.AppendVarint(append(b, 5<<3), uint64(l.Priority))
	}
	return b
}

func localitySize(l *Locality) int {
	n := messageSize(textSize(l.Region) + textSize(l.Zone))
	for i := range l.Endpoints {
		n += messageSize(targetSize(&l.Endpoints[i]))
	}
	n += messageSize(1 + protowire.SizeVarint(uint64(l.Weight())))
	if l.Priority > 0 {
		n += 1 + protowire.SizeVarint(uint64(l.Priority))
	}
	return n
}

// appendTarget writes an LbEndpoint: endpoint = 1 {address = 1, additional_addresses = 4 {address = 1}},
// health_status = 2. Its weight is left at 1. size is that of the endpoint.
func appendTarget(b []byte, t *Target, size int) []byte {
	b = appendHead(b, 1, size)
	b = appendAddress(b, t.Addr)
	for _, m := range t.More {
		b = appendHead(b, 4, messageSize(addressSize(m)))
		b = appendAddress(b, m)
	}
	if t.Draining {
		return append(b, 2<<3, healthDraining)
	}
	return append(b, 2<<3, healthHealthy)
}

func endpointSize(t *Target) int {
	n := messageSize(addressSize(t.Addr))
	for _, m := range t.More {
		n += messageSize(messageSize(addressSize(m)))
	}
	return n
}

func targetSize(t *Target) int { return messageSize(endpointSize(t)) + 2 }

// appendAddress writes, as field 1, an Address: socket_address = 1 {address = 2, port_value = 3}.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	text := addrLen(a.Addr())
	socket := socketSize(text, a.Port())
	b = appendHead(b, 1, messageSize(socket))
	b = appendHead(b, 1, socket)
	b = append(b, 2<<3|2, byte(text))
	b = a.Addr().AppendTo(b)
	return protowire.AppendVarint(append(b, 3<<3), uint64(a.Port()))
}

// addressSize is the size of an Address, socketSize that of the SocketAddress in it.
func addressSize(a netip.AddrPort) int { return messageSize(socketSize(addrLen(a.Addr()), a.Port())) }

func socketSize(text int, port uint16) int { return 2 + text + 1 + protowire.SizeVarint(uint64(port)) }

// addrLen is the length of the text of an address.
func addrLen(a netip.Addr) int {
	if a.Is4() {
		n := 3
		for _, o := range a.As4() {
			switch {
			case o >= 100:
				n += 3
			case o >= 10:
				n += 2
			default:
				n++
			}
		}
		return n
	}
	var text [64]byte
	return len(a.AppendTo(text[:0]))
}

// appendHead writes the tag and length of a length-delimited field.
func appendHead(b []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return append(appendHead(b, field, len(text)), text...)
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return append(appendHead(b, field, len(value)), value...)
}

// textSize and messageSize are what a text, or a message of that size, takes as a field with a number below 16.
func textSize(text string) int {
	if text == "" {
		return 0
	}
	return messageSize(len(text))
}

func messageSize(size int) int { return 1 + protowire.SizeBytes(size) }
