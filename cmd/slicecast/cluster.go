package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// clusterRecords is what the cluster commands need of the bus.
type clusterRecords interface {
	Record(ctx context.Context, cluster string) (ledger.Record, uint64, error)
	PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error)
	FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error
}

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "List the clusters on the bus, accept a new identity of one, remove one", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(clusterListCommand(), clusterAdoptCommand(), clusterForgetCommand())
	return cmd
}

func clusterListCommand() *cobra.Command {
	var bus busFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters on the bus with their identities",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := bus.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			records, err := readRecords(cmd.Context(), conn.Events())
			if err != nil {
				return fmt.Errorf("read the cluster records: %w", err)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
			_, _ = fmt.Fprintln(w, "CLUSTER\tUID\tGENERATION\tREGION\tPOLICY\tSCOPE")
			for _, n := range records {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", n.Cluster, n.Record.UID, n.Record.Generation,
					cmp.Or(n.Record.Region, "-"), cmp.Or(n.Record.Policy, "hold"), cmp.Or(n.Record.Scope, "-"))
			}
			return w.Flush()
		},
	}
	bus.add(cmd.Flags())
	return cmd
}

// readRecords gives the record of every cluster, sorted by name.
func readRecords(ctx context.Context, records clusterRecords) ([]ledger.Notice, error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	found, complete := map[string]ledger.Notice{}, false
	err := records.FollowRecords(ctx, func(n ledger.Notice) error {
		switch n.Kind {
		case ledger.Recorded:
			found[n.Cluster] = n
		case ledger.Complete:
			complete = true
			done()
		}
		return nil
	})
	if err == nil && !complete {
		err = ctx.Err()
	}
	list := make([]ledger.Notice, 0, len(found))
	for _, n := range found {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b ledger.Notice) int { return strings.Compare(a.Cluster, b.Cluster) })
	return list, err
}
