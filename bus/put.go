package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// put writes m by compare-and-set: the last message of its subject is the one of sequence expect, 0 for none. ttl 0 means
// for ever.
func (b *Bus) put(ctx context.Context, spec jetstream.StreamConfig, m message, expect uint64, ttl time.Duration) (ledger.Result, error) {
	options := []jetstream.PublishOpt{
		jetstream.WithExpectStream(spec.Name),
		jetstream.WithExpectLastSequencePerSubject(expect),
	}
	if ttl > 0 {
		options = append(options, jetstream.WithMsgTTL(ttl))
	}
	seq, err := b.publish(ctx, spec, m, options...)
	switch {
	case err == nil:
		return ledger.Result{Saved: true, Seq: seq}, nil
	case isConflict(err):
		b.metrics.conflicts.WithLabelValues(kindLabel(m.subject)).Inc()
		return ledger.Result{}, nil
	default:
		b.complain(spec.Name, err)
		return ledger.Result{}, err
	}
}

// complain logs why what this client does to a stream fails, where the reason has a name, once for each kind in a while:
// all writes of all subjects may fail so, and each of them again and again.
func (b *Bus) complain(stream string, err error) {
	kind := kindOf(err)
	switch kind {
	case kindNotConnected, kindTimeout, kindOther:
		return // The connection has its own lines; the rest is the caller's.
	}
	b.mu.Lock()
	last, now := b.complained[stream+kind], time.Now()
	due := last.IsZero() || now.Sub(last) >= complainEvery
	if due {
		b.complained[stream+kind] = now
	}
	b.mu.Unlock()
	if due {
		b.log.Error("bus refuses what is asked of a stream", "stream", stream, "kind", kind, "err", err)
	}
}

// publish writes m and gives its sequence. A lost compare-and-set comes as the server said it; any other error is named
// and counted.
func (b *Bus) publish(ctx context.Context, spec jetstream.StreamConfig, m message, options ...jetstream.PublishOpt) (uint64, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, done := b.link.guard(limited, m.subject)
	ack, err := b.js.PublishMsg(call, m.nats(), options...)
	cause := context.Cause(call)
	done()
	switch {
	case err == nil:
		b.answered(decision, nil)
		return ack.Sequence, nil
	case isConflict(err):
		b.answered(decision, nil)
		return 0, err
	}
	err = b.explain(ctx, spec, named(err, cause))
	b.metrics.failed.WithLabelValues(kindOf(err)).Inc()
	return 0, fmt.Errorf("publish %s: %w", m.subject, err)
}

// explain makes a missing stream after a call has found none, and gives the error that says more: that call's, or why there
// is still no stream. ctx is the caller's, without the limit of the call.
func (b *Bus) explain(ctx context.Context, spec jetstream.StreamConfig, err error) error {
	if errors.Is(err, ErrNoStream) {
		b.mu.Lock()
		known := b.streams[spec.Name]
		b.mu.Unlock()
		_, info, why := b.ensure(ctx, spec)
		switch {
		case why != nil:
			err = why
		case led(info) != nil:
			err = led(info)
		case info.Cluster != nil && known != nil && known.CachedInfo().Created.Equal(info.Created):
			err = fmt.Errorf("%w: nobody led %s", ErrNoQuorum, spec.Name) // It was there all the time.
		}
	}
	err = b.undecided(ctx, err)
	b.answered(decision, err)
	return err
}

// led gives ErrNoQuorum for a stream of a cluster that has no leader: any server tells of it then, and of the past.
func led(info *jetstream.StreamInfo) error {
	if info.Cluster != nil && info.Cluster.Name != "" && info.Cluster.Leader == "" {
		return fmt.Errorf("%w: nobody leads %s", ErrNoQuorum, info.Config.Name)
	}
	return nil
}

// undecided names the error of a call that got no answer from a cluster: a leader that has lost the others goes on to take
// calls. ctx is the caller's.
func (b *Bus) undecided(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && b.nc.ConnectedClusterName() != "" {
		return fmt.Errorf("%w: no answer within %s", ErrNoQuorum, callTimeout)
	}
	return err
}

// answered takes how a call of that sort ended. A server that was parted from the others keeps its clients, and serves them
// what it had; so a client that hears no answer of one sort for a while goes to another server.
func (b *Bus) answered(sort int, err error) {
	silent := errors.Is(err, ErrNoQuorum)
	if err != nil && !silent {
		return // It says nothing of the others.
	}
	if !b.link.silence(sort, silent, time.Now(), moveAfter*b.cfg.Heartbeat) || len(b.nc.Servers()) < 2 {
		return
	}
	b.log.Warn("bus server decides nothing, going to another one", "server", b.nc.ConnectedServerName(), "err", err)
	if err := b.nc.ForceReconnect(); err != nil {
		b.log.Warn("bus server not left", "err", err)
	}
}

// remember sends a copy of an accepted event to the history stream, without waiting for anything.
func (b *Bus) remember(m message, subject string) {
	if b.history.PublishAsyncPending() >= historyFlight {
		b.metrics.dropped.Inc()
		return
	}
	m.subject = subject
	if _, err := b.history.PublishMsgAsync(m.nats(), jetstream.WithExpectStream(historyStream)); err != nil {
		b.metrics.dropped.Inc()
	}
}

func (m message) nats() *nats.Msg {
	h := make(nats.Header, len(m.header)+4)
	for k, v := range m.header {
		h[k] = v
	}
	return &nats.Msg{Subject: m.subject, Header: h, Data: m.body}
}
