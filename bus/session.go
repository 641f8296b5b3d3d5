package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

const (
	fetchAhead    = 500              // messages on their way to a reader
	pullExpiry    = 30 * time.Second // of one request for messages
	inactiveAfter = 30 * time.Second // the server forgets a reader that does not ask
	deleteTimeout = time.Second      // of deleting the old reader on the server
)

// reader is what one Follow reads.
type reader struct {
	spec        jetstream.StreamConfig
	filter      string
	cluster     string // "" for all
	headersOnly bool
	handle      func(ledger.Notice) error
	entry       func(entryMessage) error // takes the place of handle for messages, where they are not notices
}

// entryMessage is a message of a bucket.
type entryMessage struct {
	message
	seq    uint64
	stored time.Time // by the server's clock
}

// gone reports whether it says that an entry was deleted, or has lapsed.
func (m entryMessage) gone() bool {
	return m.header.get(hKVOp) != "" || m.header.get(jetstream.MarkerReasonHeader) != ""
}

// Why a session ends by itself; the cause of its context.
var (
	errLost      = errors.New("connection lost")
	errRecreated = errors.New("the stream is another one")
	errBack      = errors.New("a sequence at or below one seen")
	errGap       = errors.New("a message was not delivered")
	errEmptied   = errors.New("the stream has lost the last message that was read")
	errStuck     = errors.New("the server does not deliver what it has")
	errOld       = errors.New("the session is old")
)

// handlerError is an error of the caller's handler.
type handlerError struct{ err error }

func (e handlerError) Error() string { return e.err.Error() }
func (e handlerError) Unwrap() error { return e.err }

// follow runs sessions until ctx ends or the handler fails.
func (b *Bus) follow(ctx context.Context, r reader) error {
	pauses := spacing{least: b.cfg.RetryMin, most: b.cfg.RetryMax}
	reason := whyStart
	for {
		lost, ok := b.link.wait(ctx)
		if !ok {
			return nil
		}
		s := session{b: b, r: r, opened: time.Now()}
		err := s.run(ctx, lost, reason)
		var failed handlerError
		if errors.As(err, &failed) && !errors.Is(err, ledger.ErrResync) && ctx.Err() == nil {
			return failed.err
		}
		reason = reasonOf(err)
		pause := pauses.next(reason, s.complete, time.Since(s.opened), rand.Float64())
		if ctx.Err() == nil {
			b.ended(r, reason, pause, err)
		}
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// ended says that a session has ended. What does not pass by itself is said once.
func (b *Bus) ended(r reader, reason string, pause time.Duration, err error) {
	level := slog.LevelInfo
	if permanent := permanentError(""); errors.As(err, &permanent) {
		b.complain(r.spec.Name, err)
		level = slog.LevelDebug
	}
	b.log.Log(context.Background(), level, "bus session ended", "stream", r.spec.Name, "filter", r.filter, "reason", reason, "pause", pause, "err", err)
}

func reasonOf(err error) string {
	for _, c := range [...]struct {
		err    error
		reason string
	}{
		{ledger.ErrResync, whyResync}, {errLost, whyLost}, {ErrNotConnected, whyLost}, {errRecreated, whyRecreated}, {errBack, whyBack},
		{errGap, whyGap}, {errEmptied, whyEmptied}, {errStuck, whyStuck}, {errOld, whyRefresh}, {jetstream.ErrNoHeartbeat, whyHeartbeat}, {jetstream.ErrConsumerDeleted, whyDeleted},
	} {
		if errors.Is(err, c.err) {
			return c.reason
		}
	}
	return whyFailed
}

// session is one snapshot and what follows it. Its fields belong to the goroutine of run, but those that the watch reads.
type session struct {
	b        *Bus
	r        reader
	opened   time.Time
	created  time.Time // of the stream
	atOpen   uint64    // last sequence of the stream at opening
	complete bool
	delivery uint64        // of the last message: 1, 2, 3 ... without a gap
	seen     atomic.Uint64 // highest stream sequence
	idle     atomic.Bool   // waiting for the server, not for the handler
}

// run opens the session and hands on its messages. It returns why the session ended, never nil.
func (s *session) run(ctx context.Context, lost <-chan struct{}, reason string) error {
	st, info, err := s.b.ensure(ctx, s.r.spec)
	if err != nil {
		return err
	}
	if err := led(info); err != nil {
		s.b.answered(decision, err)
		return err
	}
	s.created, s.atOpen = info.Created, info.State.LastSeq
	cons, err := s.consumer(ctx, st)
	if err != nil {
		return fmt.Errorf("make a reader of %s: %w", s.r.filter, err)
	}
	s.b.metrics.sessions.WithLabelValues(s.r.spec.Name, reason).Inc()
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { cancel((&watch{s: s, st: st}).run(ctx, lost)) })
	err = s.read(ctx, cons)
	cancel(nil)
	watching.Wait()
	s.forget(ctx, st, cons, err)
	return err
}

// consumer makes the reader on the server: what the client library's ordered consumer is, without its resuming. One
// filter only, so that permissions by cluster can name it; a name that cannot be guessed, since requests by name cannot
// be permitted by cluster.
func (s *session) consumer(ctx context.Context, st jetstream.Stream) (jetstream.Consumer, error) {
	name := "slicecast-" + nuid.Next()
	if s.r.cluster != "" {
		name = s.r.cluster + "-" + nuid.Next()
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, done := s.b.link.guard(call, "$JS.API.CONSUMER.CREATE."+s.r.spec.Name+"."+name+"."+s.r.filter)
	defer done()
	cons, err := st.CreateConsumer(call, jetstream.ConsumerConfig{
		Name:              name,
		Description:       s.b.cfg.Name,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     s.r.filter,
		HeadersOnly:       s.r.headersOnly,
		InactiveThreshold: inactiveAfter,
		Replicas:          1,
		MemoryStorage:     true,
	})
	err = s.b.undecided(ctx, named(err, context.Cause(call)))
	s.b.answered(decision, err)
	return cons, err
}

// read hands on Opened, the snapshot, Complete and what follows.
func (s *session) read(ctx context.Context, cons jetstream.Consumer) error {
	it, err := cons.Messages(jetstream.PullMaxMessages(fetchAhead), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(s.b.cfg.Heartbeat))
	if err != nil {
		return named(err, nil)
	}
	defer it.Stop()
	if err := s.hand(ledger.Notice{Kind: ledger.Opened, Cluster: s.r.cluster, Created: s.created}); err != nil {
		return err
	}
	// An empty snapshot sends no message that could end it.
	if cons.CachedInfo().NumPending == 0 {
		if err := s.end(); err != nil {
			return err
		}
	}
	for {
		s.idle.Store(true)
		msg, err := it.Next(jetstream.NextContext(ctx))
		s.idle.Store(false)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("read %s: %w", s.r.filter, err)
		}
		if err := s.take(msg); err != nil {
			return err
		}
	}
}

// take checks the place of a message and hands it on.
func (s *session) take(msg jetstream.Msg) error {
	md, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.r.filter, err)
	}
	if md.Sequence.Consumer != s.delivery+1 {
		return fmt.Errorf("%w: delivery %d after %d", errGap, md.Sequence.Consumer, s.delivery)
	}
	if seen := s.seen.Load(); md.Sequence.Stream <= seen {
		return fmt.Errorf("%w: %d after %d", errBack, md.Sequence.Stream, seen)
	}
	s.delivery = md.Sequence.Consumer
	s.seen.Store(md.Sequence.Stream)
	if err := s.tell(message{msg.Subject(), header(msg.Headers()), msg.Data()}, md); err != nil {
		return err
	}
	if md.NumPending == 0 && !s.complete {
		return s.end()
	}
	return nil
}

