package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/watcher"
)

// clusterEvents is what forgetting a cluster needs of the bus beside its records.
type clusterEvents interface {
	Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error
	Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error)
	Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error)
}

func clusterForgetCommand() *cobra.Command {
	var flags busFlags
	cmd := &cobra.Command{
		Use:   "forget NAME",
		Short: "Remove a cluster and its endpoints on purpose",
		Long: "Remove a cluster on purpose: every slice of it gets a tombstone of the next generation, so that all readers drop\n" +
			"its endpoints, also those that are away now. Its record stays, with that generation: only a watcher of the very\n" +
			"same cluster can publish it again, and a watcher of another one needs 'slicecast cluster adopt'. It is refused\n" +
			"while a watcher of the cluster runs, which would publish all of it again.",
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
			found, err := registered(cmd.Context(), conn, name)
			if err != nil {
				return err
			}
			gone, record, err := forget(cmd.Context(), conn.Events(), conn.Events(), name, found)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %d slices removed, generation %d\n", name, gone, record.Generation)
			return err
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

// forgetPasses is how often the cluster is read until nothing of it is left.
const forgetPasses = 5

// errStillWatched says that somebody would publish the cluster again.
var errStillWatched = errors.New("a watcher of the cluster runs and would publish all of it again: end it first (one that died is taken for alive for up to 15 s)")

// forget writes the record of a cluster with the next generation, a tombstone of that generation for each of its slices,
// and a checkpoint that says that nothing is left, so that readers who miss the tombstones remove the slices too.
func forget(
	ctx context.Context, records clusterRecords, events clusterEvents, cluster string, alive []watcher.Registration,
) (gone int, record ledger.Record, err error) {
	record, err = renew(ctx, records, cluster, func(r *ledger.Record) error {
		for _, w := range alive {
			if w.UID == r.UID {
				return errStillWatched
			}
		}
		return nil
	})
	if err != nil {
		return 0, record, err
	}
	// Lower than every version of a cluster, so that what its own watcher writes of this generation counts.
	at := endpoint.Version{Generation: record.Generation, Resource: 1}
	for range forgetPasses {
		left, err := readCluster(ctx, events, cluster)
		if err != nil {
			return gone, record, err
		}
		if left.record != record {
			return gone, record, fmt.Errorf("the record of cluster %s changed meanwhile: look at it with 'slicecast cluster list'", cluster)
		}
		if len(left.live) == 0 {
			return gone, record, seal(ctx, events, cluster, at, left)
		}
		n, err := bury(ctx, events, at, left.live)
		if gone += n; err != nil {
			return gone, record, err
		}
	}
	return gone, record, fmt.Errorf("cluster %s: somebody writes it all the time", cluster)
}

// remains is what the bus holds of a cluster.
type remains struct {
	live   []ledger.Notice
	cert   ledger.Checkpoint
	cpSeq  uint64
	record ledger.Record
	last   uint64 // highest sequence
}

// readCluster reads what the bus holds of a cluster.
func readCluster(ctx context.Context, events clusterEvents, cluster string) (remains, error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var r remains
	complete := false
	err := events.Follow(ctx, cluster, true, func(n ledger.Notice) error {
		if complete {
			return nil
		}
		r.last = max(r.last, n.Seq)
		switch n.Kind {
		case ledger.Opened:
			r = remains{}
		case ledger.Changed:
			if !n.Gone {
				r.live = append(r.live, n)
			}
		case ledger.Certified:
			r.cert, r.cpSeq = n.Checkpoint, n.Seq
		case ledger.Recorded:
			r.record = n.Record
		case ledger.Complete:
			complete = true
			done()
		}
		return nil
	})
	if err == nil && !complete {
		err = ctx.Err()
	}
	if err != nil {
		return r, fmt.Errorf("read cluster %s: %w", cluster, err)
	}
	return r, nil
}

// bury writes a tombstone for each slice, and counts those that were accepted.
func bury(ctx context.Context, events clusterEvents, at endpoint.Version, live []ledger.Notice) (n int, err error) {
	for _, s := range live {
		if !at.After(s.Version) {
			return n, fmt.Errorf("slice %s of %s is at version %s already", s.Slice, s.Key, s.Version)
		}
		ev := endpoint.Event{
			Gone: true, Previous: s.Version,
			Slice: endpoint.Slice{Key: s.Key, Name: s.Slice, Version: at, Translator: watcher.TranslatorVersion, Observed: time.Now()},
		}
		res, err := events.Put(ctx, ev, s.Seq)
		if err != nil {
			return n, fmt.Errorf("remove slice %s of %s: %w", s.Slice, s.Key, err)
		}
		if res.Saved {
			n++
		}
	}
	return n, nil
}

// seal certifies that nothing of the cluster is left.
func seal(ctx context.Context, events clusterEvents, cluster string, at endpoint.Version, left remains) error {
	cp := ledger.Checkpoint{Complete: at, AsOf: left.last, Written: time.Now()}
	if left.cert.Complete.After(at) {
		return fmt.Errorf("cluster %s is certified as of %s already: its watcher runs", cluster, left.cert.Complete)
	}
	res, err := events.Certify(ctx, cluster, cp, left.cpSeq)
	if err == nil && !res.Saved {
		err = errors.New("somebody else wrote one")
	}
	if err != nil {
		return fmt.Errorf("write the last checkpoint of cluster %s: %w", cluster, err)
	}
	return nil
}
