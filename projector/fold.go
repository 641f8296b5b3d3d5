// Pure: values in, values out.

package projector

import (
	"maps"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Fold gives the State of key that events tell together, for a view that is complete as of floor (zero for none). Per
// slice the newest event speaks; tombstones up to the floor are left out. Neither the order of events nor how often
// one is repeated matters, and Fold(a and b) is the Join of Fold(a) and Fold(b). Events of other keys are not
// looked at. The result shares ports and endpoints with the events.
func Fold(key endpoint.Key, floor endpoint.Version, events ...endpoint.Event) endpoint.State {
	newest := make(map[string]endpoint.State, len(events))
	for i := range events {
		if e := &events[i]; e.Slice.Key == key {
			before, known := newest[e.Slice.Name]
			if !known {
				before.Key = key
			}
			newest[e.Slice.Name] = before.Join(told(e))
		}
	}
	out := endpoint.State{Key: key, Floor: floor}
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		one := newest[name]
		out.Slices = append(out.Slices, one.Slices...)
		for _, g := range one.Gone {
			if g.Version.After(floor) {
				out.Gone = append(out.Gone, g)
			}
		}
	}
	return out
}

// told is what one event says, as the State of a Key of one slice and without a floor.
func told(e *endpoint.Event) endpoint.State {
	s := &e.Slice
	if e.Gone {
		gone := endpoint.Ref{Name: s.Name, Version: s.Version, Translator: s.Translator, Observed: s.Observed}
		return endpoint.State{Key: s.Key, Gone: []endpoint.Ref{gone}}
	}
	return endpoint.State{Key: s.Key, Slices: []endpoint.Slice{*s}}
}
