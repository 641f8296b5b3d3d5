package cases

import (
	"fmt"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/xdsserver"
)

// pipeline is the pure way from events to assignments.
type pipeline struct {
	stored map[endpoint.Key]endpoint.State // from before a restart
	events map[endpoint.Key][]endpoint.Event
}

func newPipeline() *pipeline {
	return &pipeline{stored: map[endpoint.Key]endpoint.State{}, events: map[endpoint.Key][]endpoint.Event{}}
}

func (p *pipeline) tell(events ...endpoint.Event) {
	for _, e := range events {
		p.events[e.Slice.Key] = append(p.events[e.Slice.Key], e)
	}
}

// states folds what was told.
func (p *pipeline) states() map[endpoint.Key]endpoint.State {
	out := map[endpoint.Key]endpoint.State{}
	for key, st := range p.stored {
		out[key] = st
	}
	for key, events := range p.events {
		st := projector.Fold(key, endpoint.Version{}, events...)
		if stored, known := p.stored[key]; known {
			st = stored.Join(st)
		}
		out[key] = st
	}
	return out
}

// restart forgets all but the States, as they are written.
func (p *pipeline) restart() error {
	states := p.states()
	*p = *newPipeline()
	for key, st := range states {
		read, err := endpointtest.ParseState(endpointtest.FormatState(st))
		if err != nil {
			return err
		}
		p.stored[key] = read
	}
	return nil
}

// serviceOf gives one service of all clusters.
func serviceOf(states map[endpoint.Key]endpoint.State, regions map[string]string, name xdsserver.Name) xdsserver.Service {
	svc := xdsserver.Service{Regions: regions}
	for key, st := range states {
		if key.Namespace == name.Namespace && key.Service == name.Service {
			svc.States = append(svc.States, st)
		}
	}
	slices.SortFunc(svc.States, func(a, b endpoint.State) int { return a.Key.Compare(b.Key) })
	return svc
}

// runCase gives the case with all its sections as the pure functions have it; those of kind push stay as they are.
func runCase(c testCase) (testCase, error) {
	w, p := newWorld(), newPipeline()
	out := testCase{name: c.name}
	for i, st := range c.stages {
		w.skips, w.events = newWorld().skips, nil
		for _, s := range st.steps {
			p.tell(w.apply(s)...)
			if s.restart {
				if err := p.restart(); err != nil {
					return c, err
				}
			}
		}
		var err error
		if st.asked, err = answers(st.asked, w, p); err != nil {
			return c, fmt.Errorf("stage %d: %w", i+1, err)
		}
		out.stages = append(out.stages, st)
	}
	return out, nil
}

// answers gives the States, and each other section that is asked for.
func answers(asked []endpointtest.Section, w *world, p *pipeline) ([]endpointtest.Section, error) {
	states := p.states()
	for _, st := range states {
		if err := st.Valid(); err != nil {
			return nil, err
		}
	}
	out := formatStates(states)
	for _, sec := range asked {
		answer := endpointtest.Section{Head: sec.Head}
		switch sec.Kind() {
		case "state":
			continue
		case "push":
			answer.Body = sec.Body
		case "skips":
			answer.Body = skipLines(w)
		case "transitions":
			answer.Body = transitionLines(w.events)
		case "assign", "explain":
			view, err := parseView(sec.Head)
			if err != nil {
				return nil, err
			}
			for _, name := range w.names() {
				lines, err := viewLines(sec.Kind(), serviceOf(states, w.regions, name), view, name)
				if err != nil {
					return nil, err
				}
				answer.Body = append(answer.Body, lines...)
			}
		default:
			return nil, fmt.Errorf("no section %q", sec.Head)
		}
		out = append(out, answer)
	}
	return out, nil
}

func viewLines(kind string, svc xdsserver.Service, view xdsserver.View, name xdsserver.Name) ([]string, error) {
	if kind == "assign" {
		text, err := assignmentText(name.String(), xdsserver.Assign(svc, view, name).Encode())
		return []string{name.String() + "  " + text}, err
	}
	var lines []string
	for _, v := range xdsserver.Explain(svc, view, name) {
		lines = append(lines, fmt.Sprintf("%s  %s %s %s: %s", name, v.Addr, v.Cluster, v.Slice, v.Reason))
	}
	return lines, nil
}

func skipLines(w *world) (lines []string) {
	for reason, n := range w.skips.All() {
		lines = append(lines, fmt.Sprintf("%s %d", reason, n))
	}
	return orNothing(lines)
}

func transitionLines(events []endpoint.Event) (lines []string) {
	for _, e := range events {
		for _, t := range e.Transitions {
			lines = append(lines, fmt.Sprintf("%s %s: %s %s to %s", e.Slice.Key, e.Slice.Name, t.Addr, t.Before, t.After))
		}
	}
	return orNothing(lines)
}

// orNothing says it where there are no lines.
func orNothing(lines []string) []string {
	if len(lines) == 0 {
		return []string{"nothing"}
	}
	return lines
}
