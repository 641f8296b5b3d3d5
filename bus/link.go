package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// link knows whether the connection stands, and ends calls early whose answer cannot come any more: the client
// library reports a lost connection and a refused subject beside the call, which would otherwise wait for its time-out.
type link struct {
	mu      sync.Mutex
	up      chan struct{}    // closed while connected
	down    chan struct{}    // closed while not connected
	waiting map[*waiter]bool // calls on their way
	deaf    error            // why no answer can come over this connection, nil when it can
	silent  [sorts]time.Time // since when the servers of a cluster give no answer of a sort, the zero time when they do
}

// Sorts of calls: what one server answers alone, though it may lead nothing any more, and what several decide.
const (
	question = iota
	decision
	sorts
)

type waiter struct {
	subjects []string // that the call publishes to
	cancel   context.CancelCauseFunc
}

func newLink() *link {
	l := &link{up: make(chan struct{}), down: make(chan struct{}), waiting: map[*waiter]bool{}}
	close(l.down)
	return l
}

// set records that the connection stands or is lost.
func (l *link) set(connected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := isClosed(l.up)
	switch {
	case connected && !is:
		l.down, l.deaf, l.silent = make(chan struct{}), nil, [sorts]time.Time{}
		close(l.up)
	case !connected && is:
		l.up = make(chan struct{})
		close(l.down)
		for w := range l.waiting {
			w.cancel(ErrNotConnected)
		}
	}
}

// connected reports whether the connection stands.
func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return isClosed(l.up)
}

// wait returns once connected, with the channel that closes when the connection is lost; ok is false when ctx ended first.
func (l *link) wait(ctx context.Context) (lost <-chan struct{}, ok bool) {
	for {
		l.mu.Lock()
		up, down := l.up, l.down
		l.mu.Unlock()
		select {
		case <-up:
			if !isClosed(down) {
				return down, true
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}

// guard gives a context for one call on subjects, which ends early with the reason as its cause. done must be called.
func (l *link) guard(ctx context.Context, subjects ...string) (guarded context.Context, done func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	w := &waiter{subjects, cancel}
	l.mu.Lock()
	l.waiting[w] = true
	if l.deaf != nil {
		cancel(l.deaf)
	}
	l.mu.Unlock()
	return guarded, func() {
		l.mu.Lock()
		delete(l.waiting, w)
		l.mu.Unlock()
		cancel(nil)
	}
}

// refuse ends the calls on the subject that a permission error names: `... Publish to "subject"`. Where it is the
// subscription to the inbox, no call gets an answer, nor will one until there is another connection. known says that some
// call tells of it.
func (l *link) refuse(text, inbox string) (known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(text, "Subscription to \""+inbox+".") {
		l.deaf = fmt.Errorf("%w: answers below %s", ErrNoPermission, inbox)
	}
	for w := range l.waiting {
		if l.deaf != nil {
			w.cancel(l.deaf)
		}
		for _, subject := range w.subjects {
			if strings.Contains(text, `"`+subject+`"`) {
				w.cancel(fmt.Errorf("%w: %s", ErrNoPermission, subject))
				known = true
			}
		}
	}
	return known
}

// silence records that a call of that sort had no answer, or had one; it reports whether none had for as long as patience,
// once in that time.
func (l *link) silence(sort int, silent bool, now time.Time, patience time.Duration) (long bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := &l.silent[sort]
	switch {
	case !silent:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	case now.Sub(*since) >= patience:
		*since = now
		return true
	}
	return false
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
