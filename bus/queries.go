package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	serviceName    = "slicecast"
	serviceVersion = "1.0.0"
	maxAsked       = 10_000              // questions in work at once, for each Serve
	hTimeout       = "Slicecast-Timeout" // how long the asker waits, as a Go duration
)

// Queries are questions and answers by request and reply, listed by the micro service "slicecast".
type Queries struct{ b *Bus }

// Serve answers the query of that name until ctx ends, when it returns nil after all answers are given. Each question
// has a goroutine of its own, whose context ends when the asker stops waiting. At most 10,000 are in work at once; more
// are refused. With several processes that serve one name, each question goes to one of them.
func (q *Queries) Serve(ctx context.Context, name string, answer func(ctx context.Context, body []byte) ([]byte, error)) error {
	subject, err := querySubject(name)
	if err != nil {
		return err
	}
	return q.serve(ctx, name, subject, answer)
}

// ServeOwn is Serve for questions to this very process, which others know by Bus.ID.
func (q *Queries) ServeOwn(ctx context.Context, name string, answer func(ctx context.Context, body []byte) ([]byte, error)) error {
	subject, err := replicaSubject(q.b.id, name)
	if err != nil {
		return err
	}
	return q.serve(ctx, name, subject, answer)
}

func (q *Queries) serve(ctx context.Context, name, subject string, answer func(ctx context.Context, body []byte) ([]byte, error)) error {
	svc, err := micro.AddService(q.b.nc, micro.Config{Name: serviceName, Version: serviceVersion, Description: "Questions to " + q.b.cfg.Name})
	if err != nil {
		return fmt.Errorf("serve query %s: %w", name, err)
	}
	d := &desk{q: q, answer: answer}
	handler := micro.HandlerFunc(func(req micro.Request) { d.take(ctx, req) })
	if err := svc.AddEndpoint(strings.ReplaceAll(name, ".", "-"), handler, micro.WithEndpointSubject(subject)); err != nil {
		return errors.Join(fmt.Errorf("serve query %s: %w", name, err), svc.Stop())
	}
	<-ctx.Done()
	err = svc.Stop()
	if err == nil && q.b.Connected() {
		// Once the server has heard of it, it sends no more; a lost connection says the same.
		if err := q.b.nc.FlushTimeout(deleteTimeout); err != nil {
			q.b.log.Debug("end of a query not confirmed", "subject", subject, "err", err)
		}
	}
	d.close()
	if err != nil && q.b.Connected() {
		return fmt.Errorf("stop serving query %s: %w", name, err)
	}
	return nil
}

// desk takes the questions of one Serve.
type desk struct {
	q      *Queries
	answer func(ctx context.Context, body []byte) ([]byte, error)

	// mu guards what follows: no work begins after close has begun to wait for it.
	mu     sync.Mutex
	asked  int // questions in work
	closed bool
	work   sync.WaitGroup
}

// take answers req in a goroutine of its own, or refuses it.
func (d *desk) take(ctx context.Context, req micro.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.asked >= maxAsked {
		d.q.reply(req, nil, errors.New("too many questions at once, or the end of this process"))
		return
	}
	d.asked++
	d.work.Go(func() {
		ctx, cancel := withTimeoutOf(ctx, req.Headers().Get(hTimeout))
		defer cancel()
		body, err := d.answer(ctx, req.Data())
		d.q.reply(req, body, err)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked--
	})
}

// close returns when all is answered.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.work.Wait()
}

func (q *Queries) reply(req micro.Request, body []byte, err error) {
	var sent error
	if err != nil {
		sent = req.Error("500", oneLine(err.Error()), nil)
	} else {
		sent = req.Respond(body)
	}
	if sent != nil {
		q.b.log.Debug("answer not sent", "subject", req.Subject(), "err", sent)
	}
}

// Ask sends a question and waits for one answer. Without a deadline in ctx it waits 5 s. ErrNobody says that no
// process serves that name; any other text of the answering process comes as an error.
func (q *Queries) Ask(ctx context.Context, name string, body []byte) ([]byte, error) {
	subject, err := querySubject(name)
	if err != nil {
		return nil, err
	}
	return q.ask(ctx, name, subject, body)
}

// AskReplica is Ask for the process of that id (Member.ID), which answers with ServeOwn. ErrNobody says that it does not
// hear the bus, or has ended.
func (q *Queries) AskReplica(ctx context.Context, id, name string, body []byte) ([]byte, error) {
	subject, err := replicaSubject(id, name)
	if err != nil {
		return nil, err
	}
	return q.ask(ctx, name, subject, body)
}

func (q *Queries) ask(ctx context.Context, name, subject string, body []byte) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	deadline, _ := ctx.Deadline()
	call, done := q.b.link.guard(ctx, subject)
	defer done()
	reply, err := q.b.nc.RequestMsgWithContext(call, &nats.Msg{
		Subject: subject, Data: body, Header: nats.Header{hTimeout: {time.Until(deadline).String()}},
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("ask %s: %w", name, ErrNobody)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", name, named(err, context.Cause(call)))
	}
	if text := reply.Header.Get(micro.ErrorHeader); text != "" {
		return nil, fmt.Errorf("ask %s: %s", name, clip(text))
	}
	return reply.Data, nil
}

func withTimeoutOf(ctx context.Context, text string) (context.Context, context.CancelFunc) {
	if d, err := time.ParseDuration(text); err == nil {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}
