package xdsserver

import (
	"net/netip"
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Holder is a stream that may still hold an address: by what it last acknowledged, by what was sent and is not yet
// acknowledged, or by what is queued for it.
type Holder struct {
	Stream   string    // names the stream within this replica
	Node     string    // node id that the client gave, "" before its first request
	Address  string    // peer address of the connection, host:port
	Since    time.Time // when the stream was opened
	Silent   time.Time // since when its oldest unacknowledged response is out; zero when there is none
	Draining bool      // it holds the address as DRAINING only
	Unacked  bool      // it has acknowledged no assignment yet: it may hold everything
}

// Orphan is a stream that has ended and whose proxy may still hold an address. It is forgotten when the same node and
// peer host has acknowledged all it wanted on another stream of this replica, or after the time in which a proxy is lost.
type Orphan struct {
	Stream  string // names the ended stream within this replica, or within all of them where Replica is set
	Replica string // that had the stream and has vanished; "" for this one
	Node    string
	Address string    // peer address of the ended connection, host:port
	Ended   time.Time // when the stream ended
	Clean   bool      // it had acknowledged all it wanted when it ended
}

// PodSlice is one slice in which a pod is seen.
type PodSlice struct {
	Key      endpoint.Key
	Slice    string
	Version  endpoint.Version
	Endpoint endpoint.Endpoint // as that slice has it
	Ports    []endpoint.Port   // of the slice; shared, not to be changed
	Used     bool              // some assignment, for a View of any cluster, would choose it
}

// PodView is what the memory says of one pod.
type PodView struct {
	Floor    endpoint.Version // of the cluster: all the API server had at it is in the memory; zero before the first match
	Seen     []PodSlice       // every live slice that holds the pod, sorted by Key, Slice, address
	Used     bool             // some assignment, for a View of any cluster, would choose it
	Fallback bool             // Used, and only because nothing is ready (the serving and terminating ones serve)
	Current  bool             // the reader is in sync with the cluster, and its snapshot of this session is done
	Foreign  []netip.AddrPort // at its addresses (those asked for and those of Seen), the ports of other live pods, sorted
	Shared   bool             // one of its address:port pairs is held by another pod that is ready, or serving
	Addrs    []netip.AddrPort // every address:port of it in Seen, sorted
	Services []string         // "namespace/service" of Seen, sorted
	Promised bool             // it is in the promise set
}

// Sight looks at the memory and the streams in one step. It is valid only inside the function that Look calls.
type Sight struct {
	hub   *Hub
	store *Store
}

// Look calls see while nothing changes: neither the memory nor what any stream holds. see must not block and must not
// call the methods of Hub and Store that take the lock themselves.
func (h *Hub) Look(see func(Sight)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	see(Sight{h, h.store})
}

// Holders gives the streams that may hold any of addrs, sorted by node and address.
func (h *Hub) Holders(addrs []netip.AddrPort) (held []Holder) {
	h.Look(func(s Sight) { held = s.Holders(func(a netip.AddrPort) bool { return slices.Contains(addrs, a) }) })
	return held
}

// Orphans gives the ended streams whose proxies may hold any of addrs, sorted by node and address.
func (h *Hub) Orphans(addrs []netip.AddrPort) (lost []Orphan) {
	h.Look(func(s Sight) { lost = s.Orphans(func(a netip.AddrPort) bool { return slices.Contains(addrs, a) }) })
	return lost
}

// Changed gives a channel that is closed when something that Look shows may have changed: a State or a checkpoint
// applied, a response sent, acknowledged or rejected, a stream opened or ended. Take it before looking.
func (h *Hub) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = true
	return h.changed
}

// Pod gives what the memory says of the pod of that uid in a cluster, and of every endpoint without targetRef that has
// one of addrs; without uid, of every endpoint that has one of addrs.
func (s *Store) Pod(cluster, uid string, addrs []netip.Addr) PodView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod(cluster, uid, addrs)
}

// Promise makes Assign never choose that pod again, until Release or until no slice holds the uid.
func (s *Store) Promise(cluster, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promise(cluster, uid)
}

// Release takes a promise back.
func (s *Store) Release(cluster, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(cluster, uid)
}

// Pod is Store.Pod.
func (s Sight) Pod(cluster, uid string, addrs []netip.Addr) PodView {
	return s.store.pod(cluster, uid, addrs)
}

// Promise is Store.Promise.
func (s Sight) Promise(cluster, uid string) { s.store.promise(cluster, uid) }

// Release is Store.Release.
func (s Sight) Release(cluster, uid string) { s.store.release(cluster, uid) }

// PromiseTo is Promise, to one of several who may ask for it.
func (s Sight) PromiseTo(who, cluster, uid string) {
	s.store.promise(cluster, uid)
	s.store.promiseTo(who, cluster, uid)
}

// ReleaseFrom takes back what was promised to one of them; when nobody else was promised it, the promise ends.
func (s Sight) ReleaseFrom(who, cluster, uid string) {
	if s.store.releaseFrom(who, cluster, uid) {
		s.store.release(cluster, uid)
	}
}

// Deaf reports whether there is a list of the proxies of all replicas that has not been heard yet.
func (s Sight) Deaf() bool { return s.hub.roll != nil && !s.hub.roll.known() }

// Version gives the version of a slice in the memory, live or gone; the zero Version when the memory does not know it.
func (s Sight) Version(key endpoint.Key, slice string) endpoint.Version {
	return s.store.version(key, slice)
}

// Floor gives the floor of a cluster, the zero Version before its first match.
func (s Sight) Floor(cluster string) endpoint.Version { return s.store.floor(cluster) }

// Clusters lists the clusters that the bus knows, sorted.
func (s Sight) Clusters() []string { return s.store.clusterNames() }

// Holders gives the streams that may hold an address that match tells, sorted by node, address and stream.
func (s Sight) Holders(match func(netip.AddrPort) bool) []Holder { return s.hub.holders(match) }

// Orphans gives the ended streams whose proxies may hold an address that match tells, sorted likewise.
func (s Sight) Orphans(match func(netip.AddrPort) bool) []Orphan { return s.hub.orphansOf(match) }
