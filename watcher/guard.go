package watcher

import (
	"context"
	"time"
)

// guard is the part of the loop that is about the extent of what is published, against removals by a slip of the pen.
//
// The record names the extent in force. A watcher of another one writes nothing while a registered watcher publishes
// the one in force: two extents would fight. Alone, it publishes what it sees and the deletions that it hears of, which
// are positive evidence; but what is on the bus and was never in its cache stays until its extent is in force, and nothing
// is certified, nor is more published than readers can take without a new generation. It brings
// it in force by itself where no more than a fifth of the cluster's slices would go, else when it was started with
// Config.ConfirmRemoval. A list in the extent in force is evidence as good as the deletions that it sums up, and is
// never held.
type guard struct {
	force     string // the extent in force, as last known; "" when nobody has said so
	narrowed  bool   // the record names another extent
	rival     bool   // and somebody publishes it: nothing is written
	confirmed bool   // ConfirmRemoval was used; it counts once
	inForce   bool   // the own extent was in force since the start
	held      int    // removals that wait for a confirmation
	nextWeigh time.Time
	yieldTo   time.Time // until then somebody is taken to publish the extent that has replaced the own one
}

// yieldFor is how long it may take until the registry shows who is there.
const yieldFor = 30 * time.Second

// TooMany reports whether removing so many of all slices of a cluster has to be confirmed: more than a fifth.
func TooMany(removed, all int) bool { return 5*removed > all }

// judgeExtent compares the extent in force with the own one.
func (l *loop) judgeExtent() {
	if l.recordSeq != 0 {
		l.force = l.record.Scope
	}
	if l.force == l.cfg.Extent || l.force == "" {
		if l.narrowed {
			l.cfg.Log.Info("this watcher's part of the cluster is the one that is published now", "scope", l.cfg.Extent)
		}
		if l.narrowed && l.epoch != 0 && !l.unversioned {
			l.relist() // what was not looked at in this list before
		}
		l.inForce, l.confirmed, l.narrowed, l.rival, l.held = true, true, false, false, 0
		for s := range l.awaiting {
			l.touch(s)
		}
		return
	}
	if !l.narrowed && l.inForce {
		l.yieldTo = time.Now().Add(yieldFor)
	}
	l.narrowed = true
	rival := l.rivals() && !l.mayConfirm()
	if rival && !l.rival {
		l.cfg.Log.Error("another part of the cluster is published by another watcher: nothing is written, since the two would fight; end one of them",
			"here", l.cfg.Extent, "bus", l.force)
	}
	if l.rival && !rival && l.epoch != 0 && !l.unversioned {
		l.relist()
	}
	if l.rival = rival; !rival {
		l.nextWeigh = time.Now()
	}
}

// mayConfirm reports whether what the extent changes is meant, as was said at the start. It counts once.
func (l *loop) mayConfirm() bool { return l.cfg.ConfirmRemoval && !l.confirmed }

// rivals reports whether the extent in force may be somebody's: who is registered says, or, where nobody can say, that it
// has replaced the own one.
func (l *loop) rivals() bool {
	switch {
	case l.cfg.Registry == nil:
		return l.inForce
	case !l.members || time.Now().Before(l.yieldTo):
		return true
	}
	for _, o := range l.registered {
		if o.UID == l.uid && o.Extent == l.force {
			return true
		}
	}
	return false
}

// weigh counts what the own extent would remove, and brings it in force where that is little or confirmed.
func (l *loop) weigh(ctx context.Context, now time.Time) {
	if l.nextWeigh.IsZero() || l.nextWeigh.After(now) {
		return
	}
	if l.nextWeigh = (time.Time{}); !l.narrowed || !l.writable() || l.recording || !l.recordWait.IsZero() {
		return
	}
	live, missing := 0, 0
	for _, e := range l.view() {
		if e.Live() {
			live++
		}
	}
	for _, p := range Missing(l.isCached, l.view()) {
		if _, there := l.hidden[l.subjects[p].object()]; !there && l.subjects[p].left.IsZero() {
			missing++
		}
	}
	// A bus that has lost its content since shows less than would go.
	if (l.held > 0 || TooMany(missing, live)) && !l.mayConfirm() {
		if l.held == 0 {
			l.cfg.Log.Error("a change of scope would remove many slices of the cluster: they stay until the watcher is started with --confirm-removal",
				"removed", missing, "of", live, "here", l.cfg.Extent, "bus", l.force)
		}
		l.held = max(l.held, missing)
		return
	}
	l.held, l.confirmed = 0, l.confirmed || l.cfg.ConfirmRemoval
	l.cfg.Log.Warn("the scope of the cluster changes", "removed", missing, "of", live, "before", l.force, "scope", l.cfg.Extent)
	r := l.record
	r.Scope = l.cfg.Extent
	l.putRecord(ctx, r)
}
