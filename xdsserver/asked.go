package xdsserver

import (
	"fmt"
	"hash/maphash"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// namesField is resource_names of a DiscoveryRequest.
const namesField = 3

// nameTag is the tag of a name on the wire.
const nameTag = namesField<<3 | byte(protowire.BytesType)

// digest stands for the names of a SotW request: a client repeats them all with each acknowledgement, 400 kB for 10,000
// names. The hash has a seed of this process, so nobody can make two lists that share it.
type digest struct {
	length int
	hash   uint64
}

var digestSeed = maphash.MakeSeed()

// digestOf gives the digest of names as they are on the wire.
func digestOf(region []byte) digest {
	return digest{len(region), maphash.Bytes(digestSeed, region)}
}

// digestOfNames gives the digest of names.
func digestOfNames(names []string) digest {
	var region []byte
	for _, name := range names {
		region = protowire.AppendString(protowire.AppendTag(region, namesField, protowire.BytesType), name)
	}
	return digestOf(region)
}

// sotwMessage is a received SotW request. Names that are those of the last request of the type are not decoded.
type sotwMessage struct {
	last    map[string]digest // of the last request of each type on this stream
	request discoveryv3.DiscoveryRequest
	names   digest
}

// read decodes a request.
func (m *sotwMessage) read(data mem.BufferSlice) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	b := buf.ReadOnlyData()
	from, to, whole := namesRegion(b)
	if !whole {
		if err := proto.Unmarshal(b, &m.request); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		m.names = digestOfNames(m.request.GetResourceNames())
		return nil
	}
	if err := proto.Unmarshal(slices.Concat(b[:from], b[to:]), &m.request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	m.names = digestOf(b[from:to])
	if last, asked := m.last[m.request.GetTypeUrl()]; asked && last == m.names {
		return nil
	}
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(b[from:to], &m.request); err != nil {
		return fmt.Errorf("names of a request: %w", err)
	}
	return nil
}

// note remembers what was asked for last. A client that makes up types makes the map no larger.
func (m *sotwMessage) note(k kind) { m.last[k.typeURL()] = m.names }

// namesRegion tells where the names of an encoded request are; whole says that they are all there, one after another.
func namesRegion(b []byte) (from, to int, whole bool) {
	for at := 0; at < len(b); {
		if at == to && to > from { // The next name, as most are: short.
			for at+1 < len(b) && b[at] == nameTag && b[at+1] < 0x80 && at+2+int(b[at+1]) <= len(b) {
				at += 2 + int(b[at+1])
			}
			if to = at; at == len(b) {
				break
			}
		}
		field, kind, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return 0, 0, false
		}
		size := protowire.ConsumeFieldValue(field, kind, b[at+n:])
		if size < 0 {
			return 0, 0, false
		}
		next := at + n + size
		switch {
		case field != namesField:
		case kind != protowire.BytesType || to > from && at != to:
			return 0, 0, false
		case to == from:
			from, to = at, next
		default:
			to = next
		}
		at = next
	}
	return from, to, true
}

// wanted lists what a SotW client asked for last.
func (h *Hub) wanted(st *stream, k kind) (names []string) {
	t := &st.types[k]
	if t.wildcard && !t.legacy {
		names = append(names, allNames)
	}
	for name, s := range t.subs {
		if s.named {
			names = append(names, name)
		}
	}
	names = append(names, h.settledNames(st, k)...)
	slices.Sort(names)
	return names
}
