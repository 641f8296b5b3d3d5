package sandbox

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
)

// connections are the Driver's: one request at a time on an HTTP/1.1 connection, many on an HTTP/2 one. They are single
// http.ClientConns and not an http.Transport, because a Transport sends some requests a second time by itself.
type connections struct {
	target   string
	dialer   *http.Transport
	capacity int // Requests at once on one connection.

	mu   sync.Mutex
	free []*connection // Those with room, guarded by mu, contents too.
	all  map[*connection]struct{}
}

type connection struct {
	client *http.ClientConn
	used   int
	broken bool
}

func newConnections(target netip.AddrPort, http2 bool) *connections {
	c := &connections{
		target: target.String(), dialer: &http.Transport{Protocols: new(http.Protocols)}, capacity: 1,
		all: make(map[*connection]struct{}),
	}
	c.dialer.Protocols.SetHTTP1(!http2)
	c.dialer.Protocols.SetUnencryptedHTTP2(http2)
	if http2 {
		c.capacity = 50 // Below the limit of every server, so that no request waits for another one.
	}
	return c
}

// take gives a connection with room for one more request, the last used first, or a new one.
func (c *connections) take(ctx context.Context) (*connection, error) {
	if found := c.reuse(); found != nil {
		return found, nil
	}
	client, err := c.dialer.NewClientConn(ctx, "http", c.target)
	if err != nil {
		return nil, err
	}
	made := &connection{client: client, used: 1}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[made] = struct{}{}
	if made.used < c.capacity {
		c.free = append(c.free, made)
	}
	return made, nil
}

func (c *connections) reuse() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.free) > 0 {
		last := c.free[len(c.free)-1]
		if last.client.Err() != nil { // Closed while it was idle.
			c.free = c.free[:len(c.free)-1]
			last.broken = true
			c.forget(last)
			continue
		}
		if last.used++; last.used == c.capacity {
			c.free = c.free[:len(c.free)-1]
		}
		return last
	}
	return nil
}

// put gives a connection back; one that failed takes no further request.
func (c *connections) put(conn *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := conn.used == c.capacity
	conn.used--
	switch {
	case conn.broken:
		c.forget(conn)
	case !ok:
		conn.broken = true
		for i, f := range c.free {
			if f == conn {
				c.free = append(c.free[:i], c.free[i+1:]...)
				break
			}
		}
		c.forget(conn)
	case full:
		c.free = append(c.free, conn)
	}
}

// forget closes a broken connection that nobody uses. The caller holds mu.
func (c *connections) forget(conn *connection) {
	if conn.used == 0 {
		delete(c.all, conn)
		_ = conn.client.Close()
	}
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.all {
		_ = conn.client.Close()
	}
	clear(c.all)
	c.free = nil
}
