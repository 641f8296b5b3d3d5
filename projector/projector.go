package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Events is where events come from.
type Events interface {
	// Follow hands every notice of the EVENTS stream to handle, from one goroutine, until ctx ends. It opens a new
	// session when handle returns ledger.ErrResync, and ends with any other error of handle.
	Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error
}

// States is where States go, and come back from.
type States interface {
	// Follow is that of Events for the STATE stream.
	Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error
	// Put writes st if the last message of its Key has the sequence expect (0: there is none).
	Put(ctx context.Context, st endpoint.State, expect uint64) (ledger.Result, error)
	// Get reads the last message of key.
	Get(ctx context.Context, key endpoint.Key) (ledger.Notice, error)
}

// Certifier writes checkpoints of the STATE stream, by compare-and-set as States.Put does.
type Certifier interface {
	Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error)
}

// Config is what a Projector is made of.
type Config struct {
	Cluster   string // the only cluster to project; "" (the default) means every cluster on the bus
	Events    Events
	States    States
	Certifier Certifier

	// Ranks says which replica writes first. The one of rank n writes after n hedges what has not appeared on the bus
	// meanwhile. Nil means that there is only this one.
	Ranks *Ranks
	Hedge time.Duration // default 25 ms

	Parallel        int           // most writes of States on their way at once; default 128
	WriteTimeout    time.Duration // of one write; default 5 s
	RetryMin        time.Duration // before the first new try of a write that failed, doubled for each next one; default 50 ms
	RetryMax        time.Duration // between two tries at most; default 5 s
	CheckpointEvery time.Duration // between two checkpoints of a cluster at least; default 1 s

	// Propagation has the label "stage" and takes stage "project": from the time when the bus stored an event to
	// the time when it took the State. Nil drops it.
	Propagation prometheus.ObserverVec
	Registerer  prometheus.Registerer // nil registers nothing
	Log         *slog.Logger          // nil logs nothing
}

// Projector folds the events of all clusters into States. Make one with New.
type Projector struct {
	cfg     Config
	metrics *Metrics
}

// New checks cfg and fills its defaults. It starts nothing.
func New(cfg Config) (*Projector, error) {
	if cfg.Events == nil || cfg.States == nil || cfg.Certifier == nil {
		return nil, errors.New("projector: Events, States and Certifier are needed")
	}
	if cfg.Cluster != "" && !endpoint.IsLabel(cfg.Cluster) {
		return nil, fmt.Errorf("projector: cluster name %q is not a DNS label", cfg.Cluster)
	}
	for _, d := range []struct {
		name string
		at   *time.Duration
		want time.Duration
	}{
		{"Hedge", &cfg.Hedge, 25 * time.Millisecond},
		{"WriteTimeout", &cfg.WriteTimeout, 5 * time.Second},
		{"RetryMin", &cfg.RetryMin, 50 * time.Millisecond},
		{"RetryMax", &cfg.RetryMax, 5 * time.Second},
		{"CheckpointEvery", &cfg.CheckpointEvery, time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.want
		}
		if *d.at < 0 {
			return nil, fmt.Errorf("projector: %s is negative", d.name)
		}
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 128
	}
	if cfg.Parallel < 0 {
		return nil, errors.New("projector: Parallel is negative")
	}
	if cfg.RetryMax < cfg.RetryMin {
		return nil, fmt.Errorf("projector: RetryMax %s is below RetryMin %s", cfg.RetryMax, cfg.RetryMin)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	metrics, err := NewMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("projector: %w", err)
	}
	return &Projector{cfg, metrics}, nil
}

// Run projects until ctx ends, and then returns nil; it returns an error when a stream cannot be followed at all.
// All its goroutines have ended when it returns. It is called once.
func (p *Projector) Run(ctx context.Context) error {
	group, run := errgroup.WithContext(ctx)
	o := newOwner(p.cfg, p.metrics)
	group.Go(func() error { o.run(run); return nil })
	group.Go(func() error {
		if err := p.cfg.Events.Follow(run, p.cfg.Cluster, false, o.handler(run, eventsSide)); err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		return ended(run, "events")
	})
	group.Go(func() error {
		if err := p.cfg.States.Follow(run, p.cfg.Cluster, o.handler(run, statesSide)); err != nil {
			return fmt.Errorf("follow states: %w", err)
		}
		return ended(run, "states")
	})
	err := group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ended is the error of a Follow that returned nil: none when it was told to.
func ended(ctx context.Context, stream string) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("follow %s: ended by itself", stream)
}
