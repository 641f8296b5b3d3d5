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
	held       map[endpoint.Key]hold
	tries      map[endpoint.Key]int // writes of a Key in a row that were not accepted
	certifying bool
	certifyAt  time.Time // no checkpoint before
	certifySet bool      // an alarm at certifyAt is on the agenda
	stalled    bool      // is in the owner's list of those that wait for room
	gauges     gauges
}

// hold says that a Key is not to be written yet.
type hold uint8

const (
	waiting hold = iota + 1 // an alarm is on the agenda
	ripe                    // the alarm has rung: the next look is without delay
)

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
	if n.Kind == ledger.Complete {
		// The bus is there: nothing has to wait for its next try any longer.
		for key := range r.held {
			r.held[key] = ripe
			r.again(key)
		}
	}
	return resync
}

// runner gives the machine of a cluster, which is made, and told of the sessions at hand, when it is new.
func (o *owner) runner(cluster string) *runner {
	r, known := o.runners[cluster]
	if known {
		return r
	}
	r = &runner{
		machine: newMachine(cluster),
		held:    map[endpoint.Key]hold{},
		tries:   map[endpoint.Key]int{},
		gauges:  o.metrics.cluster(cluster),
	}
	o.runners[cluster] = r
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
		if o.holds(r, key) {
			continue
		}
		if w, wanted := r.look(key); wanted {
			o.put(ctx, r, w)
		} else {
			o.succeeded(r, key)
		}
	}
	o.certify(ctx, r)
}

// holds reports whether key has to wait, for its next try or for another replica.
func (o *owner) holds(r *runner, key endpoint.Key) bool {
	switch r.held[key] {
	case waiting:
		return true
	case ripe:
		delete(r.held, key)
		return false
	}
	delay := o.cfg.Delay(r.cluster)
	if delay > 0 {
		o.hold(r, key, delay)
	}
	return delay > 0
}

func (o *owner) hold(r *runner, key endpoint.Key, delay time.Duration) {
	r.held[key] = waiting
	o.agenda.add(alarm{time.Now().Add(delay), r, key})
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
		} else if a.r.held[a.key] == waiting {
			a.r.held[a.key] = ripe
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
	wait := min(o.cfg.RetryMin<<min(n-1, 16), o.cfg.RetryMax)
	o.hold(r, key, wait/2+rand.N(wait/2+1))
}
