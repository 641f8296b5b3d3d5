// Bench measures the bus and prints one table: what a publish costs, how long a watcher reads back and readers catch
// up, and how long the output of a cluster pauses when one of two watchers or projectors dies under 200 changes a
// second. Figures are medians over several runs in this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// options are those of the command line.
type options struct {
	runs    int
	slices  []int
	only    string
	publish int
}

func main() {
	var o options
	var quick bool
	flag.IntVar(&o.runs, "runs", 5, "runs of each figure")
	flag.StringVar(&o.only, "only", "", "publish, read or kill: only these figures")
	flag.BoolVar(&quick, "quick", false, "without 100,000 slices")
	flag.Parse()
	o.slices, o.publish = []int{10_000, 100_000}, 2000
	if quick {
		o.slices = o.slices[:1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one line of the table.
type row struct{ what, figure string }

func run(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "slicecast-bench")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, _ = fmt.Fprintln(out, machine())
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, part := range []struct {
		name string
		do   func(context.Context, options, string) ([]row, error)
	}{{"publish", publish}, {"read", read}, {"kill", kill}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		rows, err := part.do(ctx, o, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", r.what, r.figure)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// machine says what the figures were measured on.
func machine() string {
	cpu := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().Format(time.DateOnly))
}

// median of durations; the worst is added, since a gap is as bad as its longest.
func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// short prints a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// several prints the median and the longest of several runs.
func several(all []time.Duration) string {
	return fmt.Sprintf("%s (longest of %d: %s)", short(median(all)), len(all), short(slices.Max(all)))
}
