package xdsserver

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// connection is one stream being served: a goroutine that receives, one that sends, and the handler, which ends both by
// returning. A send that hangs cannot be interrupted otherwise.
type connection struct {
	s        *Server
	st       *stream
	g        grpc.ServerStream
	asked    chan struct{}   // closed at the first request
	ended    chan error      // of capacity 2: the receiver or the sender has ended
	handOver <-chan struct{} // closed when others should take the stream over
	onList   bool            // of the sender: the bus knows of the stream, or takes nothing
	sending  atomic.Int64    // since when a send is under way, in Unix nanoseconds; 0 when none is
}

// serve serves a stream until the client ends it, it is too slow, or the server stops.
func (s *Server) serve(g grpc.ServerStream, o streamOptions, receive func() (message, error)) error {
	if p, ok := peer.FromContext(g.Context()); ok {
		o.peer = p.Addr.String()
		if s.cfg.Access != nil {
			identities := identitiesFrom(p.AuthInfo)
			o.scope, o.who = s.cfg.Access().Scope(identities), joinedIdentities(identities)
		}
	}
	if err := s.admit.enter(g.Context()); err != nil {
		return status.FromContextError(err).Err()
	}
	handOver, err := s.crowd.takes()
	if err != nil {
		return err
	}
	c := &connection{s: s, st: s.hub.open(o), g: g, asked: make(chan struct{}), ended: make(chan error, 2), handOver: handOver}
	defer s.hub.end(c.st)
	s.workers.Add(2)
	go func() {
		defer s.workers.Done()
		c.ended <- c.receive(receive)
	}()
	go func() {
		defer s.workers.Done()
		c.ended <- c.send(g.Context())
	}()
	return c.watch()
}

// watch waits for the end of a stream.
func (c *connection) watch() error {
	limit := c.s.cfg.SlowLimit
	timer := time.NewTimer(limit)
	defer timer.Stop()
	stopping, handOver := c.s.stopping, c.handOver
	ending := status.Error(codes.Unavailable, "this replica is stopping")
	var drain <-chan time.Time
	for {
		select {
		case err := <-c.ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-stopping:
			// Not all at once: the other replicas take them over one by one.
			stopping, handOver, drain = nil, nil, time.After(rand.N(c.s.cfg.DrainSpread+1))
		case <-handOver:
			handOver, drain, ending = nil, time.After(rand.N(c.s.cfg.DrainSpread+1)), errCutOff
			c.s.metrics.handedOver.Inc()
		case <-drain:
			return ending
		case now := <-timer.C:
			cause, since, node := c.slowest(now)
			if now.Sub(since) >= limit {
				c.s.metrics.slow.WithLabelValues(cause).Inc()
				c.s.log.Warn("stream is too slow and is ended", "node", clip(node), "cause", cause)
				return status.Errorf(codes.ResourceExhausted, "no progress for %s (%s)", limit, cause)
			}
			timer.Reset(limit - now.Sub(since))
		}
	}
}

// slowest gives what a stream has waited for longest, and since when; since now when it waits for nothing.
func (c *connection) slowest(now time.Time) (cause string, since time.Time, node string) {
	c.s.hub.mu.Lock()
	silent, node := c.st.silent(), c.st.node
	c.s.hub.mu.Unlock()
	if start := c.sending.Load(); start != 0 {
		// What is being sent is unacknowledged too, and since a little longer.
		return slowSend, time.Unix(0, start), node
	}
	if silent.IsZero() {
		silent = now
	}
	return slowAck, silent, node
}

// receive takes requests until the stream ends.
func (c *connection) receive(next func() (message, error)) error {
	first, refused := true, false
	for {
		m, err := next()
		if err != nil {
			return err
		}
		k, served := c.kindOf(m.typeURL)
		if !served {
			c.s.metrics.refused.Inc()
			if !refused {
				refused = true
				c.s.log.Info("type is not served", "node", clip(m.node.GetId()), "type", clip(m.typeURL))
			}
			continue
		}
		m.request.kind = k
		if m.noted != nil {
			m.noted(k)
		}
		if m.nack {
			c.s.log.Warn("client rejected a response", "node", clip(c.st.node), "type", k.String(), "nonce", clip(m.nonce), "err", clip(m.detail))
		}
		if f := c.s.hub.refuse(c.st, m.request); f != nil {
			c.s.metrics.refusals.WithLabelValues(f.cause).Inc()
			c.s.log.Warn("stream is refused", "node", clip(m.node.GetId()), "peer", c.st.peer, "err", f.err)
			return f.err
		}
		c.s.hub.request(c.st, m.request)
		if first {
			first = false
			close(c.asked)
		}
	}
}

// kindOf gives the kind that a request is about; a service of one type may leave it out.
func (c *connection) kindOf(typeURL string) (kind, bool) {
	if typeURL == "" && c.st.service != "ads" {
		for k := range kinds {
			if c.st.serves(k) {
				return k, true
			}
		}
	}
	k, known := kindOf(typeURL)
	return k, known && c.st.serves(k)
}

// send sends what is due until the stream ends. The first answer waits until the memory has all that the bus held when
// the client asked: it may come from a replica that was ahead.
func (c *connection) send(ctx context.Context) error {
	select {
	case <-c.asked:
	case <-ctx.Done():
		return ctx.Err()
	}
	loaded, err := c.s.admit.load(ctx)
	if err != nil {
		return err
	}
	defer loaded()
	c.s.catchUp(ctx)
	for {
		for {
			r, f := c.s.hub.next(c.st)
			if r == nil {
				break
			}
			if r.kind == assignments && !c.onList {
				c.onList = true
				c.s.onList(ctx, c.st)
			}
			if err := c.sendOne(r, f); err != nil {
				return err
			}
		}
		loaded()
		select {
		case <-c.st.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *connection) sendOne(r *response, f *frame) error {
	c.sending.Store(time.Now().UnixNano())
	err := c.g.SendMsg(f)
	c.sending.Store(0)
	if err == nil {
		c.s.metrics.sent(r, time.Now())
	}
	return err
}

// catchUp waits until all that the bus holds now is applied, but not for longer than the limit; while the bus is lost,
// not at all.
func (s *Server) catchUp(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.FirstAnswerWait)
	defer cancel()
	seq, err := s.asker.ask(bounded)
	if err == nil {
		select {
		case <-s.store.reached(seq):
			return
		case <-bounded.Done():
		}
	}
	if ctx.Err() == nil {
		s.metrics.late.Inc()
	}
}
