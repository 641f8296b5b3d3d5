package endpoint

import (
	"fmt"
	"net/netip"
)

// Event says what one slice is now (its whole content), or that it is gone. It is never a difference to apply.
//
// Invariants:
//
//	V1: Slice is valid; when Gone it has neither ports nor endpoints nor policies.
//	V2: Previous, when not zero, is before Slice.Version.
//	V3: Peers are sorted by name, unique, versioned, and do not name the slice itself.
type Event struct {
	Slice       Slice
	Gone        bool
	Previous    Version      // what the bus had before this event; zero when it had nothing. Shows a gap to readers of history
	Peers       []Ref        // every other live slice of the same Key in the writer's cache when it wrote
	Transitions []Transition // for people and tools, never for the fold
}

// Transition is a change of the conditions of one address between Previous and this event.
type Transition struct {
	Addr   netip.Addr
	Before Conditions // Absent when the address is new
	After  Conditions // Absent when the address has left
}

// Valid returns an error that names the first invariant that e breaks.
func (e Event) Valid() error {
	if err := e.Slice.Valid(); err != nil {
		return err
	}
	if s := e.Slice; e.Gone && (len(s.Ports) > 0 || len(s.Endpoints) > 0 || s.TerminatingPolicy != "" || s.FailoverPolicy != "") {
		return fmt.Errorf("slice %s is gone and has content", s.Name)
	}
	if !e.Previous.IsZero() && !e.Slice.Version.After(e.Previous) {
		return fmt.Errorf("slice %s at %s says that %s was before it", e.Slice.Name, e.Slice.Version, e.Previous)
	}
	if err := validRefs(e.Peers); err != nil {
		return fmt.Errorf("peers of slice %s: %w", e.Slice.Name, err)
	}
	for _, p := range e.Peers {
		if p.Name == e.Slice.Name {
			return fmt.Errorf("slice %s is its own peer", p.Name)
		}
	}
	return nil
}
