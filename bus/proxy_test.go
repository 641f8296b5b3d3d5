package bus_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy carries TCP connections to one address. It can be cut, and can hold back what the other side answers.
type proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	cut   bool
	late  time.Duration
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.set(true, 0)
		_ = l.Close()
		p.group.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set cuts all connections and lets none in, or lets them in again; answers come so late.
func (p *proxy) set(cut bool, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.late = cut, late
	for c := range p.conns {
		if cut {
			_ = c.Close()
		}
	}
}

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) serve(in net.Conn) {
	if !p.keep(in) {
		return
	}
	defer p.drop(in)
	out, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(out) {
		return
	}
	defer p.drop(out)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(lateWriter{p, in}, out)
		_ = in.Close()
	})
	both.Wait()
}

// lateWriter writes each piece as late as its proxy says.
type lateWriter struct {
	p  *proxy
	to io.Writer
}

func (w lateWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	late := w.p.late
	w.p.mu.Unlock()
	time.Sleep(late) // the fault that is made
	return w.to.Write(b)
}
