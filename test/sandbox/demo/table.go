package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// sleepHook is the preStop hook that people use where there is no gate.
const sleepHook = 15 * time.Second

// printTable shows the acts side by side. acts are (a), (b) and (c).
func printTable(out io.Writer, acts []*act) {
	_, _ = fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(label string, cell func(*act) string) {
		cells := []string{fmt.Sprintf("%-42s", label)}
		for _, a := range acts {
			cells = append(cells, cell(a))
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	row("", func(a *act) string { return "(" + a.name + ") " + a.title })
	row("requests", func(a *act) string { return thousands(a.load.Total()) })
	row("FAILED", func(a *act) string { return thousands(a.load.Failed()) })
	for _, kind := range failureKinds(acts) {
		row("  "+explain(kind), func(a *act) string { return thousands(a.load.Outcomes[kind]) })
	}
	row("rollouts, pods replaced", func(a *act) string { return fmt.Sprintf("%d, %d", len(a.rollouts), len(a.toSignal)) })
	row("deletion to SIGTERM, median", func(a *act) string { return round(sandbox.DurationQuantile(a.toSignal, 0.5)).String() })
	row("deletion to SIGTERM, longest", func(a *act) string { return round(sandbox.DurationQuantile(a.toSignal, 1)).String() })
	row("a rollout, until the last old pod is gone", func(a *act) string { return round(sandbox.DurationQuantile(a.rollouts, 0.5)).String() })
	row("  with `sleep 15` as preStop (computed)", func(a *act) string {
		if a != acts[len(acts)-1] {
			return ""
		}
		return round(sandbox.DurationQuantile(acts[1].rollouts, 0.5) + sleepHook).String()
	})
	_ = w.Flush()
	gate := acts[len(acts)-1]
	printPropagation(out, gate)
	printHooks(out, gate)
}

// printPropagation shows the stages of slicecast's own measurement.
func printPropagation(out io.Writer, a *act) {
	_, _ = fmt.Fprintf(out, "\nFrom a change of a slice to Envoy's acknowledgement, during act (%s), as slicecast measures it (slicecast_propagation_seconds):\n\n", a.name)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "stage\tchanges\tp50\tp99\tmax (at most)\t")
	for _, stage := range sandbox.Stages() {
		h := a.propagation[stage]
		if h.Count() == 0 {
			_, _ = fmt.Fprintf(w, "%s\t0\t-\t-\t-\t\n", stage)
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t\n", stage, h.Count(), round(h.Quantile(0.5)), round(h.Quantile(0.99)), round(h.Quantile(1)))
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(out, "\nobserve is the time since Kubernetes' own trigger, which a real control plane gives in whole seconds; total has all the others.")
}

// shownHooks bounds how many hooks that were not told "drained" are shown.
const shownHooks = 5

// printHooks shows what the preStop hooks said: the slowest that was told "drained", and those that were not.
func printHooks(out io.Writer, a *act) {
	if a.drained != "" {
		_, _ = fmt.Fprintf(out, "\nThe slowest preStop hook said: %s\n", a.drained)
	}
	for i, line := range a.undrained {
		if i == shownHooks {
			_, _ = fmt.Fprintf(out, "... and %d more\n", len(a.undrained)-i)
			break
		}
		_, _ = fmt.Fprintf(out, "A preStop hook gave up: %s\n", line)
	}
}

// failureKinds are all kinds of failure of all acts, sorted.
func failureKinds(acts []*act) []string {
	kinds := make(map[string]bool)
	for _, a := range acts {
		for kind := range a.load.Outcomes {
			kinds[kind] = kind != sandbox.OK
		}
	}
	delete(kinds, sandbox.OK)
	return slices.Sorted(maps.Keys(kinds))
}

// explain adds what Envoy's response flags mean.
func explain(kind string) string {
	for flag, meaning := range map[string]string{
		"UF": "no connection to the pod", "UC": "pod cut the connection", "UH": "no usable pod", "URX": "limit of connections",
	} {
		if strings.HasSuffix(kind, " "+flag) || strings.Contains(kind, " "+flag+",") {
			return kind + ": " + meaning
		}
	}
	return kind
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// round keeps about three digits.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(10 * time.Microsecond)
	}
}
