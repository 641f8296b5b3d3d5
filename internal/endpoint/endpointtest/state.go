package endpointtest

import (
	"fmt"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// FormatState writes a State as a section of a trace.
func FormatState(st endpoint.State) Section {
	head := "state " + st.Key.String()
	if v := newest(st); !v.IsZero() {
		head += " rv=" + version(v)
	}
	if !st.Floor.IsZero() {
		head += " floor=" + version(st.Floor)
	}
	var body []string
	for _, s := range st.Slices {
		body = append(body, FormatSlice(s))
	}
	for _, g := range st.Gone {
		gone := endpoint.Slice{Name: g.Name, Version: g.Version, Translator: g.Translator, Observed: g.Observed}
		body = append(body, "gone "+formatSlice(gone, endpoint.Event{Gone: true}))
	}
	return Section{head, body}
}

// newest is the highest version of what a State holds.
func newest(st endpoint.State) endpoint.Version {
	var v endpoint.Version
	for _, s := range st.Slices {
		if s.Version.After(v) {
			v = s.Version
		}
	}
	for _, g := range st.Gone {
		if g.Version.After(v) {
			v = g.Version
		}
	}
	return v
}

// ParseState reads what FormatState wrote.
func ParseState(sec Section) (endpoint.State, error) {
	words := strings.Fields(sec.Head)
	if len(words) < 2 || words[0] != "state" {
		return endpoint.State{}, fmt.Errorf("%q is not state KEY", sec.Head)
	}
	var st endpoint.State
	var said endpoint.Version
	var err error
	if st.Key, err = endpoint.ParseKey(words[1]); err != nil {
		return st, err
	}
	for _, w := range words[2:] {
		name, v, _ := strings.Cut(w, "=")
		at := map[string]*endpoint.Version{"rv": &said, "floor": &st.Floor}[name]
		if at == nil {
			return st, fmt.Errorf("a state has no %q", w)
		}
		if *at, err = parseVersion(v); err != nil {
			return st, err
		}
	}
	for _, line := range sec.Body {
		if err := addLine(&st, strings.Fields(line)); err != nil {
			return st, fmt.Errorf("%q: %w", line, err)
		}
	}
	if v := newest(st); v != said {
		return st, fmt.Errorf("%s says rv=%s and holds %s", st.Key, version(said), version(v))
	}
	return st, st.Valid()
}

// addLine reads one line of a State's body.
func addLine(st *endpoint.State, words []string) error {
	gone := len(words) > 1 && words[0] == "gone" && !isOption(words[1])
	if gone {
		words = words[1:]
	}
	e, err := parseEvent(st.Key, words, gone)
	if err != nil {
		return err
	}
	if len(e.Peers) > 0 || !e.Previous.IsZero() || gone && (e.Slice.UID != "" || !e.Slice.Triggered.IsZero()) {
		return fmt.Errorf("more than a State holds")
	}
	if !gone {
		st.Slices = append(st.Slices, e.Slice)
		return nil
	}
	st.Gone = append(st.Gone, endpoint.Ref{
		Name: e.Slice.Name, Version: e.Slice.Version, Translator: e.Slice.Translator, Observed: e.Slice.Observed,
	})
	return nil
}
