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
	if err == nil {
		return ack.Sequence, nil
	}
	if isConflict(err) {
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
		if _, _, why := b.ensure(ctx, spec); why != nil {
			err = why
		}
	}
	// A leader that has lost the others goes on to take calls, and answers none.
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && b.nc.ConnectedClusterName() != "" {
		return fmt.Errorf("%w: no answer within %s", ErrNoQuorum, callTimeout)
	}
	return err
}

// get reads the last message of subject. One that cannot be read is an answer, not an error.
func (b *Bus) get(ctx context.Context, spec jetstream.StreamConfig, subject string) (ledger.Notice, error) {
	s, err := parseSubject(subject)
	if err != nil {
		return ledger.Notice{}, err
	}
	st, err := b.stream(ctx, spec)
	if err != nil {
		return ledger.Notice{}, fmt.Errorf("read %s: %w", subject, err)
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, done := b.link.guard(limited, "$JS.API.STREAM.MSG.GET."+spec.Name, "$JS.API.DIRECT.GET."+spec.Name+"."+subject)
	raw, err := st.GetLastMsgForSubject(call, subject)
	cause := context.Cause(call)
	done()
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ledger.Notice{Kind: ledger.Absent, Cluster: s.cluster, Key: s.key, Slice: s.slice}, nil
	}
	if err != nil {
		err = b.explain(ctx, spec, named(err, cause))
		b.complain(spec.Name, err)
		return ledger.Notice{}, fmt.Errorf("read %s: %w", subject, err)
	}
	n, err := b.codec.notice(message{raw.Subject, header(raw.Header), raw.Data}, false)
	if err != nil {
		b.bad(subject, err)
	}
	if errors.Is(err, ErrNewer) {
		return ledger.Notice{}, fmt.Errorf("read: %w", err)
	}
	n.Seq, n.Stored = raw.Sequence, raw.Time
	return n, nil
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
