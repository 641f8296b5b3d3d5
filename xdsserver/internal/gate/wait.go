package gate

import (
	"context"
	"sync"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// The spacing of questions for the floor that found no watcher.
const (
	floorRetryFirst = 100 * time.Millisecond
	floorRetryMost  = time.Second
)

// wait looks whenever the replica has changed or a bound is reached, until the judge is done or the time is up.
func (g *Gate) wait(ctx context.Context, began time.Time, pod Pod, r Request) Answer {
	timeout := time.Duration(r.Timeout)
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	timed, cancel := context.WithDeadline(ctx, began.Add(timeout))
	var floors sync.WaitGroup
	defer floors.Wait()
	defer cancel()

	j := newJudge(&g.cfg, pod, r, began)
	bound := make(chan endpoint.Version, 1)
	asked := false
	for {
		changed := g.cfg.Replica.Changed()
		v := g.look(j)
		if v.done {
			return j.answer(v, time.Now())
		}
		if v.floor && !asked {
			asked = true
			floors.Go(func() { g.askFloor(timed, j.pod.Cluster, bound) })
		}
		wake := time.NewTimer(time.Until(v.wake))
		if v.wake.IsZero() {
			wake.Stop()
		}
		select {
		case <-changed:
		case j.bound = <-bound:
		case <-wake.C:
		case <-timed.Done():
			wake.Stop()
			if ctx.Err() != nil {
				v.reason = Cancelled
			}
			return j.answer(v, time.Now())
		}
		wake.Stop()
	}
}

// look is one look of the judge in one moment of the replica.
func (g *Gate) look(j *judge) verdict {
	if j.pod.Cluster == "" {
		known := g.cfg.Clusters()
		if len(known) != 1 {
			return verdict{reason: Unknown}
		}
		j.pod.Cluster = known[0]
	}
	var v verdict
	g.cfg.Replica.Step(j.pod, func(m Moment) bool {
		v = j.look(m, time.Now())
		return v.drained
	})
	return v
}

// askFloor asks for the floor until a watcher answers or ctx ends.
func (g *Gate) askFloor(ctx context.Context, cluster string, bound chan<- endpoint.Version) {
	for pause := floorRetryFirst; ; pause = min(2*pause, floorRetryMost) {
		b, err := g.cfg.Floor(ctx, cluster)
		if err == nil && !b.IsZero() {
			bound <- b
			return
		}
		g.cfg.Log.Debug("no watcher told the floor", "cluster", cluster, "err", err)
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return
		}
	}
}
