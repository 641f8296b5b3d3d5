package gate

import (
	"context"
	"crypto/rand"
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
	t := newTeam(g, rand.Text())
	drained := false
	defer func() { t.end(ctx, j, drained) }()
	bound := make(chan endpoint.Version, 1)
	asked := false
	for {
		changed := g.cfg.Replica.Changed()
		looked := time.Now()
		v := g.jointly(timed, t, j, g.look(j, t.wait))
		next := looked.Add(g.share(time.Since(looked)))
		if v.done {
			drained = v.drained
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
			rest(timed, next)
		case j.bound = <-bound:
		case <-t.changed:
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

// lookShare is the part of its time that a replica lets all waits together look at it, one over it: a look keeps it
// from applying and sending anything. Changes that come in between are seen together.
const lookShare = 4

// share gives how long the looks of one wait must lie apart, from what one has cost.
func (g *Gate) share(cost time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cost * time.Duration(lookShare*g.open)
}

// rest waits until a time has come or ctx ends.
func rest(ctx context.Context, until time.Time) {
	pause := time.Until(until)
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// look is one look of the judge in one moment of the replica.
func (g *Gate) look(j *judge, wait string) verdict {
	if j.pod.Cluster == "" {
		known := g.cfg.Clusters()
		if len(known) != 1 {
			return verdict{reason: Unknown}
		}
		j.pod.Cluster = known[0]
	}
	var v verdict
	g.cfg.Replica.Step(j.pod, wait, func(m Moment) bool {
		v = j.look(m, time.Now())
		return v.promise
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
