package bus

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Member is a process that is alive in a role.
type Member struct {
	ID    string    // of its Bus, as Bus.ID gives it there
	Info  []byte    // what it says of itself
	Since time.Time // when it announced the role, by its own clock; for people
	Heard time.Time // when the bus last took a heartbeat of it, by the server's clock
}

func (m Member) same(o Member) bool {
	return m.ID == o.ID && bytes.Equal(m.Info, o.Info) && m.Since.Equal(o.Since)
}

// Members hands the members of role, sorted by ID, to handle: once they are known, and whenever they have changed, until
// ctx ends, when it returns nil. handle is called by one goroutine, and hears the newest set when it was slow. A member
// goes when it says so, or when its entry has lapsed. While the bus cannot be heard the last set stays; and who is
// missing afterwards without a word (a lost store) stays for Config.ClaimTTL, in which whoever lives is heard again. Only a
// first set that is read from a store that was lost less than that ago may lack somebody.
func (b *Bus) Members(ctx context.Context, role string, handle func([]Member)) error {
	if !isToken(role, "") {
		return fmt.Errorf("role %q is not made of letters, digits, '-' and '_'", clip(role))
	}
	return b.crowd().follow(ctx, b, role, func(c *crowd, ctx context.Context) { c.tell(ctx, handle) })
}

func (b *Bus) crowd() *crowd {
	return &crowd{grace: b.cfg.ClaimTTL, changed: make(chan struct{}, 1), moved: make(chan struct{}), entries: map[string]entry{}}
}

// follow reads the entries of role while tell runs, until ctx ends.
func (c *crowd) follow(ctx context.Context, b *Bus, role string, tell func(*crowd, context.Context)) error {
	root := replicasRoot + role + "."
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer reading.Wait()
	defer cancel()
	var failed error
	reading.Go(func() {
		defer cancel()
		failed = b.follow(ctx, reader{
			spec: b.replicasSpec(), filter: root + "*",
			handle: func(n ledger.Notice) error { c.notice(n.Kind); return nil },
			entry:  func(m entryMessage) error { c.message(strings.TrimPrefix(m.subject, root), m); return nil },
		})
	})
	tell(c, ctx)
	reading.Wait()
	return failed
}

// crowd is what is known of the members of one role.
type crowd struct {
	grace   time.Duration
	changed chan struct{} // something may have changed

	mu      sync.Mutex    // guards what follows
	open    bool          // the snapshot of this session is complete
	seq     uint64        // of the last message of this session
	moved   chan struct{} // closed when one of these has changed
	entries map[string]entry
}

// entry is a member, and until when it stays without having been heard in this session: the zero time while it was.
type entry struct {
	Member
	silent bool      // not heard in this session yet
	until  time.Time // where silent, once the snapshot is complete
}

// notice takes the opening of a session and the end of its snapshot.
func (c *crowd) notice(kind ledger.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := time.Time{}
	switch kind {
	case ledger.Opened:
		c.open, c.seq = false, 0
	case ledger.Complete:
		c.open = true
		until = time.Now().Add(c.grace)
	default:
		return
	}
	for id, e := range c.entries {
		if kind == ledger.Opened || e.silent {
			e.silent, e.until = true, until
			c.entries[id] = e
		}
	}
	c.signal()
}

// message takes an entry, or the marker of one that has gone.
func (c *crowd) message(id string, m entryMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq = m.seq
	since, err := time.Parse(time.RFC3339Nano, m.header.get(hSince))
	if m.gone() || err != nil {
		delete(c.entries, id) // Claims have no such header.
	} else {
		c.entries[id] = entry{Member: Member{ID: id, Info: m.body, Since: since, Heard: m.stored}}
	}
	if c.open {
		c.signal()
	}
}

// signal says that something may have changed. The lock is held.
func (c *crowd) signal() {
	close(c.moved)
	c.moved = make(chan struct{})
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// members gives the set at that time, whether it is complete, and when it has to be looked at again (never: the zero time).
func (c *crowd) members(now time.Time) (set []Member, known bool, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		switch {
		case e.until.IsZero():
		case !now.Before(e.until):
			delete(c.entries, id)
			continue
		case next.IsZero() || e.until.Before(next):
			next = e.until
		}
		set = append(set, e.Member)
	}
	slices.SortFunc(set, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return set, c.open, next
}

// tell hands each new set on until ctx ends.
func (c *crowd) tell(ctx context.Context, handle func([]Member)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var told []Member
	first := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.changed:
		}
		set, known, next := c.members(time.Now())
		if !known {
			continue
		}
		if first || !slices.EqualFunc(set, told, Member.same) {
			first, told = false, set
			handle(slices.Clone(set))
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}
