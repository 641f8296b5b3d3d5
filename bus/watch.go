package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watch looks after one session from beside: the server does not say that a stream was made again, nor that it has
// stopped to deliver, so a session in quiet asks. While messages come, their sequences tell.
type watch struct {
	s       *session
	st      jetstream.Stream
	last    uint64 // seen at the last tick
	checked uint64 // up to here nothing is missing
	held    uint64 // messages in the stream at that check
	owed    uint64 // the leader had this sequence at the last tick, and it had not come
	doubted bool   // the last message that was read was not there at the last tick
}

// run returns why the session must end: the connection is lost, or the stream is not the one it was or is stuck.
func (w *watch) run(ctx context.Context, lost <-chan struct{}) error {
	tick := time.NewTicker(w.s.b.cfg.CheckEvery)
	defer tick.Stop()
	// Spread, so that the readers of a stream do not all begin anew at once.
	old := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(w.s.b.cfg.RefreshEvery)))
	defer old.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return errLost
		case <-old.C:
			return errOld
		case <-tick.C:
		}
		if seen := w.s.seen.Load(); seen != w.last {
			w.last, w.owed, w.doubted = seen, 0, false
			continue
		}
		if err := w.check(ctx); err != nil {
			return err
		}
	}
}

// check asks the leader about the stream. No answer says nothing of it.
func (w *watch) check(caller context.Context) error {
	ctx, cancel := context.WithTimeout(caller, callTimeout)
	defer cancel()
	info, err := w.st.Info(ctx)
	if err == nil {
		err = led(info)
	}
	w.s.b.answered(question, w.s.b.undecided(caller, named(err, nil)))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errRecreated, err)
	case err != nil:
		return nil
	case !info.Created.Equal(w.s.created):
		return fmt.Errorf("%w: made %s, not %s", errRecreated, info.Created, w.s.created)
	case info.State.LastSeq < w.last:
		return fmt.Errorf("%w: the last is %d, %d was seen", errBack, info.State.LastSeq, w.last)
	}
	return w.progress(ctx, info.State.LastSeq, info.State.Msgs)
}

// progress finds a server that has what it does not deliver, after a change of its leader for example: what the leader
// had at one tick has not come at the next, while the reader waited. And it finds a stream without the last message that
// was read: nobody delivers a purge, nor the end of a time to live.
func (w *watch) progress(ctx context.Context, atLeader, held uint64) error {
	if !w.s.idle.Load() {
		w.owed = 0
		return nil
	}
	if w.owed > w.last {
		return fmt.Errorf("%w: it has %d, %d was seen", errStuck, w.owed, w.last)
	}
	if atLeader <= w.checked && held == w.held {
		return nil
	}
	msg, err := w.s.b.last(ctx, w.s.r.spec, w.s.r.filter)
	var newest uint64
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return nil
	default:
		newest = msg.Sequence
	}
	doubted := w.doubted
	w.doubted = newest < w.last
	switch {
	case doubted && w.doubted:
		return fmt.Errorf("%w: the last is %d, %d was seen", errEmptied, newest, w.last)
	case w.doubted: // It may be that a server answered that is behind.
	case newest > w.last:
		w.owed = newest
	default:
		w.checked, w.held = atLeader, held
	}
	return nil
}
