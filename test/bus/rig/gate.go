package rig

import (
	"context"
	"sync"
)

// Gate holds whoever passes, while it is shut: a process that is stopped, a connection that carries nothing. The nil
// Gate is always open.
type Gate struct {
	// mu guards open, which is nil while the gate is open, and closed when a shut gate opens.
	mu   sync.Mutex
	open chan struct{}
}

// Shut makes those who pass wait.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

// Open lets them go on.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// Held reports whether the gate is shut.
func (g *Gate) Held() bool { return g.wait() != nil }

// Pass waits until the gate is open, or gives the error of ctx.
func (g *Gate) Pass(ctx context.Context) error {
	for {
		open := g.wait()
		if open == nil {
			return ctx.Err()
		}
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Gate) wait() <-chan struct{} {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}
