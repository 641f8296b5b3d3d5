package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	historyAhead = 100             // messages on their way to a replay
	probeIdle    = 5 * time.Second // the server forgets a probe that could not be deleted
)

// replay is one Replay. All its fields belong to the goroutine that runs it.
type replay struct {
	b      *Bus
	q      HistoryQuery
	filter string
	handle func(HistoryEntry) error
	last   *lastVersions

	delivery uint64 // of the last message of this reader: 1, 2, 3 ... without a gap

	begun   bool      // a reader was made: the fields below hold, and q.Since and q.Last have been used
	created time.Time // of the stream
	seq     uint64    // of the last message taken, 0 for none
	stored  time.Time // when that was stored
	skip    uint64    // messages still to be left out
	left    uint64    // messages that were there at opening and have not been taken
}

// run makes readers until all is replayed, ctx ends, the handler fails or the stream cannot be read.
func (r *replay) run(ctx context.Context) error {
	pauses := spacing{least: r.b.cfg.RetryMin, most: r.b.cfg.RetryMax}
	for {
		lost, ok := r.b.link.wait(ctx)
		if !ok {
			return r.ended(ctx)
		}
		before, opened := r.seq, time.Now()
		err := r.session(ctx, lost)
		var failed handlerError
		switch {
		case errors.Is(err, errReplayed):
			return nil
		case errors.As(err, &failed):
			return failed.err
		case ctx.Err() != nil:
			return r.ended(ctx)
		case errors.Is(err, ErrNoPermission) || errors.Is(err, ErrStreamSettings):
			return err
		}
		reason := reasonOf(err)
		pause := pauses.next(reason, r.seq > before, time.Since(opened), rand.Float64())
		r.b.log.Warn("replay of history interrupted", "filter", r.filter, "reason", reason, "pause", pause, "err", err)
		if !sleep(ctx, pause) {
			return r.ended(ctx)
		}
	}
}

// ended is what the end of ctx means: a replay without Follow is not whole.
func (r *replay) ended(ctx context.Context) error {
	if r.q.Follow {
		return nil
	}
	return ctx.Err()
}

// session reads with one reader on the server. It returns why it ended, never nil.
func (r *replay) session(ctx context.Context, lost <-chan struct{}) error {
	st, info, err := r.b.ensure(ctx, r.b.historySpec())
	if err != nil {
		return err
	}
	cons, err := r.open(ctx, st, info)
	if err != nil {
		return fmt.Errorf("make a reader of %s: %w", r.filter, err)
	}
	defer r.forget(ctx, st, cons)
	r.delivery = 0
	it, err := cons.Messages(jetstream.PullMaxMessages(historyAhead), jetstream.PullExpiry(pullExpiry))
	if err != nil {
		return named(err, nil)
	}
	defer it.Stop()
	idle := idleReplay{r: r, st: st}
	for {
		if r.left == 0 && !r.q.Follow {
			return errReplayed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		msg, err := next(ctx, it, r.b.cfg.CheckEvery)
		if isClosed(lost) {
			return errLost
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = idle.check(ctx)
		case err == nil:
			err = r.take(msg)
		}
		if err != nil {
			return err
		}
	}
}

// next waits for a message, at most so long.
func next(ctx context.Context, it jetstream.MessagesContext, most time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	msg, err := it.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return msg, nil
}

// take notes the place of a message and hands it on.
func (r *replay) take(msg jetstream.Msg) error {
	md, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read %s: %w", r.filter, err)
	}
	if md.Sequence.Consumer != r.delivery+1 {
		return fmt.Errorf("%w: delivery %d after %d", errGap, md.Sequence.Consumer, r.delivery)
	}
	r.delivery = md.Sequence.Consumer
	if md.Sequence.Stream <= r.seq {
		return fmt.Errorf("%w: %d after %d", errBack, md.Sequence.Stream, r.seq)
	}
	r.seq, r.stored = md.Sequence.Stream, md.Timestamp
	r.left = min(max(r.left, 1)-1, md.NumPending)
	if r.skip > 0 {
		r.skip--
		return nil
	}
	n, err := r.b.codec.notice(message{msg.Subject(), header(msg.Headers()), msg.Data()}, false)
	if err != nil {
		r.b.bad(msg.Subject(), err)
		return nil
	}
	if n.Event == nil {
		return nil
	}
	e := HistoryEntry{Event: *n.Event, Seq: md.Sequence.Stream, Stored: md.Timestamp, Missing: r.last.take(n.Event)}
	if err := r.handle(e); err != nil {
		return handlerError{err}
	}
	return nil
}

// open makes the reader that begins where the replay is.
func (r *replay) open(ctx context.Context, st jetstream.Stream, info *jetstream.StreamInfo) (jetstream.Consumer, error) {
	if r.begun && !r.created.Equal(info.Created) {
		r.seq, r.skip, r.left, r.created = 0, 0, 0, info.Created // All of the new stream is news.
	}
	if !r.begun {
		return r.begin(ctx, st, info)
	}
	from := position{seq: r.seq + 1}
	if info.State.LastSeq < r.seq { // The stream went back, and sequences came again.
		from, r.seq = position{since: r.stored.Add(1)}, 0
	}
	cons, err := r.consumer(ctx, st, from, inactiveAfter)
	if err != nil {
		return nil, err
	}
	pending := cons.CachedInfo().NumPending
	if r.seq == 0 {
		r.left = pending
	}
	r.left = min(r.left, pending)
	return cons, nil
}

