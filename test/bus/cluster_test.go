package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/test/bus/rig"
)

// leader gives the server that leads a stream.
func (w *world) leader(c *rig.Cluster, stream string) (leader int) {
	w.t.Helper()
	w.admin(func(ctx context.Context, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, stream)
		if err == nil {
			leader = c.Find(st.CachedInfo().Cluster.Leader)
		}
		return err
	})
	if leader < 0 {
		w.t.Fatalf("%s has no leader", stream)
	}
	return leader
}

func TestStreamsOfAClusterHaveThreeReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three(t).URLs())
	w.admin(func(ctx context.Context, js jetstream.JetStream) error {
		for _, name := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE", "SLICECAST_HISTORY"} {
			st, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			if n := st.CachedInfo().Config.Replicas; n != 3 {
				t.Errorf("%s has %d replicas, want 3", name, n)
			}
		}
		return nil
	})
	w.changes(200)
	w.settle("after 200 changes")
}

func TestTheDeathOfALeaderTakesNothingAway(t *testing.T) {
	t.Parallel()
	c := three(t)
	w := newWorld(t, c.URLs())
	for _, stream := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE"} {
		w.changes(50)
		i := w.leader(c, stream)
		c.Kill(i)
		w.changes(200)
		w.settle("with the leader of " + stream + " dead")
		w.changes(50)
		must(t, c.Revive(i))
		w.changes(50)
		w.settle("after the leader of " + stream + " came back")
	}
}

func TestAPartitionOfOneServerTakesNothingAway(t *testing.T) {
	t.Parallel()
	c := three(t)
	w := newWorld(t, c.URLs())
	for _, stream := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE"} {
		w.changes(50)
		i := w.leader(c, stream)
		c.Cut(i)
		w.changes(500)
		c.Heal(i)
		w.changes(100)
		w.settle("after the leader of " + stream + " was cut off")
	}
}

func TestALostMajorityTakesNothingAway(t *testing.T) {
	t.Parallel()
	c := three(t)
	w := newWorld(t, c.URLs())
	w.changes(50)
	c.Kill(0)
	c.Kill(1)
	time.Sleep(20 * time.Second)
	must(t, c.Revive(0))
	must(t, c.Revive(1))
	w.settle("after 20 s without a majority")
	w.changes(50)
	w.settle("at the end")
}
