package endpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxEndpoints is the largest number of endpoints of one slice, the limit of the Kubernetes API.
const MaxEndpoints = 1000

// ContentVersion is the version of the canonical form that Slice.Content writes. A change of the form is a change
// of every hash on the bus, so it takes a new number.
const ContentVersion = 1

// Slice is one EndpointSlice reduced to what matters.
//
// Invariants:
//
//	S1: Key is valid; Name is a DNS subdomain.
//	S2: Version.Generation and Version.Resource are not 0.
//	S3: Ports are valid, sorted by name, names unique.
//	S4: Endpoints are valid, sorted by Compare, no two of equal Compare; at most MaxEndpoints; one address family.
//
// A Slice that has been handed on is never changed again: its Ports and Endpoints are shared.
type Slice struct {
	Key               Key
	Name              string
	UID               string // metadata.uid; has no order
	Version           Version
	Ports             []Port
	Endpoints         []Endpoint
	TerminatingPolicy string    // value of the label slicecast.io/terminating, "" when unset
	FailoverPolicy    string    // value of the label slicecast.io/failover, "" when unset
	Translator        uint32    // version of the watcher's translation that made this content; not content itself
	Observed          time.Time // when the watcher received it; for people and latency only, not content
	Triggered         time.Time // Kubernetes' own trigger time, zero when unknown; not content
}

// Hash is the content hash of a slice: the first 16 bytes of SHA-256 over Content.
type Hash [16]byte

// Valid returns an error that names the first invariant that s breaks.
func (s Slice) Valid() error {
	if err := s.Key.Valid(); err != nil {
		return err
	}
	if !IsSubdomain(s.Name) {
		return fmt.Errorf("slice name %q is not a DNS subdomain", clip(s.Name))
	}
	if s.Version.Generation == 0 || s.Version.Resource == 0 {
		return fmt.Errorf("slice %s has no version (%s)", s.Name, s.Version)
	}
	if err := s.validPorts(); err != nil {
		return fmt.Errorf("slice %s: %w", s.Name, err)
	}
	if err := s.validEndpoints(); err != nil {
		return fmt.Errorf("slice %s: %w", s.Name, err)
	}
	return nil
}

func (s Slice) validPorts() error {
	for i, p := range s.Ports {
		if err := p.Valid(); err != nil {
			return err
		}
		if i > 0 && s.Ports[i-1].Name >= p.Name {
			return fmt.Errorf("port %q is out of order or twice", p.Name)
		}
	}
	return nil
}

func (s Slice) validEndpoints() error {
	if len(s.Endpoints) > MaxEndpoints {
		return fmt.Errorf("%d endpoints are more than %d", len(s.Endpoints), MaxEndpoints)
	}
	for i, e := range s.Endpoints {
		if err := e.Valid(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if before := s.Endpoints[i-1]; before.Compare(e) >= 0 {
			return fmt.Errorf("endpoint %s is out of order or twice", e.Addr)
		} else if before.Addr.Is4() != e.Addr.Is4() {
			return errFamilies
		}
	}
	return nil
}

// Canonical sorts Ports and Endpoints into the order that S3 and S4 ask for, on copies, so that s can come from
// anywhere. Duplicates stay; Valid reports them.
func (s Slice) Canonical() Slice {
	s.Ports = slices.SortedFunc(slices.Values(s.Ports), func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	s.Endpoints = slices.SortedStableFunc(slices.Values(s.Endpoints), Endpoint.Compare)
	return s
}

// Content is the canonical form of what the slice says: uid, policies, ports and endpoints; neither its place
// (Key, Name) nor its Version, Translator or times. Every part is written with its length, so the form is injective.
func (s Slice) Content() []byte {
	b := s.appendHead(make([]byte, 0, 64+24*len(s.Ports)+128*len(s.Endpoints)))
	for i := range s.Endpoints {
		b = s.Endpoints[i].appendTo(b)
	}
	return b
}

// Hash is the hash of Content, which it does not keep.
func (s Slice) Hash() Hash {
	const chunk = 2048
	sum := sha256.New()
	b := s.appendHead(make([]byte, 0, 2*chunk))
	for i := range s.Endpoints {
		if b = s.Endpoints[i].appendTo(b); len(b) >= chunk {
			sum.Write(b)
			b = b[:0]
		}
	}
	sum.Write(b)
	return Hash(sum.Sum(b[:0])[:16])
}

// appendHead writes the canonical form up to the number of endpoints.
func (s *Slice) appendHead(b []byte) []byte {
	b = append(b, ContentVersion)
	b = appendTexts(b, s.UID, s.TerminatingPolicy, s.FailoverPolicy)
	b = binary.AppendUvarint(b, uint64(len(s.Ports)))
	for _, p := range s.Ports {
		b = binary.BigEndian.AppendUint16(b, p.Number)
		b = appendTexts(b, p.Name, p.AppProtocol)
	}
	return binary.AppendUvarint(b, uint64(len(s.Endpoints)))
}

// appendTo writes the canonical form of an endpoint.
func (e *Endpoint) appendTo(b []byte) []byte {
	addr := e.Addr.AsSlice()
	b = append(b, byte(e.Conditions), byte(len(addr)))
	b = append(b, addr...)
	return appendTexts(b, e.Zone, e.Node, e.ZoneHints, e.NodeHints, e.TargetKind, e.TargetName, e.TargetUID, e.Hostname)
}

// Ref names one slice of a Key at a version: a peer of an event, or a tombstone of a State.
type Ref struct {
	Name       string
	Version    Version
	Translator uint32    // of the writer of a tombstone; 0 in peers
	Observed   time.Time // of a tombstone: when the watcher saw the deletion; zero in peers
}

func appendTexts(b []byte, texts ...string) []byte {
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	return b
}

// validRefs checks that refs are named, versioned, sorted and unique.
func validRefs(refs []Ref) error {
	for i, r := range refs {
		if !IsSubdomain(r.Name) {
			return fmt.Errorf("slice name %q is not a DNS subdomain", clip(r.Name))
		}
		if r.Version.IsZero() {
			return errors.New("slice " + r.Name + " is named without a version")
		}
		if i > 0 && cmp.Compare(refs[i-1].Name, r.Name) >= 0 {
			return fmt.Errorf("slice %s is out of order or twice", r.Name)
		}
	}
	return nil
}
