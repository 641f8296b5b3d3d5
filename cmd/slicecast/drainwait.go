package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/internal/drainwait"
)

// drainWaitCommand is the same program as cmd/drain-wait, which is small enough to be put into pods.
func drainWaitCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "drain-wait",
		Short:              "Wait in a pod's preStop until no proxy uses the pod any more",
		DisableFlagParsing: true, // drainwait reads its own, so that both programs are one
		RunE: func(cmd *cobra.Command, args []string) error {
			drainwait.Main(cmd.Context(), args, os.LookupEnv, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return nil // exit 0 in every outcome: a preStop must never be in the way
		},
	}
}
