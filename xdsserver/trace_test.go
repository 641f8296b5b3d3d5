package xdsserver

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

var update = flag.Bool("update", false, "rewrite the assign sections of the shared traces")

func TestTracesGiveTheirAssignments(t *testing.T) {
	states := statesOfTraces(t)
	endpointtest.Run(t, *update, map[string]endpointtest.Answer{
		"assign": func(told []endpointtest.Step, asked endpointtest.Section) (endpointtest.Section, error) {
			view, err := viewOfHead(asked.Head)
			if err != nil {
				return asked, err
			}
			known, ok := states[toldText(told)]
			if !ok {
				return asked, fmt.Errorf("the stage has no states")
			}
			return endpointtest.Section{Head: asked.Head, Body: assignBody(known, view)}, nil
		},
	})
}

// statesOfTraces gives, for all that a trace told up to a stage, the States that the stage expects: what the projector
// makes of it is tested there.
func statesOfTraces(t *testing.T) map[string][]endpoint.State {
	t.Helper()
	out := map[string][]endpoint.State{}
	names, err := fs.Glob(endpointtest.Files(), "*.trace")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(endpointtest.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := endpointtest.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		var told []endpointtest.Step
		for _, stage := range tr.Stages {
			told = append(told, stage.Steps...)
			states := []endpoint.State{}
			for _, sec := range stage.Expected {
				if sec.Kind() != "state" {
					continue
				}
				st, err := endpointtest.ParseState(sec)
				if err != nil {
					t.Fatal(err)
				}
				states = append(states, st)
			}
			out[toldText(told)] = states
		}
	}
	return out
}

func toldText(told []endpointtest.Step) string {
	var b strings.Builder
	for _, s := range told {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func viewOfHead(head string) (View, error) {
	var v View
	for _, word := range strings.Fields(head)[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "cluster":
			v.Cluster = value
		case "region":
			v.Region = value
		case "zone":
			v.Zone = value
		case "node":
			v.Node = value
		case "family":
			v.Family = ParseFamily(value)
		default:
			return v, fmt.Errorf("a view has no %q", key)
		}
	}
	return v, nil
}

// assignBody gives a line per endpoint of every merged service port.
func assignBody(states []endpoint.State, view View) (body []string) {
	byService := map[serviceID][]endpoint.State{}
	for _, st := range states {
		byService[serviceOf(st.Key)] = append(byService[serviceOf(st.Key)], st)
	}
	ids := slices.SortedFunc(maps.Keys(byService), func(a, b serviceID) int { return cmp.Compare(a.String(), b.String()) })
	for _, id := range ids {
		for _, port := range slices.Sorted(maps.Keys(mergedPorts(byService[id], nil))) {
			name := Name{Service: id.service, Namespace: id.namespace, Port: port}
			body = append(body, assignLines(Assign(Service{States: byService[id]}, view, name))...)
		}
	}
	return body
}

// assignLines gives a line per endpoint, as in "cart.shop:http  p0 z1 10.0.0.1:8080 healthy".
func assignLines(a Assignment) (lines []string) {
	for _, l := range a.Localities {
		for _, e := range l.Endpoints {
			health := "healthy"
			if e.Draining {
				health = "draining"
			}
			addrs := make([]string, 0, 2)
			for _, at := range append([]netip.AddrPort{e.Addr}, e.More...) {
				addrs = append(addrs, at.String())
			}
			lines = append(lines, fmt.Sprintf("%s  p%d %s %s %s", a.Name, l.Priority,
				cmp.Or(strings.Trim(l.Region+"/"+l.Zone, "/"), "-"), strings.Join(addrs, "+"), health))
		}
	}
	if len(lines) == 0 {
		lines = append(lines, a.Name+"  empty")
	}
	return lines
}
