package drainwait

import (
	"context"
	"slices"
	"time"
)

const (
	// A proxy acknowledges before all its workers have dropped the pod: settle gives them time. A pod without any
	// connection gives no sign that they have, so it waits longer.
	settleSeen = 50 * time.Millisecond
	settleNone = 250 * time.Millisecond

	// The kernel gives no signal when a connection of another process closes or falls idle, so its table is read again
	// and again: every lookEvery, or where the table is slow to read (a large host) after lookShare times what a read
	// took, so that the wait does not eat the pod's processor.
	lookEvery = 5 * time.Millisecond
	lookShare = 4
)

// Outcome is how a wait has ended.
type Outcome struct {
	Answer  Answer // of the gate; zero when none has answered
	AskErr  error  // why none has answered
	Asked   time.Duration
	Seen    int    // connections that were waited for
	Left    []Conn // those that were neither closed nor done at the end
	ConnErr error  // why the connections could not be seen
	Ports   []uint16
	Took    time.Duration
	Cut     time.Duration // the budget, when less was allowed than asked
	Stopped bool          // the context of the caller ended first
}

// Run asks, settles and waits for the connections, for the budget at most. The error is a setting that cannot be.
func Run(ctx context.Context, c Config) (Outcome, error) {
	began := time.Now()
	var o Outcome
	if err := c.validate(); err != nil {
		return o, err
	}
	budget, cut := c.budget()
	if cut {
		o.Cut = budget
	}
	if c.Table == nil {
		c.Table = readTable
	}
	timed, cancel := context.WithDeadline(ctx, began.Add(budget))
	defer cancel()
	// A fast proxy acknowledges, and closes its idle connections, while the gate is asked: those count as seen, too.
	before, _ := c.look(c.Ports) // an error shows again in step three
	o.Answer, o.AskErr = ask(timed, &c)
	o.Asked = time.Since(began)
	if o.AskErr == nil && o.Answer.Drained {
		o.connections(timed, &c, len(before) > 0)
	}
	o.Took = time.Since(began)
	o.Stopped = ctx.Err() != nil
	return o, nil
}

// connections is step three. A pod that is not drained gets new requests whatever is waited for, so it is skipped then.
// seen tells that the pod had connections before the gate was asked.
func (o *Outcome) connections(ctx context.Context, c *Config, seen bool) {
	o.Ports = slices.Clone(c.Ports)
	for _, s := range o.Answer.Services {
		if s.Number != 0 && !slices.Contains(o.Ports, s.Number) {
			o.Ports = append(o.Ports, s.Number)
		}
	}
	slices.Sort(o.Ports)
	if len(o.Ports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.Linger)
	defer cancel()
	look := func() (table []Conn) {
		table, o.ConnErr = c.look(o.Ports)
		return table
	}
	settle := settleNone
	if len(look()) > 0 || seen {
		settle = settleSeen
	}
	pause(ctx, settle)
	began := time.Now()
	o.Left = look()
	o.Seen = len(o.Left)
	o.Left = remaining(o.Left, o.Left, c.Idle)
	for len(o.Left) > 0 && pause(ctx, max(lookEvery, lookShare*time.Since(began))) {
		began = time.Now()
		table := look()
		if o.ConnErr != nil {
			return
		}
		o.Left = remaining(o.Left, table, c.Idle)
	}
}

// look gives the inbound connections to the pod on these ports.
func (c *Config) look(ports []uint16) ([]Conn, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	table, err := c.Table(ports)
	if err != nil {
		return nil, err
	}
	return inbound(table, c.IPs, ports), nil
}

// pause waits, and reports whether ctx lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
