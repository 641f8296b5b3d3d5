// Pure: what a translation left out, by reason.

package watcher

import (
	"fmt"
	"iter"
)

// Reason says why something of an EndpointSlice was left out. It is a label value of a metric, so the list is closed.
type Reason uint8

// The reasons. The first group is legal and only outside of what slicecast publishes; the second (Refused...) is
// wrong in itself.
const (
	SkippedFQDN      Reason = iota // the whole slice: addressType FQDN has no defined meaning (rule R6)
	SkippedNoService               // the whole slice: neither service-name label
	SkippedAddresses               // an address after the first, which has no meaning (rule R6)
	SkippedPort                    // a port without number, or number 0 (rule R7)
	SkippedProtocol                // a port of another protocol than TCP
	SkippedDuplicate               // an endpoint of the same address and target as a better one
	RefusedName                    // the whole slice: a name that is no part of a subject
	RefusedVersion                 // the whole slice: a resourceVersion that is not a positive integer
	RefusedType                    // the whole slice: an unknown addressType
	RefusedSize                    // the whole slice: more endpoints than the Kubernetes API allows
	RefusedPort                    // a port with an illegal name or number
	RefusedPortTwice               // a port whose name an earlier port of the slice has
	RefusedAddress                 // an endpoint whose first address is missing or not of the slice's family
	RefusedHint                    // a hint with an empty name or a comma
	reasons
)

var reasonTexts = [reasons]string{
	"fqdn", "no_service", "more_addresses", "no_port", "protocol", "duplicate_endpoint",
	"bad_name", "bad_version", "bad_address_type", "too_many_endpoints", "bad_port", "duplicate_port", "bad_address", "bad_hint",
}

// String gives the label value.
func (r Reason) String() string {
	if r < reasons {
		return reasonTexts[r]
	}
	return "unknown"
}

// Refusal reports whether r says that something was wrong, not only out of scope.
func (r Reason) Refusal() bool { return r >= RefusedName }

// Skips counts what one translation left out. The zero value is "nothing".
type Skips struct {
	// Refused is the first refusal in words, bounded in length; empty when everything was right.
	Refused string

	counts [reasons]int
}

// Count gives how often something was left out for r.
func (s *Skips) Count(r Reason) int { return s.counts[r] }

// All gives the reasons that occurred, with their counts.
func (s *Skips) All() iter.Seq2[Reason, int] {
	return func(yield func(Reason, int) bool) {
		for r, n := range s.counts {
			if n > 0 && !yield(Reason(r), n) {
				return
			}
		}
	}
}

// Merge adds what o counted.
func (s *Skips) Merge(o Skips) {
	for r, n := range o.counts {
		s.counts[r] += n
	}
	if s.Refused == "" {
		s.Refused = o.Refused
	}
}

// add counts n times r.
func (s *Skips) add(r Reason, n int) { s.counts[r] += n }

// refuse counts r and keeps the first refusal in words.
func (s *Skips) refuse(r Reason, format string, args ...any) error {
	s.counts[r]++
	err := fmt.Errorf(format, args...)
	if s.Refused == "" {
		s.Refused = err.Error()
	}
	return err
}
