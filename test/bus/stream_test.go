package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/test/bus/rig"
)

// limit sets the size of a stream; 0 means the size that it has.
func (w *world) limit(stream string, size int64) {
	w.t.Helper()
	w.admin(func(ctx context.Context, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		cfg := st.CachedInfo().Config
		if cfg.MaxBytes = size; size == 0 {
			cfg.MaxBytes = int64(st.CachedInfo().State.Bytes)
		}
		_, err = js.UpdateStream(ctx, cfg)
		return err
	})
}

func TestAFullStreamTakesNothingAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for _, stream := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE"} {
		w.changes(50)
		w.limit(stream, 0)
		w.changes(300)
		w.limit(stream, 1<<30)
		w.changes(20)
		w.settle("after " + stream + " was full")
	}
}

func TestASlowDiskTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := single(t)
	p, err := rig.NewProxy(s.URL()[len("nats://"):])
	must(t, err)
	t.Cleanup(p.Close)
	w := newWorld(t, s.URLs())
	// One of each kind gets all that the server says late, acknowledgements too.
	for _, role := range []*rig.Role{w.Watchers[0][0], w.Watchers[1][1], w.Projectors[0], w.Replicas[0]} {
		role.Stop()
		role.URLs = []string{"nats://" + p.Addr()}
		role.Start()
	}
	for _, delay := range []time.Duration{300 * time.Millisecond, 3 * time.Second} { // below and above the time of a write
		p.Slow(delay)
		w.changes(500)
		p.Slow(0)
		w.changes(50)
		w.settle("after acknowledgements came " + delay.String() + " late")
	}
}

func TestAServerThatStandsStillOrIsKilledTakesNothingAway(t *testing.T) {
	t.Parallel()
	c, err := rig.NewChild(t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = c.Kill() })
	w := newWorld(t, c.URLs())
	w.changes(50)
	must(t, c.Freeze())
	time.Sleep(6 * time.Second) // longer than any timeout of this rig
	must(t, c.Thaw())
	w.changes(50)
	w.settle("after the server stood still")
	must(t, c.Kill())
	must(t, c.Start())
	w.changes(50)
	w.settle("after the server was killed")
}
