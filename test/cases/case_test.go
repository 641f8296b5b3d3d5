package cases

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// testCase is a parsed file.
type testCase struct {
	name   string // of the file, without its ending
	stages []stage
}

// stage is what the API server went through, and what has to come of it.
type stage struct {
	comment []string
	steps   []step
	asked   []endpointtest.Section
}

// sentence is what the case shows.
func (c testCase) sentence() string { return strings.TrimSuffix(c.stages[0].comment[0], ".") }

// number is that of the kind of fault.
func (c testCase) number() string { return c.name[:3] }

// steps lists those of all stages.
func (c testCase) steps() (all []step) {
	for _, st := range c.stages {
		all = append(all, st.steps...)
	}
	return all
}

// parseCase reads a case. The error names the line.
func parseCase(name, text string) (testCase, error) {
	c := testCase{name: name, stages: []stage{{}}}
	expecting := false
	for i, line := range strings.Split(text, "\n") {
		st := &c.stages[len(c.stages)-1]
		line = strings.TrimRight(line, " ")
		var err error
		switch {
		case line == "":
		case line == "----" && expecting:
			c.stages, expecting = append(c.stages, stage{}), false
		case line == "----":
			expecting = true
		case expecting && strings.HasPrefix(line, " ") && len(st.asked) > 0:
			last := &st.asked[len(st.asked)-1]
			last.Body = append(last.Body, strings.TrimSpace(line))
		case expecting:
			st.asked = append(st.asked, endpointtest.Section{Head: line})
		case strings.HasPrefix(line, "#"):
			st.comment = append(st.comment, strings.TrimSpace(line[1:]))
		default:
			var s step
			if s, err = parseStep(line); err == nil && s.record && len(c.stages) > 1 {
				err = errors.New("regions are told in the first stage")
			}
			st.steps = append(st.steps, s)
		}
		if err != nil {
			return c, fmt.Errorf("%s.case:%d: %w", name, i+1, err)
		}
	}
	if len(c.stages[0].comment) == 0 {
		return c, fmt.Errorf("%s.case does not say what it shows", name)
	}
	if !expecting {
		return c, fmt.Errorf("%s.case ends without an expectation", name)
	}
	return c, nil
}

// String gives the text that parseCase reads.
func (c testCase) String() string {
	var b strings.Builder
	for i, st := range c.stages {
		if i > 0 {
			b.WriteString("----\n")
		}
		for _, line := range st.comment {
			b.WriteString("# " + line + "\n")
		}
		for _, s := range st.steps {
			b.WriteString(s.text + "\n")
		}
		b.WriteString("----\n")
		for _, sec := range st.asked {
			b.WriteString(sec.Head + "\n")
			for _, line := range sec.Body {
				b.WriteString("  " + line + "\n")
			}
		}
	}
	return b.String()
}
