package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Headers of an entry of the bucket. The operation is that of the NATS tools.
const (
	hSince      = "Slicecast-Since" // when its process announced the role first; claims have none
	hKVOp       = "KV-Operation"
	kvDelete    = "DEL"
	maxInfo     = 64 << 10 // bytes
	maxNamePart = 100      // bytes of Config.Name in an id
)

// announcement is what this process says of itself in one role. b.mu guards its fields but changed.
type announcement struct {
	info    []byte
	set     bool      // info was given
	running bool      // an Announce writes it
	heard   time.Time // when the bus last took it
	changed chan struct{}
}

// ID names this Bus, and so the process, among the members of a role: Config.Name in characters of a subject token, and
// random ones, so that it is another one after each start.
func (b *Bus) ID() string { return b.id }

func bootID(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 128 && isToken(string(r), "") {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), maxNamePart)] + "-" + nuid.Next()
}

// Announce makes this process a member of role, a token, until ctx ends, when it returns nil. info says to other members
// what they need to know (at most 64 KiB; the format is the role's). The entry is kept alive by heartbeats, lapses
// Config.ClaimTTL after the last one, comes back with the connection, and is deleted at the end. What fails is logged once
// and tried for ever. The error is that of a wrong call: no token, too much info, or a role that this Bus announces already.
func (b *Bus) Announce(ctx context.Context, role string, info []byte) error {
	if err := validRole(role, info); err != nil {
		return err
	}
	b.mu.Lock()
	a := b.announcementOf(role)
	taken := a.running
	a.running = true
	if !taken && !a.set {
		a.info, a.set = info, true
	}
	b.mu.Unlock()
	if taken {
		return fmt.Errorf("announce %s: this process does so already", role)
	}
	h := herald{b: b, role: role, a: a, subject: replicasRoot + role + "." + b.id, since: time.Now()}
	h.run(ctx)
	b.mu.Lock()
	delete(b.announced, role)
	b.mu.Unlock()
	return nil
}

// Update changes the info of role at once, for the Announce that runs or that comes. The error is that of a wrong call.
func (b *Bus) Update(role string, info []byte) error {
	if err := validRole(role, info); err != nil {
		return err
	}
	b.mu.Lock()
	a := b.announcementOf(role)
	a.info, a.set = info, true
	b.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
	return nil
}

// Heard is when the bus last took the heartbeat of role, the zero time before the first one. Others see this process as
// gone Config.ClaimTTL later.
func (b *Bus) Heard(role string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.announced[role]; a != nil {
		return a.heard
	}
	return time.Time{}
}

// announcementOf is that of role. The lock is held.
func (b *Bus) announcementOf(role string) *announcement {
	a := b.announced[role]
	if a == nil {
		a = &announcement{changed: make(chan struct{}, 1)}
		b.announced[role] = a
	}
	return a
}

func validRole(role string, info []byte) error {
	if !isToken(role, "") {
		return fmt.Errorf("role %q is not made of letters, digits, '-' and '_'", clip(role))
	}
	if len(info) > maxInfo {
		return fmt.Errorf("announce %s: %d bytes of info, more than %d", role, len(info), maxInfo)
	}
	return nil
}

// herald keeps one entry alive.
type herald struct {
	b       *Bus
	role    string
	a       *announcement
	subject string
	since   time.Time
	failing bool // and that has been said
}

func (h *herald) run(ctx context.Context) {
	every := h.b.cfg.ClaimTTL / 3
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		lost, ok := h.b.link.wait(ctx)
		if !ok {
			break
		}
		pause := every
		if !h.write(ctx) {
			pause = every / 5
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-h.a.changed:
		case <-lost:
		case <-ctx.Done():
		}
	}
	h.end(context.WithoutCancel(ctx))
}

// write says once what is the case now. It needs no compare-and-set: nobody else has this key.
func (h *herald) write(ctx context.Context) bool {
	b := h.b
	b.mu.Lock()
	m := message{h.subject, header{hSince: {h.since.UTC().Format(time.RFC3339Nano)}}, h.a.info}
	b.mu.Unlock()
	call, cancel := context.WithTimeout(ctx, b.cfg.ClaimTTL/3)
	defer cancel()
	at := time.Now()
	_, err := b.publish(call, b.replicasSpec(), m, jetstream.WithExpectStream(replicasStream), jetstream.WithMsgTTL(b.cfg.ClaimTTL))
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil:
		b.mu.Lock()
		h.a.heard = at
		b.mu.Unlock()
		if h.failing {
			h.failing = false
			b.log.Info("announced to other replicas again", "role", h.role)
		}
		return true
	default:
		if !h.failing {
			h.failing = true
			b.log.Warn("not announced to other replicas", "role", h.role, "err", err)
		}
		return false
	}
}

// end deletes the entry. The marker lapses too: ids do not come back, and would pile up.
func (h *herald) end(ctx context.Context) {
	if !h.b.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	m := message{h.subject, header{hKVOp: {kvDelete}}, nil}
	if _, err := h.b.publish(ctx, h.b.replicasSpec(), m, jetstream.WithExpectStream(replicasStream), jetstream.WithMsgTTL(markerTTL)); err != nil {
		h.b.log.Info("end not announced, the entry lapses by itself", "role", h.role, "err", err)
	}
}
