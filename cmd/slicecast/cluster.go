package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// clusterRecords is what the cluster commands need of the bus.
type clusterRecords interface {
	Record(ctx context.Context, cluster string) (ledger.Record, uint64, error)
	PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error)
	FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error
}

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "List the clusters on the bus, accept a new identity of one", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(clusterListCommand(), clusterAdoptCommand())
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
			_, _ = fmt.Fprintln(w, "CLUSTER\tUID\tGENERATION\tREGION\tPOLICY")
			for _, n := range records {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", n.Cluster, n.Record.UID, n.Record.Generation,
					cmp.Or(n.Record.Region, "-"), cmp.Or(n.Record.Policy, "hold"))
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

func clusterAdoptCommand() *cobra.Command {
	var (
		bus busFlags
		uid string
	)
	cmd := &cobra.Command{
		Use:   "adopt NAME --uid UID",
		Short: "Accept that a cluster has a new identity (it was rebuilt, or its name now means another one)",
		Long: "Accept that a cluster has a new identity: its record takes the uid of the new kube-system namespace and the\n" +
			"next generation, so that everything its watcher writes from now on outranks what the old cluster wrote.\n" +
			"A watcher that refuses to write because the uid differs logs the uid that it sees.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !endpoint.IsLabel(args[0]) {
				return usagef("want the name of one cluster, got %q", strings.Join(args, " "))
			}
			if uid == "" {
				return usagef("--uid is needed: the uid of the cluster's kube-system namespace, or dir for a folder of manifests")
			}
			conn, err := bus.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			record, err := adopt(cmd.Context(), conn.Events(), args[0], uid)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: uid %s, generation %d\n", args[0], record.UID, record.Generation)
			return err
		},
	}
	cmd.Flags().StringVar(&uid, "uid", "", "the new identity: uid of the cluster's kube-system namespace")
	bus.add(cmd.Flags())
	return cmd
}

// adopt writes the record of a cluster with a new uid and the next generation.
func adopt(ctx context.Context, records clusterRecords, cluster, uid string) (ledger.Record, error) {
	record, seq, err := records.Record(ctx, cluster)
	if err != nil {
		return ledger.Record{}, fmt.Errorf("read the record of cluster %s: %w", cluster, err)
	}
	if seq == 0 {
		return ledger.Record{}, fmt.Errorf("the bus knows no cluster %s", cluster)
	}
	if record.UID == uid {
		return ledger.Record{}, fmt.Errorf("cluster %s already has uid %s", cluster, uid)
	}
	record.UID, record.Generation = uid, record.Generation+1
	result, err := records.PutRecord(ctx, cluster, record, seq)
	if err != nil {
		return ledger.Record{}, fmt.Errorf("write the record of cluster %s: %w", cluster, err)
	}
	if !result.Saved {
		return ledger.Record{}, fmt.Errorf("the record of cluster %s changed meanwhile: look at it with 'slicecast cluster list' and try again", cluster)
	}
	return record, nil
}
