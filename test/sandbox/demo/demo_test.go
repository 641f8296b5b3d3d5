package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

func played(name string, outcomes map[string]int) *act {
	return &act{
		name: name, title: "title of " + name, load: sandbox.Result{Outcomes: outcomes},
		rollouts: []time.Duration{1600 * time.Millisecond}, toSignal: []time.Duration{20 * time.Millisecond, 45 * time.Millisecond},
	}
}

func TestARunProvesSomethingOnlyIfTheOthersLoseAndTheGateDoesNot(t *testing.T) {
	none, some := map[string]int{sandbox.OK: 10}, map[string]int{sandbox.OK: 9, sandbox.TimedOut: 1}
	for _, tc := range []struct {
		a, b, c map[string]int
		want    error
	}{
		{some, some, none, nil}, {some, none, none, nil}, {none, some, none, nil},
		{none, none, none, ErrVoid}, {some, some, some, ErrLost}, {none, none, some, ErrLost},
	} {
		if got := judge([]*act{played("a", tc.a), played("b", tc.b), played("c", tc.c)}); !errors.Is(got, tc.want) {
			t.Errorf("%v, %v, %v: got %v, want %v", tc.a, tc.b, tc.c, got, tc.want)
		}
	}
}

func TestTheTableShowsTheActsSideBySide(t *testing.T) {
	a := played("a", map[string]int{sandbox.OK: 1200, "status 503 UF": 34})
	c := played("c", map[string]int{sandbox.OK: 5001})
	c.propagation = sandbox.Propagation{"ack": {Bounds: []float64{0.001, 0.002}, Counts: []uint64{0, 8}}}
	c.noteLine("drained: acknowledged", true)
	c.noteLine("drained: fast", false)
	c.noteLine("not drained: unknown", true)
	c.noteLine("", true)
	var out bytes.Buffer
	printTable(&out, []*act{a, played("b", map[string]int{sandbox.OK: 3}), c})
	var lines []string
	for l := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	got := strings.Join(lines, "\n")
	for _, want := range []string{
		"(a) title of a (b) title of b (c) title of c",
		"requests 1,234 3 5,001",
		"FAILED 34 0 0",
		"status 503 UF: no connection to the pod 34 0 0",
		"rollouts, pods replaced 1, 2 1, 2 1, 2",
		"deletion to SIGTERM, longest 45ms 45ms 45ms",
		"with `sleep 15` as preStop (computed) 16.6s",
		"ack 8 1.5ms 1.99ms 2ms",
		"total 0 - - -",
		"The slowest preStop hook said: drained: acknowledged",
		"A preStop hook gave up: not drained: unknown",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
