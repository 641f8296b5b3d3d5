package projector

import (
	"context"
	"log/slog"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// warnEvery spaces the reports of failing writes: while the bus is away, every Key fails.
const warnEvery = 10 * time.Second

// outcome is what became of a write, or of a checkpoint.
type outcome struct {
	r          *runner
	write      write
	checkpoint *ledger.Checkpoint // set for a checkpoint
	result     ledger.Result
	read       *ledger.Notice // what the bus held instead, after a conflict
	err        error
}

// put sends a write on its way.
func (o *owner) put(ctx context.Context, r *runner, w write) {
	o.flying++
	o.metrics.flying.Set(float64(o.flying))
	o.send(ctx, func(ctx context.Context) outcome {
		out := outcome{r: r, write: w}
		if out.result, out.err = o.cfg.States.Put(ctx, w.state, w.expect); out.err == nil && !out.result.Saved {
			var n ledger.Notice
			n, out.err = o.cfg.States.Get(ctx, w.state.Key)
			out.read = &n
		}
		return out
	})
}

// send does a write beside the owner, which hears of its outcome unless it has ended.
func (o *owner) send(ctx context.Context, do func(context.Context) outcome) {
	o.writers.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, o.cfg.WriteTimeout)
		defer cancel()
		select {
		case o.results <- do(bounded):
		case <-ctx.Done():
		}
	})
}

// certify sends the checkpoint of a machine on its way, when there is something new to say, the last one is long enough
// ago, and those who come before this replica have had the time to say it.
func (o *owner) certify(ctx context.Context, r *runner) {
	if r.certifying || r.certifySet {
		return
	}
	cp, expect, ok := r.certify()
	if !ok {
		return
	}
	now := time.Now()
	at := r.certifyAt
	if !r.deferred {
		at = later(at, now).Add(time.Duration(r.rank) * o.cfg.Hedge)
		r.deferred = true
	}
	if at.After(now) {
		r.certifySet = true
		o.agenda.add(alarm{at: at, r: r})
		return
	}
	r.deferred = false
	r.certifying, r.certifyAt = true, now.Add(o.cfg.CheckpointEvery)
	cp.Written = now
	o.send(ctx, func(ctx context.Context) outcome {
		out := outcome{r: r, checkpoint: &cp}
		out.result, out.err = o.cfg.Certifier.Certify(ctx, r.cluster, cp, expect)
		return out
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// result takes in what became of a write.
func (o *owner) result(ctx context.Context, out outcome) {
	r := out.r
	if out.checkpoint != nil {
		r.certifying = false
		r.gauges.checkpoint(out)
		if out.err != nil {
			o.warn(out)
		}
		o.serve(ctx, r)
		return
	}
	o.flying--
	o.metrics.flying.Set(float64(o.flying))
	r.gauges.wrote(out)
	key := out.write.state.Key
	switch {
	case out.err != nil:
		o.warn(out)
		r.failed(out.write)
		o.unaccepted(r, key, 0)
	case out.result.Saved:
		o.observe(out.write)
		r.done(out.write, out.result.Seq)
		o.succeeded(r, key)
	default:
		r.read(out.write, *out.read)
		o.unaccepted(r, key, conflictsInRow)
	}
	o.serve(ctx, r)
	for len(o.stalled) > 0 && o.flying < o.cfg.Parallel {
		next := o.stalled[0]
		o.stalled = o.stalled[1:]
		next.stalled = false
		o.serve(ctx, next)
	}
}

// observe takes the time from the event that caused a write to its acceptance.
func (o *owner) observe(w write) {
	if o.cfg.Propagation != nil && !w.cause.IsZero() {
		o.cfg.Propagation.WithLabelValues("project").Observe(max(0, time.Since(w.cause)).Seconds())
	}
}

// warn reports a write that failed, now and then.
func (o *owner) warn(out outcome) {
	now := time.Now()
	if now.Sub(o.warned) < warnEvery {
		return
	}
	o.warned = now
	if out.checkpoint != nil {
		o.cfg.Log.Warn("checkpoint not written", slog.String("cluster", out.r.cluster), slog.Any("err", out.err))
		return
	}
	o.cfg.Log.Warn("state not written: will be tried again", slog.String("key", out.write.state.Key.String()),
		slog.Int("failing", o.failing), slog.Any("err", out.err))
}
