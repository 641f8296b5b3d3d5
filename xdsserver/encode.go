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
	typeListener   = "type.googleapis.com/envoy.config.listener.v3.Listener"
	typeRoute      = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
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
	var room [sizesRoom]int
	sizes, total := sizesOf(&a, room[:0])
	body := appendText(make([]byte, 0, textSize(typeAssignment)+messageSize(total)), 1, typeAssignment)
	body = appendHead(body, 2, total)
	from := len(body)
	body = appendAssignment(body, &a, sizes)
	r := newResource(a.Name, contentVersion(body[from:]), body)
	r.fallback = a.Fallback
	r.empty = len(a.Localities) == 0
	held := 0
	for i := range a.Localities {
		for j := range a.Localities[i].Endpoints {
			held += 1 + len(a.Localities[i].Endpoints[j].More)
		}
	}
	r.addrs = make([]heldAddr, 0, held)
	for i := range a.Localities {
		for j := range a.Localities[i].Endpoints {
			t := &a.Localities[i].Endpoints[j]
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

// newResource wraps an encoded Any. Both responses have their resources in field 2: that of SotW is the Any alone, that of
// delta a Resource{version = 1, resource = 2, name = 3}, written with the name before the Any.
func newResource(name, version string, body []byte) *resource {
	r := &resource{version: version, body: body}
	r.sotw = appendHead(nil, 2, len(r.body))
	inner := appendText(appendText(nil, 1, version), 3, name)
	inner = appendHead(inner, 2, len(r.body))
	r.delta = appendHead(make([]byte, 0, len(inner)+8), 2, len(inner)+len(r.body))
	r.delta = append(r.delta, inner...)
	return r
}

// sizesRoom is how many localities an assignment has at most, mostly.
const sizesRoom = 16

// sizesOf appends the size of each locality to sizes, and gives that of the whole message.
func sizesOf(a *Assignment, sizes []int) (_ []int, total int) {
	total = textSize(a.Name)
	for i := range a.Localities {
		size := localitySize(&a.Localities[i])
		sizes, total = append(sizes, size), total+messageSize(size)
	}
	return sizes, total
}

// appendAssignment writes a ClusterLoadAssignment: cluster_name = 1, endpoints = 2. sizes are those of the localities.
func appendAssignment(b []byte, a *Assignment, sizes []int) []byte {
	b = appendText(b, 1, a.Name)
	for i := range a.Localities {
		b = appendHead(b, 2, sizes[i])
		b = appendLocality(b, &a.Localities[i])
	}
	return b
}

// appendLocality writes a LocalityLbEndpoints: locality = 1 (always there: clients refuse its absence),
// lb_endpoints = 2, load_balancing_weight = 3 (always there: gRPC ignores a locality without), priority = 5.
func appendLocality(b []byte, l *Locality) []byte {
	b = appendHead(b, 1, textSize(l.Region)+textSize(l.Zone))
	b = appendText(b, 1, l.Region)
	b = appendText(b, 2, l.Zone)
	for i := range l.Endpoints {
		b = appendTarget(b, &l.Endpoints[i])
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

// appendTarget writes, as field 2, an LbEndpoint: endpoint = 1 {address = 1, additional_addresses = 4 {address = 1}},
// health_status = 2. Its weight is left at 1.
func appendTarget(b []byte, t *Target) []byte {
	if len(t.More) == 0 {
		// No part is longer than 127, so each length is one byte, and can be filled in afterwards.
		start := len(b)
		b = append(b, 2<<3|2, 0, 1<<3|2, 0)
		b = appendAddress(b, t.Addr)
		b[start+3] = byte(len(b) - start - 4)
		b = append(b, 2<<3, t.health())
		b[start+1] = byte(len(b) - start - 2)
		return b
	}
	size := endpointSize(t)
	b = appendHead(b, 2, messageSize(size)+2)
	b = appendHead(b, 1, size)
	b = appendAddress(b, t.Addr)
	for _, m := range t.More {
		b = appendHead(b, 4, messageSize(addressSize(m)))
		b = appendAddress(b, m)
	}
	return append(b, 2<<3, t.health())
}

func (t *Target) health() byte {
	if t.Draining {
		return healthDraining
	}
	return healthHealthy
}

func endpointSize(t *Target) int {
	n := messageSize(addressSize(t.Addr))
	for _, m := range t.More {
		n += messageSize(messageSize(addressSize(m)))
	}
	return n
}

func targetSize(t *Target) int { return messageSize(endpointSize(t)) + 2 }

// appendAddress writes, as field 1, an Address: socket_address = 1 {address = 2, port_value = 3}. No length in it is more
// than one byte.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	start := len(b)
	b = append(b, 1<<3|2, 0, 1<<3|2, 0, 2<<3|2, 0)
	b = a.Addr().AppendTo(b)
	b[start+5] = byte(len(b) - start - 6)
	b = protowire.AppendVarint(append(b, 3<<3), uint64(a.Port()))
	b[start+3] = byte(len(b) - start - 4)
	b[start+1] = byte(len(b) - start - 2)
	return b
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

func messageSize(size int) int {
	if size < 1<<7 { // as most are
		return 2 + size
	}
	return 1 + protowire.SizeBytes(size)
}
