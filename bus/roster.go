package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Roster knows who is alive in a role: Follow hears it all the time, and Read gives it as of now.
type Roster struct {
	b    *Bus
	role string

	mu sync.Mutex // guards c
	c  *crowd     // of the Follow that runs, nil while none does
}

// Roster is the roster of a role, a token. The error is that of a wrong call.
func (b *Bus) Roster(role string) (*Roster, error) {
	if !isToken(role, "") {
		return nil, fmt.Errorf("role %q is not made of letters, digits, '-' and '_'", clip(role))
	}
	return &Roster{b: b, role: role}, nil
}

// Follow is Bus.Members, but it hands on every heartbeat too (Member.Heard). One Follow runs at a time.
func (r *Roster) Follow(ctx context.Context, handle func([]Member)) error {
	c := r.b.crowd()
	r.set(c)
	defer r.set(nil)
	return c.follow(ctx, r.b, r.role, func(c *crowd, ctx context.Context) { c.tellAll(ctx, handle) })
}

func (r *Roster) set(c *crowd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c = c
}

// Read gives the members at a moment after the call: whoever was announced before is among them. It needs a Follow that
// runs, and waits until that hears the bus, or ctx ends.
func (r *Roster) Read(ctx context.Context) ([]Member, error) {
	r.mu.Lock()
	c := r.c
	r.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("read who is alive as %s: nobody follows it", r.role)
	}
	seq := uint64(0)
	raw, err := r.b.last(ctx, r.b.replicasSpec(), replicasRoot+r.role+".*")
	switch {
	case err == nil:
		seq = raw.Sequence
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, fmt.Errorf("read who is alive as %s: %w", r.role, err)
	}
	for {
		set, at, moved := c.reached(seq)
		if at {
			return set, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, fmt.Errorf("read who is alive as %s: the bus is not heard: %w", r.role, ctx.Err())
		}
	}
}

// reached gives the members if everything up to seq has been read; moved is closed when something has changed since.
func (c *crowd) reached(seq uint64) (set []Member, at bool, moved <-chan struct{}) {
	set, known, _ := c.members(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	return set, known && c.open && c.seq >= seq, c.moved
}

// tellAll hands on the set whenever something was heard, until ctx ends.
func (c *crowd) tellAll(ctx context.Context, handle func([]Member)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.changed:
		}
		set, known, next := c.members(time.Now())
		if known {
			handle(set)
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}
