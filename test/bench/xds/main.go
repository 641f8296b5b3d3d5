// Xds measures how a change reaches many clients: slicecast's xDS server beside the LinearCache and the SnapshotCache of
// go-control-plane, with the same resources and the same clients, one row for each number of streams and of names per
// stream, and each protocol. The server is a process of its own, so that its CPU time and memory are its alone; one
// endpoint of one service changes at a time, and a change is over when every stream that subscribes to it has it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// shape is how many streams there are, and how many names each subscribes to.
type shape struct{ streams, names int }

// options are those of the command line.
type options struct {
	services int
	shapes   []shape
	servers  []string
	only     *regexp.Regexp // of rows
	changes  int
	patience time.Duration // for the changes of one row
}

func main() {
	o := options{
		shapes:  []shape{{10, 100}, {100, 100}, {1000, 100}, {100, 10_000}},
		servers: []string{ours, linear, snapshot},
	}
	var child, only, shapes string
	var quick bool
	flag.StringVar(&child, "serve", "", "be the server: "+ours+", "+linear+" or "+snapshot)
	flag.StringVar(&only, "only", ".", "regular expression: only these rows, such as '100x10000 delta slicecast'")
	flag.StringVar(&shapes, "shapes", "", "streams x names, such as 10x100,100x100; default those of the table")
	flag.IntVar(&o.services, "services", 10_000, "services of 10 endpoints")
	flag.IntVar(&o.changes, "changes", 300, "most changes of a row")
	flag.DurationVar(&o.patience, "patience", 15*time.Second, "begin no further change of a row after so long")
	flag.BoolVar(&quick, "quick", false, "1,000 services, and without the most expensive rows")
	flag.Parse()
	if quick {
		o.services, o.shapes, o.patience = 1000, []shape{{10, 100}, {100, 100}, {100, 1000}}, 5*time.Second
	}
	var err error
	if shapes != "" {
		o.shapes, err = parseShapes(shapes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case err != nil:
	case child != "":
		err = serve(ctx, child, o.services)
	default:
		if o.only, err = regexp.Compile(only); err == nil {
			err = run(ctx, o, os.Stdout)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseShapes(text string) (all []shape, err error) {
	for part := range strings.SplitSeq(text, ",") {
		var sh shape
		if n, err := fmt.Sscanf(part, "%dx%d", &sh.streams, &sh.names); err != nil || n != 2 || sh.streams < 1 || sh.names < 1 {
			return nil, fmt.Errorf("-shapes: %q is not STREAMSxNAMES", part)
		}
		all = append(all, sh)
	}
	return all, nil
}

// columns are those of the table. The ratios are to LinearCache in the same run.
const columns = "%15s %-5s %-13s %7s %11s %15s %9s %12s %11s %10s %9s %9s\n"

func run(ctx context.Context, o options, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%d cores, %s/%s, %s, %s, %d services of %d endpoints\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().Format(time.DateOnly), o.services, perService)
	_, _ = fmt.Fprintf(out, columns, "streams x names", "", "server", "changes", "CPU/change", "last stream p50", "p99", "bytes/change", "heap/stream", "RSS/stream", "CPU ratio", "p99 ratio")
	for _, sh := range o.shapes {
		for _, protocol := range []protocol{delta, sotw} {
			if err := o.compare(ctx, out, sh, protocol); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare measures all servers in one shape, and sets each beside LinearCache.
func (o options) compare(ctx context.Context, w io.Writer, sh shape, p protocol) error {
	results := map[string]result{}
	for _, server := range o.servers {
		if !o.only.MatchString(fmt.Sprintf("%dx%d %s %s", sh.streams, sh.names, p, server)) {
			continue
		}
		r, err := o.measure(ctx, server, sh, p)
		if err != nil {
			return fmt.Errorf("%dx%d %s %s: %w", sh.streams, sh.names, p, server, err)
		}
		results[server] = r
	}
	base, compared := results[linear]
	for _, server := range o.servers {
		r, measured := results[server]
		if !measured {
			continue
		}
		cpu, p99 := "", ""
		if compared {
			cpu, p99 = ratio(r.cpu, base.cpu), ratio(r.p99, base.p99)
		}
		_, _ = fmt.Fprintf(w, columns, fmt.Sprintf("%dx%d", sh.streams, sh.names), p, server, fmt.Sprint(r.changes), short(r.cpu), short(r.p50), short(r.p99), bytesText(r.sent), bytesText(r.heap), bytesText(r.rss), cpu, p99)
	}
	return nil
}

func ratio(a, b time.Duration) string { return fmt.Sprintf("%.3g", float64(a)/float64(max(b, 1))) }

// short prints a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

func bytesText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n, " B")
	case n < 10_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1_000_000)
	}
}
