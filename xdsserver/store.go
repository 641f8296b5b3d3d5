package xdsserver

import (
	"net/netip"
	"sync"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Store is the memory of a replica.
type Store struct {
	mu *sync.Mutex // shared with Hub
}

func (s *Store) pod(string, string, []netip.Addr) PodView          { return PodView{} }
func (s *Store) promise(string, string)                            {}
func (s *Store) release(string, string)                            {}
func (s *Store) version(endpoint.Key, string) (v endpoint.Version) { return v }
func (s *Store) floor(string) (v endpoint.Version)                 { return v }
func (s *Store) clusterNames() []string                            { return nil }
