package projector

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// side is one of the two streams.
type side int

const (
	eventsSide side = iota
	statesSide
	sides
)

func (s side) String() string { return [...]string{"events", "states"}[s] }

// conflictsInRow is how many times a Key may lose its compare-and-set before it backs off as after a failure.
const conflictsInRow = 3

// owner runs the machines. Its goroutine (run) owns every field but the channels; followers and writers send to it.
type owner struct {
	cfg     Config
	metrics *Metrics
	notices chan delivery
	results chan outcome
	writers sync.WaitGroup

	runners  map[string]*runner
	opened   [sides]*ledger.Notice // of the session at hand, for machines made later
	complete [sides]*ledger.Notice
	flying   int // writes of States on their way
	stalled  []*runner
	agenda   agenda
	failing  int       // Keys whose last write failed
	warned   time.Time // when a failing write was last reported
}

// runner is a machine and what its owner has to remember for it.
type runner struct {
	*machine
	rank       int // of this replica for the cluster
	held       holds
	tries      map[endpoint.Key]int // writes of a Key in a row that were not accepted
	certifying bool
	certifyAt  time.Time // no checkpoint before; put off by each one, whoever wrote it
	certifySet bool      // an alarm for the next checkpoint is on the agenda
	deferred   bool      // those of a lower rank have been given their time since the last checkpoint
	stalled    bool      // is in the owner's list of those that wait for room
	gauges     gauges
}

// delivery is a notice on its way to the owner.
type delivery struct {
	side   side
	notice ledger.Notice
	reply  chan error // has room for one
}

func newOwner(cfg Config, metrics *Metrics) *owner {
	return &owner{
		cfg:     cfg,
		metrics: metrics,
		notices: make(chan delivery),
		results: make(chan outcome),
		runners: map[string]*runner{},
	}
}

