// Pure: slices from protobuf.

package bus

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slicecast/slicecast/internal/endpoint"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// Endpoints are nearly all of a message, so they are read straight into values; everything else is left to the
// generated types. A test compares both ways.

// maxSlices is how many slices a State may have: far above what fits a message, and little when a body grows in memory.
const maxSlices = 10_000

// repeated is a field that is taken out of a message, and how many of it there may be.
type repeated struct {
	field protowire.Number
	most  int
	name  string
}

var (
	slicesIn    = repeated{4, maxSlices, "slices"} // of State, and the one of Event
	endpointsIn = repeated{5, endpoint.MaxEndpoints, "endpoints"}
)

// cuts are buffers of split that may be used again.
type cuts struct {
	rest  []byte
	parts [][]byte
}

// split takes the messages of a field out of body: rest is everything else, in its order, parts are they. Both hold until
// the next use of scratch, which may be nil.
func split(body []byte, of repeated, scratch *cuts) (rest []byte, parts [][]byte, err error) {
	if scratch == nil {
		scratch = &cuts{}
	}
	rest, parts = scratch.rest[:0], scratch.parts[:0]
	for len(body) > 0 {
		num, typ, value, n := consume(body)
		if n < 0 {
			return nil, nil, refuse(badBody, fmt.Errorf("fields: %w", protowire.ParseError(n)))
		}
		if num == of.field && typ == protowire.BytesType {
			if parts = append(parts, value); len(parts) > of.most {
				return nil, nil, refuse(badContent, fmt.Errorf("more than %d %s", of.most, of.name))
			}
		} else {
			rest = append(rest, body[:n]...)
		}
		body = body[n:]
	}
	scratch.rest, scratch.parts = rest, parts
	return rest, parts, nil
}

// merged gives the parts of a message that comes in parts, as if they were written one after the other. Each has to be
// well-formed by itself.
func merged(parts [][]byte) ([]byte, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	for _, part := range parts {
		for len(part) > 0 {
			_, _, _, n := consume(part)
			if n < 0 {
				return nil, refuse(badBody, fmt.Errorf("fields of a part: %w", protowire.ParseError(n)))
			}
			part = part[n:]
		}
	}
	return bytes.Join(parts, nil), nil
}

// consume reads one field: value is what follows its tag, without the length of bytes. n is its whole length, below 0
// when it is not well-formed.
func consume(b []byte) (num protowire.Number, typ protowire.Type, value []byte, n int) {
	num, typ, tag := protowire.ConsumeTag(b)
	switch {
	case tag < 0:
		return 0, 0, nil, tag
	case num > protowire.MaxValidNumber:
		return 0, 0, nil, -1
	case typ == protowire.BytesType:
		value, n = protowire.ConsumeBytes(b[tag:])
	default:
		if n = protowire.ConsumeFieldValue(num, typ, b[tag:]); n >= 0 {
			value = b[tag : tag+n]
		}
	}
	if n < 0 {
		return 0, 0, nil, n
	}
	return num, typ, value, tag + n
}

// sliceReader reads slices, one after the other. Texts that repeat from endpoint to endpoint are kept once.
type sliceReader struct {
	scratch cuts
	texts   map[string]string
	own     strings.Builder // the texts that do not repeat, of one slice
}

// read reads a slice.
func (r *sliceReader) read(key endpoint.Key, body []byte) (endpoint.Slice, error) {
	var m slicecastv1.Slice
	rest, parts, err := split(body, endpointsIn, &r.scratch)
	if err == nil {
		err = unmarshal(rest, &m)
	}
	if err != nil {
		return endpoint.Slice{}, fmt.Errorf("slice: %w", err)
	}
	s := endpoint.Slice{
		Key:               key,
		Name:              m.GetName(),
		UID:               m.GetUid(),
		Version:           versionValue(m.GetVersion()),
		TerminatingPolicy: m.GetTerminatingPolicy(),
		FailoverPolicy:    m.GetFailoverPolicy(),
		Translator:        m.GetTranslator(),
	}
	if s.Observed, err = timeValue(m.GetObservedAt()); err != nil {
		return s, fmt.Errorf("slice %s: observed_at: %w", clip(s.Name), err)
	}
	if s.Triggered, err = timeValue(m.GetTriggeredAt()); err != nil {
		return s, fmt.Errorf("slice %s: triggered_at: %w", clip(s.Name), err)
	}
	for _, p := range m.GetPorts() {
		if p.GetNumber() > 65535 {
			return s, fmt.Errorf("slice %s: port number %d", clip(s.Name), p.GetNumber())
		}
		s.Ports = append(s.Ports, endpoint.Port{Name: p.GetName(), Number: uint16(p.GetNumber()), AppProtocol: p.GetAppProtocol()})
	}
	if err := r.endpoints(&s, parts); err != nil {
		return s, fmt.Errorf("slice %s: %w", clip(s.Name), err)
	}
	return s, nil
}

