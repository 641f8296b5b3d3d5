package rig

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy carries TCP connections to one address. It can be cut, and can be slow to carry what comes back.
type Proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	// mu guards all below.
	mu    sync.Mutex
	cut   bool
	delay time.Duration
	conns map[net.Conn]bool
}

// NewProxy starts a proxy on loopback. target may be set later, before the first connection.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it lives until Close
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.group.Go(p.accept)
	return p, nil
}

// Addr is host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut ends all connections and lets none in, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Heal lets connections in again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Slow makes everything that the target sends arrive so much later.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// Close ends the proxy.
func (p *Proxy) Close() {
	p.Cut()
	_ = p.listener.Close()
	p.group.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(c) })
	}
}

// add notes a connection, and reports whether it may stay.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(in net.Conn) {
	if !p.add(in) {
		return
	}
	defer p.drop(in)
	out, err := net.Dial("tcp", p.target) //nolint:noctx // loopback answers at once
	if err != nil || !p.add(out) {
		return
	}
	defer p.drop(out)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
		_ = in.Close()
	})
	both.Go(func() {
		p.back(in, out)
		_ = out.Close()
		_ = in.Close()
	})
	both.Wait()
}

// back carries what the target sends, each piece as late as Slow says.
func (p *Proxy) back(to io.Writer, from io.Reader) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 4096)
	var writer sync.WaitGroup
	writer.Go(func() {
		for x := range pieces {
			time.Sleep(time.Until(x.due)) // the fault that is made
			if _, err := to.Write(x.data); err != nil {
				for range pieces { // so that the reader ends
				}
				return
			}
		}
	})
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			pieces <- piece{time.Now().Add(delay), buf[:n]}
		}
		if err != nil {
			close(pieces)
			writer.Wait()
			return
		}
	}
}
