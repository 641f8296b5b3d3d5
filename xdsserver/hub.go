package xdsserver

import (
	"net/netip"
	"sync"
)

// Hub knows every stream and what it holds.
type Hub struct {
	mu      *sync.Mutex // shared with Store
	store   *Store
	changed chan struct{}
	watched bool
}

func (h *Hub) holders(func(netip.AddrPort) bool) []Holder   { return nil }
func (h *Hub) orphansOf(func(netip.AddrPort) bool) []Orphan { return nil }
