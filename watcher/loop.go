package watcher

import (
	"container/heap"
	"context"
	"iter"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// subject is all that the loop knows of one slice.
type subject struct {
	place  Place
	id     string          // in the ledger
	cached *endpoint.Slice // what the source says; nil: not there
	held   Held            // of cached
	seen   Entry           // what the session has shown
	known  Entry           // the newest known: seen, or an own accepted write, or an answer of Get
	sure   uint64          // sequence of the message whose body is known to be good: written or read by this process
	right  uint64          // resource as of which seen was last right about the slice; 0: not known
	base   *endpoint.Slice // content of known.Version, where this watcher has had it; for transitions

	left    time.Time // when the source said that the slice is gone
	live    bool      // the state to write comes from a live change: its latency counts
	queued  bool
	writing bool
	waiting bool // in retries
	fails   int
	dirty   time.Time // since when the last state is not on the bus; zero: it is
	warned  Held      // disagreement that was reported
}

// object gives the name of the slice's object in the cluster.
func (s *subject) object() object { return object{s.place.Key.Namespace, s.place.Slice} }

// loop is the state of a running Watcher. The goroutine in run owns every field; others send it messages. The group
// holds all goroutines of a Run.
type loop struct {
	w     *Watcher
	cfg   *Config
	group *errgroup.Group

	subjects map[Place]*subject
	objects  map[object]*subject                // cached ones
	services map[endpoint.Key]map[*subject]bool // cached ones, for peers
	open     map[*subject]bool                  // not settled between cache and session
	awaiting map[*subject]bool                  // live on the bus, not cached, no tombstone possible yet
	waits    map[endpoint.Key][]*subject        // those of them that wait for the slices of their service to be written
	hidden   map[object]uint64                  // objects that are there and not published, with their versions

	source  // cache side, source side
	session // bus side
	others  // the other watchers of the cluster
	scrub   // bodies of messages that others wrote
	guard   // against mass removal

	queue    []*subject // to be written, in order
	inflight int
	retries  retries
	dirty    int

	lastCertify time.Time
	lastLook    time.Time // at what could be certified
	partAt      time.Time // a checkpoint below the as-of may be written; zero: none is due
	nextWarn    time.Time // of failed writes
	certifying  bool
	could       bool             // it was possible to write when last looked at
	stirred     bool             // something changed since a checkpoint was last considered
	wanted      endpoint.Version // a query waits for a checkpoint of this version
	certLost    int              // compare-and-sets lost in a row
	lookedOld   time.Time        // when the oldest dirty slice was last looked for
}

// source is the part of the loop that is about the cluster.
type source struct {
	uid         string
	epoch       uint64 // of the running Watch
	stop        func() // ends the running Watch
	ended       chan struct{}
	generation  uint64 // of the running Watch; the highest ever seen for this uid
	listed      bool   // the running Watch has listed
	listedAt    time.Time
	unversioned bool
	partial     bool // the list is not all that there is: nothing may be called gone
	asOf        endpoint.Version
	parts       map[string]uint64 // as-of by namespace, where the source hears each by itself
	mark        mark              // when its last list began
	pending     *Update           // an unversioned list that waits for the session
	connected   bool
	told        bool // the state of the connection was logged
	otherThere  bool // another cluster answered
	heard       time.Time
	stale       bool      // not heard for too long, and not listed since
	relistAt    time.Time // a new list is due; zero: none is
	nextRelist  time.Time
	relistPause time.Duration

	nextDispute  time.Time // see dispute
	disputePause time.Duration
	nextRaise    time.Time
	raisePause   time.Duration
}

// mark is what was known when a consistent list, or a proof, began.
type mark struct {
	session uint64
	seq     uint64 // all up to it had been seen
	top     uint64 // highest resource of the generation known by then
	vouched endpoint.Version
}

// session is the part of the loop that is about the bus.
type session struct {
	number       uint64
	complete     bool
	ledger       *ledger.Ledger
	lastSlice    uint64 // sequence of the last message of a slice
	cert         ledger.Checkpoint
	certSeq      uint64
	record       ledger.Record
	recordSeq    uint64
	foreign      bool // the record names another identity
	recording    bool
	recordWait   time.Time
	recordFailed bool // and it was said
	regioned     bool // the region was written once
	top          uint64
	vouched      endpoint.Version // the view agreed with a checkpoint of this version
	proven       uint64           // messages up to it have been seen by a consistent read that began later
	proving      bool
	proof        mark   // that is being made
	proofAt      uint64 // resource that the cache must reach for proof to hold; 0: not known yet
	nextProof    time.Time
	endSession   func()
	nextResync   time.Time
	pause        time.Duration
}

func newLoop(w *Watcher, g *errgroup.Group) *loop {
	l := &loop{
		w: w, cfg: &w.cfg, group: g,
		subjects: map[Place]*subject{}, objects: map[object]*subject{}, services: map[endpoint.Key]map[*subject]bool{},
		open: map[*subject]bool{}, awaiting: map[*subject]bool{}, waits: map[endpoint.Key][]*subject{}, hidden: map[object]uint64{},
		session: session{ledger: ledger.New(), endSession: func() {}},
	}
	if w.cfg.Registry != nil {
		l.unheard = time.Now().Add(yieldFor)
	}
	return l
}

// run owns the loop until ctx ends.
func (l *loop) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		l.wake(ctx, now)
		l.pump(ctx)
		l.certify(ctx, now)
		l.tell(now)
		timer.Reset(l.next(now))
		select {
		case m := <-l.w.inbox:
			m(ctx, l)
			l.drain(ctx)
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// drain takes what else is waiting, so that a burst costs one round.
func (l *loop) drain(ctx context.Context) {
	for range cap(l.w.inbox) {
		select {
		case m := <-l.w.inbox:
			m(ctx, l)
		default:
			return
		}
	}
}

// wake does what the clock asks for.
func (l *loop) wake(ctx context.Context, now time.Time) {
	for len(l.retries) > 0 && !l.retries[0].at.After(now) {
		s := heap.Pop(&l.retries).(retry).s
		if s.waiting {
			s.waiting = false
			l.touch(s)
		}
	}
	if !l.stale && l.epoch != 0 && now.Sub(l.heard) >= l.cfg.APIStale {
		l.stale = true
		l.cfg.Log.Warn("the source was not heard for too long: nothing is written", "heard", l.heard)
	}
	if !l.recordWait.IsZero() && !l.recordWait.After(now) {
		l.recordWait = time.Time{}
		l.judgeRecord(ctx)
	}
	if !l.relistAt.IsZero() && !l.relistAt.After(now) {
		l.relistPause = min(max(2*l.relistPause, time.Second), 10*time.Minute)
		l.relistAt, l.nextRelist = time.Time{}, now.Add(l.relistPause)
		l.watch(ctx, l.generation)
	}
	if !l.yieldTo.IsZero() && !l.yieldTo.After(now) {
		l.yieldTo = time.Time{}
		l.judgeRecord(ctx)
	}
	if !l.members && !l.unheard.IsZero() && !l.unheard.After(now) {
		l.unheard = time.Time{}
		l.judgeOthers(ctx)
	}
	if !l.partAt.IsZero() && !l.partAt.After(now) {
		l.partAt, l.stirred = time.Time{}, true
	}
	l.resume(ctx)
	l.weigh(ctx, now)
	l.prove(ctx)
}

// next says how long the loop may sleep.
func (l *loop) next(now time.Time) time.Duration {
	d := time.Hour
	until := func(t time.Time) { d = min(d, max(0, t.Sub(now))) }
	for _, t := range [...]time.Time{l.recordWait, l.relistAt, l.partAt, l.yieldTo, l.unheard, l.nextWeigh} {
		if !t.IsZero() {
			until(t)
		}
	}
	if len(l.retries) > 0 {
		until(l.retries[0].at)
	}
	if l.epoch != 0 && !l.stale {
		until(l.heard.Add(l.cfg.APIStale))
	}
	if len(l.awaiting) > 0 && l.nextProof.After(now) {
		until(l.nextProof)
	}
	if l.stirred && !l.certifying && l.writable() && !l.narrowed {
		until(l.certifyAt())
	}
	return d
}

// writable reports whether anything may be written: list and session complete, the record ours, the source heard, and
// nobody else is at work with another extent.
func (l *loop) writable() bool {
	return l.complete && l.listed && l.agreed() && !l.stale && !l.rival
}

// agreed reports whether the record in the view is ours and of the generation that is being watched.
func (l *loop) agreed() bool {
	return l.recordSeq != 0 && l.uid != "" && l.record.UID == l.uid && l.record.Generation == l.generation
}

// subject gives what is known of a slice, making room for it.
func (l *loop) subject(p Place) *subject {
	s := l.subjects[p]
	if s == nil {
		s = &subject{place: p, id: p.Key.String() + "/" + p.Slice}
		l.subjects[p] = s
	}
	return s
}

// forget drops a slice that nobody knows anything of.
func (l *loop) forget(s *subject) {
	if s.cached == nil && s.known.Seq == 0 && s.seen.Seq == 0 && !s.writing && !s.queued && !s.waiting {
		delete(l.subjects, s.place)
		delete(l.open, s)
		delete(l.awaiting, s)
	}
}

// touch looks at a slice again, after its cache or view changed.
func (l *loop) touch(s *subject) {
	l.stirred = true
	if l.heldBy(s).Settled(s.seen) {
		delete(l.open, s)
	} else {
		l.open[s] = true
	}
	if s.cached != nil && s.known.Live() && s.known.Version == s.held.Version && s.known.Hash == s.held.Hash {
		s.base = s.cached
	}
	if !l.writable() || s.writing || s.queued || s.waiting {
		return
	}
	if l.decide(s) == Nothing {
		l.clean(s)
		return
	}
	if s.dirty.IsZero() {
		s.dirty = time.Now()
		l.dirty++
	}
	s.queued = true
	l.queue = append(l.queue, s)
}

// clean notes that the bus needs nothing more of a slice.
func (l *loop) clean(s *subject) {
	s.live = false
	if !s.dirty.IsZero() {
		s.dirty = time.Time{}
		l.dirty--
	}
	l.forget(s)
}

// reconsider looks at everything again: after it became possible to write.
func (l *loop) reconsider() {
	l.retries = nil
	for _, s := range l.subjects {
		s.waiting, s.fails = false, 0
		if s.cached != nil {
			l.touch(s)
		}
	}
	for _, p := range Missing(l.isCached, l.view()) {
		l.touch(l.subjects[p])
	}
	l.stirred = true
}

func (l *loop) isCached(p Place) bool { s := l.subjects[p]; return s != nil && s.cached != nil }

// view iterates over the newest that is known of the bus.
func (l *loop) view() iter.Seq2[Place, Entry] {
	return func(yield func(Place, Entry) bool) {
		for p, s := range l.subjects {
			if !yield(p, s.known) {
				return
			}
		}
	}
}

// retry is a slice that may be tried again at a time.
type retry struct {
	at time.Time
	s  *subject
}

// retries is a heap by time.
type retries []retry

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	old := *r
	last := old[len(old)-1]
	old[len(old)-1] = retry{}
	*r = old[:len(old)-1]
	return last
}

// backoff gives a pause after the nth failure in a row (from 0): doubling from first, at most limit, with jitter
// between a half and the whole.
func backoff(n int, first, limit time.Duration) time.Duration {
	d := min(limit, first<<min(n, 16))
	return d/2 + rand.N(d/2+1)
}