// handler gives what a Follow calls with each notice: it hands the notice to the owner and waits for the verdict.
func (o *owner) handler(ctx context.Context, from side) func(ledger.Notice) error {
	reply := make(chan error, 1)
	return func(n ledger.Notice) error {
		select {
		case o.notices <- delivery{from, n, reply}:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-reply:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run is the goroutine of the owner.
func (o *owner) run(ctx context.Context) {
	defer o.writers.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(o.agenda.next(time.Now()))
		select {
		case <-ctx.Done():
			return
		case d := <-o.notices:
			d.reply <- o.notice(ctx, d)
		case r := <-o.results:
			o.result(ctx, r)
		case <-timer.C:
			o.ring(ctx, time.Now())
		case <-o.cfg.Ranks.news():
			o.rerank(ctx, time.Now())
		}
	}
}

// notice gives a notice to the machines that it concerns.
func (o *owner) notice(ctx context.Context, d delivery) error {
	n := d.notice
	switch n.Kind {
	case ledger.Opened:
		o.opened[d.side], o.complete[d.side] = &n, nil
	case ledger.Complete:
		o.complete[d.side] = &n
	default:
		return o.feed(ctx, o.runner(n.Cluster), d.side, n)
	}
	for _, r := range o.runners {
		if err := o.feed(ctx, r, d.side, n); err != nil {
			return err
		}
	}
	return nil
}

// feed gives a notice to one machine and does what the machine then wants.
func (o *owner) feed(ctx context.Context, r *runner, from side, n ledger.Notice) error {
	matched := r.matched
	resync := o.tell(r, from, n)
	if r.matched && !matched {
		o.cfg.Log.Info("first match with a checkpoint: projecting", slog.String("cluster", r.cluster), slog.String("floor", r.floor.String()))
	}
	o.serve(ctx, r)
	if resync {
		o.cfg.Log.Warn("view disagrees with its checkpoints: new session", slog.String("cluster", r.cluster), slog.String("stream", from.String()))
		r.gauges.resyncs[from].Inc()
		return ledger.ErrResync
	}
	return nil
}

func (o *owner) tell(r *runner, from side, n ledger.Notice) (resync bool) {
	if from == eventsSide {
		return r.event(n)
	}
	resync = r.state(n)
	if n.Kind == ledger.Refused && n.Of == ledger.Changed {
		o.respect(r, n.Key)
	}
	if n.Kind == ledger.Certified && r.states.ledger.IsComplete() {
		// By this replica or another: the next one is due when this one is old, and the others have their time again.
		r.certifyAt, r.deferred = later(r.certifyAt, time.Now().Add(o.cfg.CheckpointEvery)), false
	}
	if n.Kind == ledger.Complete {
		// The bus is there: nothing has to wait for its next try any longer.
		for key, h := range r.held {
			if h.rank == 0 {
				r.held[key] = hold{}
				r.again(key)
			}
		}
	}
	return resync
}

// spoilsInRow is how many times a State that cannot be read is written over at once.
const spoilsInRow = 3

// respect holds a Key back whose State comes in a form that cannot be read again and again: somebody may mean it, and two
// who write over each other without a pause would do nothing else.
func (o *owner) respect(r *runner, key endpoint.Key) {
	if n := r.services[key].spoils - spoilsInRow; n > 0 {
		o.hold(r, key, n)
	}
}

// runner gives the machine of a cluster, which is made, and told of the sessions at hand, when it is new.
func (o *owner) runner(cluster string) *runner {
	r, known := o.runners[cluster]
	if known {
		return r
	}
	r = &runner{
		machine: newMachine(cluster),
		held:    holds{},
		tries:   map[endpoint.Key]int{},
		gauges:  o.metrics.cluster(cluster),
	}
	o.runners[cluster] = r
	o.rank(r)
	for from := range sides {
		for _, n := range []*ledger.Notice{o.opened[from], o.complete[from]} {
			if n != nil {
				o.tell(r, from, *n)
			}
		}
	}
	return r
}

// serve starts the writes that a machine wants, as far as there is room, and its checkpoint.
func (o *owner) serve(ctx context.Context, r *runner) {
	defer func() { r.gauges.set(r.machine) }()
	for {
		if o.flying >= o.cfg.Parallel {
			if !r.stalled {
				r.stalled = true
				o.stalled = append(o.stalled, r)
			}
			return
		}
		key, some := r.pop()
		if !some {
			break
		}
		o.attend(ctx, r, key)
	}
	o.certify(ctx, r)
}

// attend looks at one Key: it is written, or waits, or wants nothing.
func (o *owner) attend(ctx context.Context, r *runner, key endpoint.Key) {
	w, wanted := r.wants(key)
	if !wanted {
		r.gauges.spared(r.held.end(key))
		o.succeeded(r, key)
		return
	}
	v, spared := r.held.ask(time.Now(), key, w, r.rank, o.cfg.Hedge)
	r.gauges.spared(spared)
	switch v {
	case goes:
		w.rank = r.rank
		r.take(w)
		o.put(ctx, r, w)
	case waits:
		o.agenda.add(alarm{r.held[key].until, r, key})
	}
}

// rank brings the rank of a runner up to date.
func (o *owner) rank(r *runner) {
	rank, known := o.cfg.Ranks.Of(r.cluster)
	r.rank = rank
	r.gauges.ranked(rank, known)
}

// rerank takes in that replicas have come or gone. What waited for one that is gone waits for one hedge less.
func (o *owner) rerank(ctx context.Context, now time.Time) {
	for _, r := range o.runners {
		o.rank(r)
		for key, h := range r.held {
			if r.rank < h.rank {
				h.until = h.until.Add(-time.Duration(h.rank-r.rank) * o.cfg.Hedge)
				h.rank = max(r.rank, 1)
				r.held[key] = h
				o.agenda.add(alarm{h.until, r, key})
			}
		}
	}
	o.ring(ctx, now)
}

// ring wakes what is due.
func (o *owner) ring(ctx context.Context, now time.Time) {
	for {
		a, due := o.agenda.due(now)
		if !due {
			return
		}
		if a.key == (endpoint.Key{}) {
			a.r.certifySet = false
		} else if h, held := a.r.held[a.key]; held && !now.Before(h.until) {
			a.r.again(a.key)
		}
		o.serve(ctx, a.r)
	}
}

// succeeded forgets the failures of a Key.
func (o *owner) succeeded(r *runner, key endpoint.Key) {
	if _, failed := r.tries[key]; failed {
		delete(r.tries, key)
		o.failing--
	}
}

// unaccepted counts a write of key that was not accepted, and holds the Key back when it is one of many.
func (o *owner) unaccepted(r *runner, key endpoint.Key, free int) {
	if r.tries[key] == 0 {
		o.failing++
	}
	r.tries[key]++
	n := r.tries[key] - free
	if n <= 0 {
		return
	}
	o.hold(r, key, n)
}

// hold lets a Key wait, the longer the higher n is, from 1.
func (o *owner) hold(r *runner, key endpoint.Key, n int) {
	wait := min(o.cfg.RetryMin<<min(n-1, 16), o.cfg.RetryMax)
	until := time.Now().Add(wait/2 + rand.N(wait/2+1))
	r.held[key] = hold{until: until}
	o.agenda.add(alarm{until, r, key})
}