// endpoints reads the endpoints of s.
func (r *sliceReader) endpoints(s *endpoint.Slice, parts [][]byte) error {
	if len(parts) == 0 {
		return nil
	}
	if r.texts == nil {
		r.texts = make(map[string]string)
	}
	own := 0
	for _, part := range parts {
		own += ownTexts(part)
	}
	r.own = strings.Builder{}
	r.own.Grow(own)
	s.Endpoints = make([]endpoint.Endpoint, len(parts))
	for i, part := range parts {
		if err := r.endpoint(&s.Endpoints[i], part); err != nil {
			return err
		}
	}
	return nil
}

// ownTexts is the length of the texts of an endpoint that do not repeat.
func ownTexts(body []byte) (sum int) {
	for len(body) > 0 {
		num, _, value, n := consume(body)
		if n < 0 {
			return sum // The reader will say so.
		}
		if num >= 10 && num <= 12 {
			sum += len(value)
		}
		body = body[n:]
	}
	return sum
}

// endpoint reads one endpoint.
func (r *sliceReader) endpoint(e *endpoint.Endpoint, body []byte) error {
	var address []byte
	for len(body) > 0 {
		num, typ, value, n := consume(body)
		if n < 0 {
			return refuse(badBody, fmt.Errorf("fields of an endpoint: %w", protowire.ParseError(n)))
		}
		body = body[n:]
		switch {
		case typ == protowire.BytesType && num == 1:
			address = value
		case typ == protowire.BytesType && num >= 5 && num <= 12:
			if !utf8.Valid(value) {
				return refuse(badBody, fmt.Errorf("%q is not UTF-8", clip(string(value))))
			}
			if err := r.text(e, num, value); err != nil {
				return err
			}
		case typ == protowire.VarintType && num >= 2 && num <= 4:
			v, _ := protowire.ConsumeVarint(value)
			bit := [...]endpoint.Conditions{endpoint.Ready, endpoint.Serving, endpoint.Terminating}[num-2]
			if e.Conditions &^= bit; v != 0 {
				e.Conditions |= bit
			}
		}
	}
	addr, ok := netip.AddrFromSlice(address)
	if !ok {
		return fmt.Errorf("an address of %d bytes", len(address))
	}
	e.Addr = addr
	return nil
}

// text reads one text of an endpoint.
func (r *sliceReader) text(e *endpoint.Endpoint, num protowire.Number, value []byte) (err error) {
	switch num {
	case 5:
		e.Zone = r.shared(value)
	case 6:
		e.Node = r.shared(value)
	case 7:
		e.ZoneHints, err = r.listed(e.ZoneHints, value)
	case 8:
		e.NodeHints, err = r.listed(e.NodeHints, value)
	case 9:
		e.TargetKind = r.shared(value)
	case 10:
		e.TargetName = r.single(value)
	case 11:
		e.TargetUID = r.single(value)
	case 12:
		e.Hostname = r.single(value)
	}
	return err
}

// shared gives a text that other endpoints have too.
func (r *sliceReader) shared(value []byte) string {
	text, known := r.texts[string(value)]
	if !known {
		text = unique.Make(string(value)).Value()
		r.texts[text] = text
	}
	return text
}

// single gives a text that one endpoint has. Those of a slice lie side by side.
func (r *sliceReader) single(value []byte) string {
	begin := r.own.Len()
	_, _ = r.own.Write(value) // gives no error
	return r.own.String()[begin:]
}

// listed joins one more hint to a list. An empty one, or one with a comma in it, would read back as another list.
func (r *sliceReader) listed(list string, hint []byte) (string, error) {
	if len(hint) == 0 || bytes.IndexByte(hint, ',') >= 0 {
		return "", fmt.Errorf("hint %q is empty or holds a comma", clip(string(hint)))
	}
	if list == "" {
		return r.shared(hint), nil
	}
	return list + "," + string(hint), nil
}
