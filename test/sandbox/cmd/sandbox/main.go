// Command sandbox runs the demo of slicecast in a network namespace of its own, and is the program of the demo's pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/slicecast/slicecast/test/sandbox"
	"github.com/slicecast/slicecast/test/sandbox/demo"
)

const usage = `usage: sandbox demo [--control-plane files|kube] [--rate N] [--rollouts N] [--requests N]
       sandbox exec COMMAND [ARG ...]
       sandbox pod [--addr IP:PORT] [--name NAME] [--delay-max 20ms] [--app abrupt|graceful|stubborn]

KEEP=1 leaves the demo running until Ctrl-C, and prints how to look.
exec runs a command in a fresh network namespace like the demo's.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch args := os.Args[2:]; os.Args[1] {
	case "pod":
		os.Exit(sandbox.PodMain(args, os.Stdout, os.Stderr))
	case "demo":
		os.Exit(inside(func(ctx context.Context) error { return runDemo(ctx, args) }))
	case "exec":
		os.Exit(inside(func(context.Context) error { return execute(args) }))
	case "help", "-h", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "sandbox: unknown command %q\n%s", os.Args[1], usage)
		os.Exit(2)
	}
}

// errUsage is returned when the command line is wrong and the reason was printed.
var errUsage = errors.New("bad usage")

// inside runs do in the namespace and returns the exit code.
func inside(do func(context.Context) error) int {
	entered, code, err := sandbox.Enter()
	if err == nil && entered {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err = do(ctx)
	}
	switch {
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		fmt.Fprintf(os.Stderr, "\nsandbox: %v\n", err)
		return 1
	}
	return code
}

func runDemo(ctx context.Context, args []string) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1)
	defer signal.Stop(again)
	cfg := demo.Config{Out: os.Stdout, Keep: os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0", Again: again}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&cfg.ControlPlane, "control-plane", "files", "files or kube")
	flags.IntVar(&cfg.Rate, "rate", 500, "requests a second")
	flags.IntVar(&cfg.Rollouts, "rollouts", 3, "least number of rollouts of an act")
	flags.IntVar(&cfg.Requests, "requests", 5000, "least number of requests of act (c)")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sandbox demo: unknown argument %s\n", strings.Join(flags.Args(), " "))
		return errUsage
	}
	if cfg.ControlPlane != "files" && cfg.ControlPlane != "kube" {
		fmt.Fprintf(os.Stderr, "sandbox demo: --control-plane %s: it is files or kube\n", cfg.ControlPlane)
		return errUsage
	}
	return demo.Run(ctx, cfg)
}

// execute becomes another program.
func execute(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errUsage
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}
