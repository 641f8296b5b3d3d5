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

func (h *Hub) holders([]netip.AddrPort) []Holder   { return nil }
func (h *Hub) orphansOf([]netip.AddrPort) []Orphan { return nil }
