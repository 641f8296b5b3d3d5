package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/watcher"
)

func clusterAdoptCommand() *cobra.Command {
	var (
		flags busFlags
		uid   string
	)
	cmd := &cobra.Command{
		Use:   "adopt NAME [--uid UID]",
		Short: "Accept that a cluster has a new identity (it was rebuilt, or its name now means another one)",
		Long: "Accept that a cluster has a new identity: its record takes the uid of the new kube-system namespace and the\n" +
			"next generation, so that everything its watcher writes from now on outranks what the old cluster wrote. The\n" +
			"slices of the old cluster go once those of the new one are there, service by service, so that none is empty\n" +
			"in between. Without --uid it is the one that a waiting watcher of the cluster sees, which its log names too.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := oneCluster(args)
			if err != nil {
				return err
			}
			conn, err := flags.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			if uid == "" {
				if uid, err = waitingUID(cmd.Context(), conn, name); err != nil {
					return err
				}
			}
			record, err := adopt(cmd.Context(), conn.Events(), name, uid)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: uid %s, generation %d\n", name, record.UID, record.Generation)
			return err
		},
	}
	cmd.Flags().StringVar(&uid, "uid", "", "the new identity: uid of the cluster's kube-system namespace, dir for a folder (default: what a waiting watcher sees)")
	flags.add(cmd.Flags())
	return cmd
}

// oneCluster reads the name of the cluster that a command is about.
func oneCluster(args []string) (string, error) {
	if len(args) != 1 || !endpoint.IsLabel(args[0]) {
		return "", usagef("want the name of one cluster, got %q", strings.Join(args, " "))
	}
	return args[0], nil
}

// adopt writes the record of a cluster with a new uid and the next generation. What of it is published is left to its
// watchers.
func adopt(ctx context.Context, records clusterRecords, cluster, uid string) (ledger.Record, error) {
	return renew(ctx, records, cluster, func(r *ledger.Record) error {
		if r.UID == uid {
			return fmt.Errorf("cluster %s already has uid %s", cluster, uid)
		}
		r.UID = uid
		return nil
	})
}

// renew writes the record of a cluster with the next generation and what change makes of it.
func renew(ctx context.Context, records clusterRecords, cluster string, change func(*ledger.Record) error) (ledger.Record, error) {
	record, seq, err := records.Record(ctx, cluster)
	if err != nil {
		return ledger.Record{}, fmt.Errorf("read the record of cluster %s: %w", cluster, err)
	}
	if seq == 0 {
		return ledger.Record{}, fmt.Errorf("the bus knows no cluster %s", cluster)
	}
	record.Generation++
	record.Scope = ""
	if err := change(&record); err != nil {
		return ledger.Record{}, err
	}
	result, err := records.PutRecord(ctx, cluster, record, seq)
	if err != nil {
		return ledger.Record{}, fmt.Errorf("write the record of cluster %s: %w", cluster, err)
	}
	if !result.Saved {
		return ledger.Record{}, fmt.Errorf("the record of cluster %s changed meanwhile: look at it with 'slicecast cluster list' and try again", cluster)
	}
	return record, nil
}

// waitingUID gives the one identity, other than the record's, that registered watchers of the cluster see.
func waitingUID(ctx context.Context, conn *bus.Bus, cluster string) (string, error) {
	record, _, err := conn.Events().Record(ctx, cluster)
	if err != nil {
		return "", fmt.Errorf("read the record of cluster %s: %w", cluster, err)
	}
	found, err := registered(ctx, conn, cluster)
	if err != nil {
		return "", err
	}
	var uids []string
	for _, r := range found {
		if r.UID != "" && r.UID != record.UID && !slices.Contains(uids, r.UID) {
			uids = append(uids, r.UID)
		}
	}
	switch len(uids) {
	case 1:
		return uids[0], nil
	case 0:
		return "", usagef("no watcher of cluster %s waits with another identity: give the new one by --uid", cluster)
	default:
		return "", usagef("watchers of cluster %s wait with different identities (%s): give one by --uid", cluster, strings.Join(uids, ", "))
	}
}

// registered gives what the watchers of a cluster that are alive say of themselves.
func registered(ctx context.Context, conn *bus.Bus, cluster string) ([]watcher.Registration, error) {
	ctx, done := context.WithTimeout(ctx, clientPatience)
	defer done()
	var found []watcher.Registration
	known := false
	err := watchers{conn}.Members(ctx, cluster, func(all []watcher.Member) {
		if known {
			return
		}
		known = true
		for _, m := range all {
			if r, err := watcher.ReadRegistration(m.Info); err == nil {
				found = append(found, r)
			}
		}
		done()
	})
	if err == nil && !known {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask who watches cluster %s: %w", cluster, err)
	}
	return found, nil
}
