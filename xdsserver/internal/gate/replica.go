package gate

import (
	"net/netip"
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Replica is the xDS replica that a Gate belongs to.
type Replica interface {
	// Step runs f in one moment of the replica: while f runs, no State is applied, nothing is queued or sent to a
	// stream, and no acknowledgement is counted. If f returns true the replica promises, in that same moment, not to
	// choose the pod again, by fallback or otherwise, until its uid is gone from all slices of the cluster.
	// wait names who is promised to.
	Step(pod Pod, wait string, f func(m Moment) (promise bool))
	// Release takes back what was promised to that wait; the pod may be chosen again when nobody else was promised it.
	Release(pod Pod, wait string)
	// Changed gives a channel that is closed when anything has changed that a Moment shows. Who takes the channel
	// before a Step misses no change after it.
	Changed() <-chan struct{}
}

// Moment is what a replica knows at one moment. It is valid inside of Step only.
type Moment interface {
	// Sight gives where the cluster's State has the pod.
	Sight(pod Pod) Sighting
	// Version gives the version at which the replica knows a slice, live or gone; zero when it does not know it.
	Version(key endpoint.Key, slice string) endpoint.Version
	// Holders gives every stream that may hold one of the targets, in any order: by what it last acknowledged, by
	// what was sent and is not acknowledged yet, or by what is queued for it, of the names that it is subscribed to;
	// a stream without its first acknowledgement may hold everything. Streams that ended are among them, with what
	// they may have held, until the same node id at the same peer address has acknowledged on another stream all
	// that it asked for.
	Holders(t Targets) []Holder
}

// Pod names one pod of one cluster.
type Pod struct {
	Cluster   string
	Namespace string
	Name      string
	UID       string
	Addrs     []netip.Addr // the pod's addresses, sorted, unmapped; may be empty where UID is set
}

// Sighting is where a cluster's State has a pod.
type Sighting struct {
	Floor   endpoint.Version // what the replica knows of the cluster is complete as of this version; zero before it is
	Places  []Place          // every endpoint of the pod: by its uid, or by address where an endpoint has no targetRef
	Shared  bool             // another live pod has one of the pod's addresses with the same port
	Foreign []netip.AddrPort // what other live pods of the cluster have at the pod's addresses
}

// Place is one endpoint of a pod in one live slice.
type Place struct {
	Key        endpoint.Key
	Slice      string
	Version    endpoint.Version // of the slice
	Addr       netip.Addr
	Ports      []endpoint.Port // of the slice
	Conditions endpoint.Conditions
	Used       bool // some View is sent it as HEALTHY, because it is ready or by fallback
}

// Holder is one stream that may hold a target.
type Holder struct {
	Stream   string    // names the stream within this replica, or within all where Replica is set
	Replica  string    // that had the stream and has vanished; "" for this one
	Node     string    // node id of the proxy
	Address  string    // peer address of the stream
	Since    time.Time // when the stream began
	Ended    time.Time // when it ended; zero while it is open
	Fresh    bool      // it has acknowledged nothing yet, and so may hold everything
	Draining bool      // it holds the targets as DRAINING only
	Silent   time.Time // since when its oldest unacknowledged response is out; zero when there is none
}

// Targets are the addresses to look for in what streams hold.
type Targets struct {
	Addrs  []netip.Addr     // with any port
	Except []netip.AddrPort // but for these, which belong to other pods
}

// Match reports whether a is one of the targets.
func (t Targets) Match(a netip.AddrPort) bool {
	return slices.Contains(t.Addrs, a.Addr()) && !slices.Contains(t.Except, a)
}
