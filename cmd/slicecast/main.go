// Command slicecast carries every change of Kubernetes endpoint conditions to Envoy and gRPC clients.
//
// One file per subcommand: flags become a Config, the Config becomes a Run. Nothing else is decided here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=...).
var version = "dev"

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a bad flag, argument, environment variable or config file.
type usageError struct{ err error }

func (u usageError) Error() string { return u.err.Error() }
func (u usageError) Unwrap() error { return u.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it gives the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(stderr, "slicecast: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		_, _ = fmt.Fprintf(stderr, "see: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "slicecast",
		Short:         "Carry every change of Kubernetes endpoints to Envoy and gRPC clients in milliseconds",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return applySettings(cmd, os.LookupEnv)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	addCommonFlags(root)
	root.AddCommand(
		standaloneCommand(), watcherCommand(), projectorCommand(), xdsCommand(),
		eventsCommand(), getCommand(), explainCommand(), clusterCommand(),
		bootstrapCommand(), drainWaitCommand(), versionCommand(),
	)
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	return usagef("%q takes no argument, got %q", cmd.CommandPath(), args[0])
}
