package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/test/bus/rig"
)

func TestAWatcherThatWasStoppedForLongOvertakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for i, two := range w.Watchers {
		w.changes(30)
		two[0].Gate.Shut()
		time.Sleep([]time.Duration{time.Minute, 10 * time.Second}[i]) // longer than any retry or timeout of this rig
		w.settle("with one watcher stopped")
		w.changes(30)
		two[0].Gate.Open()
		w.changes(100)
		w.settle("after it went on")
	}
}

func TestAWatcherThatHeardNothingForLongOvertakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs(), func(cfg *rig.Config) { cfg.Clusters = []string{"east"} })
	deaf := &rig.Gate{}
	w.Watchers[0][0].Stop()
	w.Watchers[0][0].Source.Gate = deaf
	w.Watchers[0][0].Start()
	w.settle("at the start")
	deaf.Shut()
	w.changes(1000)
	w.settle("while one watcher hears nothing")
	w.changes(100)
	deaf.Open()
	w.changes(100)
	w.settle("after it was revived")
	// What was deleted while it was the only one, and deaf, goes as soon as it hears again.
	w.Watchers[0][1].Stop()
	deaf.Shut()
	w.changes(300)
	deaf.Open()
	w.settle("after it was alone and deaf")
	w.Watchers[0][1].Start()
	w.changes(50)
	w.settle("at the end")
}

func TestDeletionsWhileNoWatcherRanAreCaughtUpWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for _, role := range append(w.Watchers[0], w.Watchers[1]...) {
		role.Stop()
	}
	w.changes(400)
	w.Watchers[0][0].Start()
	w.Watchers[1][1].Start()
	w.changes(50)
	w.settle("with one watcher of each cluster again")
	w.Watchers[0][1].Start()
	w.Watchers[1][0].Start()
	w.changes(50)
	w.settle("at the end")
}

func TestAListThatComesLateOvertakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for i := range 3 {
		s := w.Watchers[i%2][0].Source
		var once sync.Once
		taken, late := make(chan struct{}), make(chan struct{})
		w.Watchers[i%2][0].Stop()
		s.Relist = func(now uint64) uint64 {
			once.Do(func() {
				close(taken)
				<-late
			})
			return now
		}
		w.Watchers[i%2][0].Start()
		<-taken
		w.changes(200)
		close(late)
		w.changes(50)
		w.settle("after a list that is 200 changes old")
	}
}

func TestAStaleListIsRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for _, again := range []bool{false, true} {
		w.changes(100)
		role := w.Watchers[0][0]
		var once sync.Once
		role.Stop()
		role.Source.Relist = func(now uint64) (v uint64) {
			once.Do(func() {
				v = now - 40
				w.Lenient("east", v) // a list that is not consistent takes readers back
			})
			return v
		}
		role.Start()
		w.changes(100)
		if again {
			w.Watchers[0][1].Restart()
		}
		w.settle("after a stale list")
	}
}

// kill makes one of the projectors end at its nth write: before it is sent, or after the bus took it. Which one writes is
// for their ranks to say, so it is the first that comes so far.
func kill(roles []*rig.Role, n int, before bool) (ended chan *rig.Role) {
	ended = make(chan *rig.Role, 1)
	var once sync.Once
	for _, role := range roles {
		var mu sync.Mutex
		left := n
		die := func(ctx context.Context) error {
			mu.Lock()
			left--
			now := left == 0
			mu.Unlock()
			first := false
			if now {
				once.Do(func() { first = true })
			}
			if !first {
				return nil
			}
			ended <- role
			<-ctx.Done()
			return errors.New("killed")
		}
		role.Stop()
		if before {
			role.Wire.BeforePut = func(ctx context.Context, _ endpoint.State) error { return die(ctx) }
		} else {
			role.Wire.AfterPut = func(ctx context.Context, _ endpoint.State, _ ledger.Result) error { return die(ctx) }
		}
		role.Start()
	}
	return ended
}

func TestAProjectorThatDiesBetweenFoldAndWriteTakesNothingAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for i, before := range []bool{true, false, true, false} {
		var dead *rig.Role
		select {
		case dead = <-kill(w.Projectors, 1+7*i, before):
		case <-time.After(patience):
			t.Fatal("no projector wrote anything")
		}
		dead.Stop()
		dead.Wire = rig.Wire{}
		w.changes(100)
		w.settle("with one projector")
		dead.Start()
		w.changes(50)
		w.settle("with both again")
	}
	for _, role := range w.Projectors {
		role.Stop()
		role.Wire = rig.Wire{}
	}
	w.changes(200)
	w.Projectors[0].Start()
	w.settle("after all projectors were away")
}

func TestAProjectorThatWasStoppedForLongOvertakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	w.changes(50)
	w.Projectors[0].Gate.Shut()
	time.Sleep(8 * time.Second)
	w.settle("with one projector stopped")
	w.changes(50)
	w.Projectors[0].Gate.Open()
	w.changes(100)
	w.settle("after it went on")
}

func TestClocksDecideNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for _, shift := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		for _, role := range []*rig.Role{w.Watchers[0][0], w.Watchers[1][1], w.Projectors[0]} {
			role.Stop()
			role.Wire.Shift = shift
			if role.Source != nil {
				role.Source.Shift = shift
			}
			role.Start()
		}
		w.changes(200)
		w.settle("with clocks " + shift.String() + " off")
	}
}