// tell hands on what a message says, or that it was refused.
func (s *session) tell(m message, md *jetstream.MsgMetadata) error {
	if s.r.entry != nil {
		return s.r.entry(entryMessage{m, md.Sequence.Stream, md.Timestamp})
	}
	n, err := s.b.codec.notice(m, s.r.headersOnly)
	if err != nil {
		s.b.bad(m.subject, err)
	}
	if n.Kind == 0 {
		return nil
	}
	n.Seq, n.Stored = md.Sequence.Stream, md.Timestamp
	return s.hand(n)
}

// end says that the snapshot is done.
func (s *session) end() error {
	s.complete = true
	s.b.metrics.snapshot.WithLabelValues(s.r.spec.Name).Observe(time.Since(s.opened).Seconds())
	return s.hand(ledger.Notice{Kind: ledger.Complete, Cluster: s.r.cluster, Seq: s.atOpen})
}

func (s *session) hand(n ledger.Notice) error {
	if err := s.r.handle(n); err != nil {
		return handlerError{err}
	}
	return nil
}

// forget deletes the reader on the server, where that can work, so that a storm of sessions leaves none behind.
func (s *session) forget(ctx context.Context, st jetstream.Stream, cons jetstream.Consumer, why error) {
	if errors.Is(why, errLost) || errors.Is(why, errRecreated) || errors.Is(why, jetstream.ErrConsumerDeleted) || !s.b.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	err := st.DeleteConsumer(ctx, cons.CachedInfo().Name)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, nats.ErrConnectionClosed) {
		s.b.log.Debug("old reader not deleted", "stream", s.r.spec.Name, "err", err)
	}
}

// sleep waits and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
