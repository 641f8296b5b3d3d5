package watcher

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sync/errgroup"
)

// Member is one registered watcher of a cluster.
type Member struct {
	ID   string
	Info []byte
}

// Registry tells the watchers of a cluster of each other.
type Registry interface {
	// Announce keeps this watcher of cluster registered, with info, until ctx ends.
	Announce(ctx context.Context, cluster string, info []byte) error
	// Update changes the info of this watcher. It does not wait for the bus.
	Update(cluster string, info []byte) error
	// Members hands the complete set of the registered watchers of cluster to handle, again whenever it changes, until
	// ctx ends.
	Members(ctx context.Context, cluster string, handle func([]Member)) error
}

// Registration is what a watcher says of itself in the registry. Later releases may say more.
type Registration struct {
	Self       string `json:"self"`                 // names the process's watcher
	UID        string `json:"uid,omitempty"`        // identity of the cluster that it hears, "" while unknown
	Generation uint64 `json:"generation,omitempty"` // that it writes with, 0 while it writes nothing
	Extent     string `json:"scope,omitempty"`      // what of the cluster it publishes
}

// ReadRegistration reads the Info of a Member.
func ReadRegistration(info []byte) (r Registration, err error) {
	err = json.Unmarshal(info, &r)
	return r, err
}

// others is the part of the loop that is about the other watchers of the cluster.
type others struct {
	members    bool           // the set has been heard
	registered []Registration // without this watcher
	unheard    time.Time      // until then the set is waited for, at the start; zero: not any more
	waiting    bool           // leftovers wait for some of them, and it was said
}

// info is the registration of this watcher.
func (w *Watcher) info() []byte {
	s := w.Status()
	text, err := json.Marshal(Registration{Self: w.self, UID: s.UID, Generation: s.Generation, Extent: w.cfg.Extent})
	if err != nil {
		panic(err) // four plain fields
	}
	return text
}

// say tells the registry what has changed since the status before.
func (w *Watcher) say(before *Status) {
	if s := w.Status(); w.cfg.Registry == nil || s.UID == before.UID && s.Generation == before.Generation {
		return
	}
	if err := w.cfg.Registry.Update(w.cfg.Cluster, w.info()); err != nil {
		w.cfg.Log.Warn("the registry of watchers fails", "what", "update", "err", err)
	}
}

// register keeps this watcher registered, and hears of the others. A registry that fails is tried again for ever: it can
// hold removals back, and nothing else depends on it.
func (w *Watcher) register(ctx context.Context, g *errgroup.Group) {
	if w.cfg.Registry == nil {
		return
	}
	again := func(what string, run func() error) {
		g.Go(func() error {
			for attempt := 0; ctx.Err() == nil; attempt++ {
				if err := run(); err != nil && attempt == 0 {
					w.cfg.Log.Warn("the registry of watchers fails, trying again", "what", what, "err", err)
				}
				timer := time.NewTimer(backoff(attempt, time.Second, time.Minute))
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
				}
			}
			return nil
		})
	}
	again("announce", func() error { return w.cfg.Registry.Announce(ctx, w.cfg.Cluster, w.info()) })
	again("members", func() error {
		return w.cfg.Registry.Members(ctx, w.cfg.Cluster, func(all []Member) {
			w.send(ctx, func(ctx context.Context, l *loop) { l.heardOf(ctx, all) })
		})
	})
}

// heardOf takes the set of registered watchers. What cannot be read is of another release, and says nothing.
func (l *loop) heardOf(ctx context.Context, all []Member) {
	l.members, l.registered, l.unheard = true, nil, time.Time{}
	for _, m := range all {
		if r, err := ReadRegistration(m.Info); err == nil && r.Self != l.w.self {
			l.registered = append(l.registered, r)
		}
	}
	l.judgeOthers(ctx)
}

// judgeOthers looks at what the other watchers hold back.
func (l *loop) judgeOthers(ctx context.Context) {
	if l.narrowed {
		l.judgeRecord(ctx)
	}
	l.waiting = l.waiting && l.laggards() > 0
	if !l.waiting {
		for s := range l.awaiting {
			l.touch(s)
		}
	}
}

// laggards counts the registered watchers of this cluster that write with a lower generation.
func (l *loop) laggards() int {
	n := 0
	if !l.members && !l.unheard.IsZero() {
		n++ // nobody has said yet who is there
	}
	for _, o := range l.registered {
		if o.UID == l.uid && o.Generation != 0 && o.Generation < l.generation {
			n++
		}
	}
	return n
}