// begin makes the first reader.
func (r *replay) begin(ctx context.Context, st jetstream.Stream, info *jetstream.StreamInfo) (jetstream.Consumer, error) {
	cons, err := r.consumer(ctx, st, position{since: r.q.Since}, inactiveAfter)
	if err != nil {
		return nil, err
	}
	pending, most := cons.CachedInfo().NumPending, uint64(max(r.q.Last, 0))
	if slack := most + most/4 + historyAhead; most > 0 && pending > slack {
		from, err := r.seek(ctx, st, info.State.FirstSeq, info.State.LastSeq, most, slack)
		r.forget(ctx, st, cons)
		if err != nil {
			return nil, err
		}
		if cons, err = r.consumer(ctx, st, position{seq: from}, inactiveAfter); err != nil {
			return nil, err
		}
		pending = cons.CachedInfo().NumPending
	}
	if most > 0 && pending > most {
		r.skip = pending - most
	}
	r.begun, r.created, r.left = true, info.Created, pending
	return cons, nil
}

// seek finds a sequence from which least to most messages match the filter. The server counts them when a reader is made,
// so that history need not be read to find its end.
func (r *replay) seek(ctx context.Context, st jetstream.Stream, first, last, least, most uint64) (uint64, error) {
	best := first
	for first <= last {
		mid := first + (last-first)/2
		pending, err := r.pending(ctx, st, mid)
		switch {
		case err != nil:
			return 0, err
		case pending < least:
			last = mid - 1
			continue
		case pending <= most:
			return mid, nil
		}
		best, first = mid, mid+1
	}
	return best, nil
}

// pending counts the messages of the filter from a sequence on.
func (r *replay) pending(ctx context.Context, st jetstream.Stream, from uint64) (uint64, error) {
	cons, err := r.consumer(ctx, st, position{seq: from}, probeIdle)
	if err != nil {
		return 0, err
	}
	r.forget(ctx, st, cons)
	return cons.CachedInfo().NumPending, nil
}

// position is where a reader begins: at a sequence, or with what was stored at a time or later, or at the beginning.
type position struct {
	seq   uint64
	since time.Time
}

// consumer makes a reader on the server, with one filter and a name that cannot be guessed, as session.consumer does.
func (r *replay) consumer(ctx context.Context, st jetstream.Stream, from position, idle time.Duration) (jetstream.Consumer, error) {
	name := "slicecast-" + nuid.Next()
	if r.q.Cluster != "" {
		name = r.q.Cluster + "-" + nuid.Next()
	}
	cfg := jetstream.ConsumerConfig{
		Name:              name,
		Description:       r.b.cfg.Name,
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     r.filter,
		InactiveThreshold: idle,
		Replicas:          1,
		MemoryStorage:     true,
	}
	switch {
	case from.seq > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from.seq
	case !from.since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from.since
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, done := r.b.link.guard(call, "$JS.API.CONSUMER.CREATE."+historyStream+"."+name+"."+r.filter)
	defer done()
	cons, err := st.CreateConsumer(call, cfg)
	if err != nil {
		return nil, named(err, context.Cause(call))
	}
	return cons, nil
}

// forget deletes a reader on the server, where that can work; else it lapses there.
func (r *replay) forget(ctx context.Context, st jetstream.Stream, cons jetstream.Consumer) {
	if !r.b.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	name := cons.CachedInfo().Name
	ctx, done := r.b.link.guard(ctx, "$JS.API.CONSUMER.DELETE."+historyStream+"."+name)
	defer done()
	if err := st.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		r.b.log.Debug("old reader not deleted", "stream", historyStream, "err", err)
	}
}

// idleReplay looks after a reader to which nothing comes: the stream may be another one, what was to come may have
// been too old to stay, or the server may have forgotten the reader.
type idleReplay struct {
	r       *replay
	st      jetstream.Stream
	checked uint64 // up to here nothing is missing
	owed    uint64 // one more than the last message taken, when more was there at the last check
}

func (i *idleReplay) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := i.st.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errRecreated, err)
	case err != nil:
		return nil // No answer says nothing.
	case !info.Created.Equal(i.r.created):
		return fmt.Errorf("%w: made %s, not %s", errRecreated, info.Created, i.r.created)
	case info.State.LastSeq < i.r.seq:
		return fmt.Errorf("%w: the last is %d, %d was seen", errBack, info.State.LastSeq, i.r.seq)
	case i.r.left == 0 && info.State.LastSeq <= max(i.checked, i.r.seq):
		return nil
	}
	pending, err := i.r.pending(ctx, i.st, i.r.seq+1)
	switch {
	case err != nil:
		return nil
	case pending == 0:
		i.r.left, i.checked, i.owed = 0, info.State.LastSeq, 0
	case i.owed == i.r.seq+1:
		return fmt.Errorf("%w: %d messages after %d", errStuck, pending, i.r.seq)
	default:
		i.owed = i.r.seq + 1
	}
	return nil
}
