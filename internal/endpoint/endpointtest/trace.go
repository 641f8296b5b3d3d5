package endpointtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Trace is a parsed trace.
type Trace struct{ Stages []Stage }

// Stage is what was said, and what came of all that was said up to there.
type Stage struct {
	Comment  []string // lines before the steps, without '#'
	Steps    []Step
	Expected []Section
}

// Step is one line of what was said: exactly one of Event, Open and Checkpoint is set.
type Step struct {
	Event      *endpoint.Event
	Open       string           // cluster whose session begins anew
	Checkpoint string           // cluster whose view is complete
	Complete   endpoint.Version // as of this version, with Checkpoint
}

// Section is one expectation: a head line, whose first word says what it is, and the lines of its body without
// their indentation.
type Section struct {
	Head string
	Body []string
}

// Kind is the first word of the head.
func (s Section) Kind() string {
	kind, _, _ := strings.Cut(s.Head, " ")
	return kind
}

// String gives the trace as a text that Parse reads.
func (t Trace) String() string {
	var b strings.Builder
	for i, st := range t.Stages {
		if i > 0 {
			b.WriteString("----\n")
		}
		for _, c := range st.Comment {
			b.WriteString(strings.TrimRight("# "+c, " ") + "\n")
		}
		for _, s := range st.Steps {
			b.WriteString(s.String() + "\n")
		}
		b.WriteString("----\n")
		for _, s := range st.Expected {
			b.WriteString(s.Head + "\n")
			for _, line := range s.Body {
				b.WriteString("  " + line + "\n")
			}
		}
	}
	return b.String()
}

// String gives the line of a step.
func (s Step) String() string {
	switch {
	case s.Event != nil && s.Event.Gone:
		return "gone " + s.Event.Slice.Key.String() + " " + formatSlice(s.Event.Slice, *s.Event)
	case s.Event != nil:
		return "set " + s.Event.Slice.Key.String() + " " + formatSlice(s.Event.Slice, *s.Event)
	case s.Open != "":
		return "open " + s.Open
	default:
		return "checkpoint " + s.Checkpoint + " rv=" + version(s.Complete)
	}
}

// Parse reads a trace. The error names the line.
func Parse(text string) (Trace, error) {
	var t Trace
	told := false // the lines are expectations
	t.Stages = append(t.Stages, Stage{})
	for i, line := range strings.Split(text, "\n") {
		st := &t.Stages[len(t.Stages)-1]
		line = strings.TrimRight(line, " \t\r")
		var err error
		switch {
		case line == "":
		case line == "----" && told:
			t.Stages, told = append(t.Stages, Stage{}), false
		case line == "----":
			told = true
		case told:
			err = st.expect(line)
		case strings.HasPrefix(line, "#"):
			if len(st.Steps) > 0 {
				err = fmt.Errorf("a comment after the first step of its stage")
			}
			st.Comment = append(st.Comment, strings.TrimSpace(line[1:]))
		default:
			var s Step
			s, err = ParseStep(line)
			st.Steps = append(st.Steps, s)
		}
		if err != nil {
			return Trace{}, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return t, nil
}

// expect reads a line after "----".
func (st *Stage) expect(line string) error {
	if !strings.HasPrefix(line, " ") {
		st.Expected = append(st.Expected, Section{Head: line})
		return nil
	}
	if len(st.Expected) == 0 {
		return fmt.Errorf("an indented line without a head")
	}
	last := &st.Expected[len(st.Expected)-1]
	last.Body = append(last.Body, strings.TrimSpace(line))
	return nil
}

// ParseStep reads one line of what was said, as Step.String wrote it.
func ParseStep(line string) (Step, error) {
	words := strings.Fields(line)
	switch {
	case len(words) > 2 && (words[0] == "set" || words[0] == "gone"):
		key, err := endpoint.ParseKey(words[1])
		if err != nil {
			return Step{}, err
		}
		e, err := parseEvent(key, words[2:], words[0] == "gone")
		if err != nil {
			return Step{}, err
		}
		return Step{Event: &e}, nil
	case len(words) == 2 && words[0] == "open" && endpoint.IsLabel(words[1]):
		return Step{Open: words[1]}, nil
	case len(words) == 3 && words[0] == "checkpoint" && endpoint.IsLabel(words[1]):
		v, err := parseVersion(strings.TrimPrefix(words[2], "rv="))
		return Step{Checkpoint: words[1], Complete: v}, err
	}
	return Step{}, fmt.Errorf("%q is not a step", line)
}

// States folds steps by the words of the protocol, as slowly and plainly as can be: memory is joined with each
// event, and with the whole view at a checkpoint. It gives the State of every Key that was named, by key; peers
// are not looked at.
func States(steps []Step) []endpoint.State {
	memory, view := map[endpoint.Key]endpoint.State{}, map[endpoint.Key]endpoint.State{}
	floors := map[string]endpoint.Version{}
	for _, s := range steps {
		switch {
		case s.Event != nil:
			key := s.Event.Slice.Key
			said := one(*s.Event)
			before := memory[key]
			before.Key, before.Floor = key, floors[key.Cluster]
			memory[key] = before.Join(said)
			seen := view[key]
			seen.Key = key
			view[key] = replace(seen, said)
		case s.Open != "":
			for key := range view {
				if key.Cluster == s.Open {
					delete(view, key)
				}
			}
		default:
			for key, before := range memory {
				if key.Cluster != s.Checkpoint {
					continue
				}
				seen := view[key]
				seen.Key, seen.Floor = key, s.Complete
				before.Floor = floors[s.Checkpoint]
				memory[key] = before.Join(seen)
			}
			if s.Complete.After(floors[s.Checkpoint]) {
				floors[s.Checkpoint] = s.Complete
			}
		}
	}
	states := make([]endpoint.State, 0, len(memory))
	for _, st := range memory {
		states = append(states, st)
	}
	slices.SortFunc(states, func(a, b endpoint.State) int { return a.Key.Compare(b.Key) })
	return states
}

// one is the State of one event alone.
func one(e endpoint.Event) endpoint.State {
	s := e.Slice
	if e.Gone {
		gone := endpoint.Ref{Name: s.Name, Version: s.Version, Translator: s.Translator, Observed: s.Observed}
		return endpoint.State{Key: s.Key, Gone: []endpoint.Ref{gone}}
	}
	return endpoint.State{Key: s.Key, Slices: []endpoint.Slice{s}}
}

// replace puts the only slice of said into st, whatever st has of it.
func replace(st, said endpoint.State) endpoint.State {
	same := func(name string) bool {
		return len(said.Slices) > 0 && said.Slices[0].Name == name || len(said.Gone) > 0 && said.Gone[0].Name == name
	}
	st.Slices = slices.DeleteFunc(slices.Clone(st.Slices), func(s endpoint.Slice) bool { return same(s.Name) })
	st.Gone = slices.DeleteFunc(slices.Clone(st.Gone), func(r endpoint.Ref) bool { return same(r.Name) })
	return st.Join(said)
}
