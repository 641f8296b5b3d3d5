package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Claim takes a key for this process, named Config.Name, for as long as ctx lives and release is not called, and keeps
// it alive: a registration ("<role>.<id>"), or the right to be the single writer of something. It waits for a connection.
// ErrClaimed is returned when another process holds the key, and names it. release frees the key at once; without it the
// key is free Config.ClaimTTL after the process is gone. A claim that lapses while the bus cannot be reached is taken
// again when it can, unless another process was faster: that is logged and counted, and tried again for ever.
func (b *Bus) Claim(ctx context.Context, key string) (release func(), err error) {
	if !isToken(key, ".") {
		return nil, fmt.Errorf("claim key %q is not made of letters, digits, '-', '_' and '.'", clip(key))
	}
	if _, ok := b.link.wait(ctx); !ok {
		return nil, fmt.Errorf("claim %s: %w", key, ctx.Err())
	}
	c := &claim{b: b, key: key}
	if err := c.take(ctx); err != nil {
		return nil, fmt.Errorf("claim %s: %w", key, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	b.claims.Go(func() {
		defer close(ended)
		c.keep(ctx)
	})
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			<-ended
			c.free(context.WithoutCancel(ctx))
		})
	}, nil
}

// claim is one key held. Its fields belong to the goroutine of keep, then to release.
type claim struct {
	b        *Bus
	key      string
	revision uint64 // 0 while not held
	lost     bool   // another process holds it, and that has been said
}

func (b *Bus) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if _, _, err := b.ensure(ctx, b.replicasSpec()); err != nil {
		return nil, err
	}
	kv, err := b.js.KeyValue(ctx, replicasBucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", replicasBucket, named(err, context.Cause(ctx)))
	}
	return kv, nil
}

// take creates the key, with a time to live.
func (c *claim) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, done := c.b.link.guard(ctx, replicasRoot+c.key)
	defer done()
	kv, err := c.b.bucket(ctx)
	if err != nil {
		return err
	}
	revision, err := kv.Create(ctx, c.key, []byte(c.b.cfg.Name), jetstream.KeyTTL(c.b.cfg.ClaimTTL))
	if err == nil {
		c.revision, c.lost = revision, false
		return nil
	}
	if !isConflict(err) && !errors.Is(err, jetstream.ErrKeyExists) {
		return named(err, context.Cause(ctx))
	}
	holder := "unknown"
	if entry, err := kv.Get(ctx, c.key); err == nil {
		holder = clip(string(entry.Value()))
	}
	return fmt.Errorf("%w: %s", ErrClaimed, holder)
}

// keep renews the key until ctx ends. Time is the signal here: the key has to be written again before it lapses.
func (c *claim) keep(ctx context.Context) {
	every := c.b.cfg.ClaimTTL / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.b.closing:
			return
		case <-timer.C:
		}
		if err := c.renew(ctx); err != nil && ctx.Err() == nil {
			c.b.log.Warn("claim not renewed", "key", c.key, "err", err)
		}
		timer.Reset(every)
	}
}

// renew writes the key again with its time to live, which the library's own update would drop.
func (c *claim) renew(ctx context.Context) error {
	if c.revision != 0 {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ctx, done := c.b.link.guard(ctx, replicasRoot+c.key)
		defer done()
		ack, err := c.b.js.Publish(ctx, replicasRoot+c.key, []byte(c.b.cfg.Name),
			jetstream.WithMsgTTL(c.b.cfg.ClaimTTL), jetstream.WithExpectLastSequencePerSubject(c.revision))
		if err == nil {
			c.revision = ack.Sequence
			return nil
		}
		if !isConflict(err) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return named(err, context.Cause(ctx))
		}
		c.revision = 0
	}
	err := c.take(ctx)
	if errors.Is(err, ErrClaimed) && !c.lost {
		c.lost = true
		c.b.metrics.claimsLost.Inc()
	}
	return err
}

// free deletes the key where this process still holds it.
func (c *claim) free(ctx context.Context) {
	if c.revision == 0 || !c.b.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	kv, err := c.b.bucket(ctx)
	if err == nil {
		err = kv.Delete(ctx, c.key, jetstream.LastRevision(c.revision))
	}
	if err != nil {
		c.b.log.Info("claim not released, it lapses by itself", "key", c.key, "err", err)
	}
}
