package cases

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// writer writes to a bus in memory what the watchers of some clusters would.
type writer struct {
	t        *testing.T
	ctx      context.Context // of the test
	fake     *bustest.Fake
	clusters []string
	seqs     map[string]uint64                // of the last message of each subject
	live     map[string]map[string]ledger.Sum // of each cluster, by subject
	last     map[string]uint64                // sequence of the last event of each cluster
	newest   map[string]endpoint.Version      // of each cluster
}

// newWriter gives a writer of clusters with their regions, which are on the bus from the beginning.
func newWriter(ctx context.Context, t *testing.T, regions map[string]string) *writer {
	t.Helper()
	w := &writer{
		t: t, ctx: ctx, fake: bustest.NewFake(), clusters: slices.Sorted(maps.Keys(regions)), seqs: map[string]uint64{},
		live: map[string]map[string]ledger.Sum{}, last: map[string]uint64{}, newest: map[string]endpoint.Version{},
	}
	for cluster, region := range regions {
		w.live[cluster] = map[string]ledger.Sum{}
		w.newest[cluster] = endpoint.Version{Generation: 1, Resource: 1}
		w.record(cluster, region)
	}
	return w
}

// record writes the region of a cluster.
func (w *writer) record(cluster, region string) {
	w.t.Helper()
	subject := "record " + cluster
	res, err := w.fake.Events().PutRecord(w.ctx, cluster, ledger.Record{UID: cluster, Generation: 1, Region: region}, w.seqs[subject])
	w.saved(subject, res, err)
}

// put writes an event.
func (w *writer) put(e endpoint.Event) {
	w.t.Helper()
	s := e.Slice
	subject := s.Key.String() + "/" + s.Name
	res, err := w.fake.Events().Put(w.ctx, e, w.seqs[subject])
	w.saved(subject, res, err)
	w.last[s.Key.Cluster] = res.Seq
	if s.Version.After(w.newest[s.Key.Cluster]) {
		w.newest[s.Key.Cluster] = s.Version
	}
	delete(w.live[s.Key.Cluster], subject)
	if !e.Gone {
		w.live[s.Key.Cluster][subject] = ledger.Digest(s.Key, s.Name, s.Version, s.Hash())
	}
}

// certify writes a checkpoint of all events of a cluster.
func (w *writer) certify(cluster string) {
	w.t.Helper()
	cp := ledger.Checkpoint{Complete: w.newest[cluster], AsOf: w.last[cluster], Count: uint64(len(w.live[cluster]))}
	for _, sum := range w.live[cluster] {
		cp.Sum = cp.Sum.Add(sum)
	}
	subject := "checkpoint " + cluster
	res, err := w.fake.Events().Certify(w.ctx, cluster, cp, w.seqs[subject])
	w.saved(subject, res, err)
}

func (w *writer) saved(subject string, res ledger.Result, err error) {
	w.t.Helper()
	if err != nil || !res.Saved {
		w.t.Fatalf("write of %s: saved %v, %v", subject, res.Saved, err)
	}
	w.seqs[subject] = res.Seq
}
