package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// link knows whether the connection stands, and ends calls early whose answer cannot come any more: the client
// library reports a lost connection and a refused subject beside the call, which would otherwise wait for its time-out.
type link struct {
	mu      sync.Mutex
	up      chan struct{}    // closed while connected
	down    chan struct{}    // closed while not connected
	waiting map[*waiter]bool // calls on their way
}

type waiter struct {
	subject string
	cancel  context.CancelCauseFunc
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
		l.down = make(chan struct{})
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

// guard gives a context for one call on subject, which ends early with the reason as its cause. done must be called.
func (l *link) guard(ctx context.Context, subject string) (guarded context.Context, done func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	w := &waiter{subject, cancel}
	l.mu.Lock()
	l.waiting[w] = true
	l.mu.Unlock()
	return guarded, func() {
		l.mu.Lock()
		delete(l.waiting, w)
		l.mu.Unlock()
		cancel(nil)
	}
}

// refuse ends the calls on the subject that a permission error names: `... Publish to "subject"`.
func (l *link) refuse(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.waiting {
		if strings.Contains(text, `"`+w.subject+`"`) {
			w.cancel(fmt.Errorf("%w: %s", ErrNoPermission, w.subject))
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
