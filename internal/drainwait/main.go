package drainwait

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Main is the whole command with its flags from args and its environment from lookup. It writes one line, and one
// before it where the budget is cut, and gives the exit code: 0 in every outcome, because a preStop that fails is
// reported as a failure of the pod and cuts the wait of its other containers.
func Main(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	var c Config
	fs := flag.NewFlagSet("drain-wait", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.Flags(fs)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(stdout)
		fs.Usage()
		return 0
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = applyEnv(fs, lookup)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "drain-wait: not asked: %v\n", err)
		return 0
	}
	Report(ctx, c, lookup, stdout, stderr)
	return 0
}

// Report runs c, completed from the environment, and writes its outcome: to stdout when drained, else to stderr.
func Report(ctx context.Context, c Config, lookup func(string) (string, bool), stdout, stderr io.Writer) {
	if err := c.Complete(lookup); err != nil {
		_, _ = fmt.Fprintf(stderr, "drain-wait: not asked: %v\n", err)
		return
	}
	if budget, cut := c.budget(); cut {
		_, _ = fmt.Fprintf(stderr, "drain-wait: --timeout %s is refused: --grace %s minus --reserve %s leaves %s, which is used\n",
			c.Timeout, c.Grace, c.Reserve, budget)
	}
	o, err := Run(ctx, c)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "drain-wait: not asked: %v\n", err)
		return
	}
	out := stderr
	if o.Answer.Drained {
		out = stdout
	}
	_, _ = fmt.Fprintf(out, "drain-wait: %s\n", o)
}

// applyEnv sets the flags that were not given from SLICECAST_<FLAG>.
func applyEnv(fs *flag.FlagSet, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var failed error
	fs.VisitAll(func(f *flag.Flag) {
		name := "SLICECAST_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := lookup(name)
		if given[f.Name] || !ok || failed != nil {
			return
		}
		if err := fs.Set(f.Name, text); err != nil {
			failed = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return failed
}
