package xdsserver

import (
	"slices"
	"testing"
)

// subscriber is a client of either protocol, so that a rule of both is told once. It acknowledges what it takes.
type subscriber struct {
	*client
	names map[string][]string // subscribed, by type
}

func (b *bench) subscriber(t *testing.T, c *client) *subscriber {
	c.t = t
	return &subscriber{client: c, names: map[string][]string{}}
}

// want subscribes to names too; no name is the wildcard.
func (p *subscriber) want(kind string, names ...string) {
	p.t.Helper()
	for _, name := range names {
		if !slices.Contains(p.names[kind], name) {
			p.names[kind] = append(p.names[kind], name)
		}
	}
	if p.delta != nil {
		p.subscribe(kind, nil, names...)
	} else {
		p.ask(kind, p.names[kind]...)
	}
}

// drop unsubscribes from names.
func (p *subscriber) drop(kind string, names ...string) {
	p.t.Helper()
	p.names[kind] = slices.DeleteFunc(p.names[kind], func(name string) bool { return slices.Contains(names, name) })
	if p.delta != nil {
		p.unsubscribe(kind, names...)
	} else {
		p.ask(kind, p.names[kind]...)
	}
}

// take receives a response of a type and acknowledges it.
func (p *subscriber) take(kind string) got {
	p.t.Helper()
	g := p.recv()
	if g.kind != kind {
		p.t.Fatalf("got %s of %v, removed %v, want %s", g.kind, g.names, g.removed, kind)
	}
	if p.delta != nil {
		p.ack(g)
	} else {
		p.accept(g, p.names[kind]...)
	}
	return g
}

// takes receives an assignment of one service, and compares it.
func (p *subscriber) takes(name, want string) {
	p.t.Helper()
	g := p.take("eds")
	if len(g.names) != 1 || g.names[0] != name || g.res[name] != want || len(g.removed) > 0 {
		p.t.Fatalf("got %v, removed %v, want %s: %q", g.res, g.removed, name, want)
	}
}

// refuse receives a response of a type and rejects it.
func (p *subscriber) refuse(kind string) {
	p.t.Helper()
	g := p.recv()
	if g.kind != kind {
		p.t.Fatalf("got %s of %v, want %s", g.kind, g.names, kind)
	}
	if p.delta != nil {
		p.nack(g)
	} else {
		p.reject(g, p.names[kind]...)
	}
}

// quiet fails if anything was sent that was not received.
func (p *subscriber) quiet() {
	p.t.Helper()
	p.fence(p.names["eds"]...)
}
