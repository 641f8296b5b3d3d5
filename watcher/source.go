package watcher

import (
	"context"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Source is where the EndpointSlices of one cluster come from.
type Source interface {
	// UID gives the identity of the cluster: the uid of its namespace kube-system, or "dir". It asks once; the
	// caller retries.
	UID(ctx context.Context) (string, error)

	// Watch lists, then watches, until ctx ends, and hands all it learns to handle, in order, from one goroutine at a
	// time; handle returns when the update has been taken. Lost connections are its own business: it reports Lost
	// and tries again. It may be called again after it has returned.
	Watch(ctx context.Context, scope Scope, handle func(Update)) error

	// Floor gives a resourceVersion of the source by a consistent read that begins after the call, and makes sure
	// that the running Watch reports soon that it has reached it. 0 stands for "what Watch has reported by now".
	Floor(ctx context.Context) (uint64, error)
}

// Scope is what a Source stamps on the slices that it hands out.
type Scope struct {
	Cluster    string
	Generation uint64 // of the cluster's record
}

// UpdateKind says what an Update is.
type UpdateKind uint8

// The kinds of updates.
const (
	Listing UpdateKind = iota + 1 // a consistent list is about to begin; handle returns when this is known
	Listed                        // Slices is everything, as of AsOf
	Changed                       // Slice is new or changed, as of AsOf
	Removed                       // the slice Namespace/Name is gone, or hidden (There), as of AsOf
	Heard                         // nothing changed up to AsOf (0: nothing is said of it), and the source can be heard
	Lost                          // the source cannot be heard; Err says why
)

// Update is one thing that a Source learns.
type Update struct {
	Kind      UpdateKind
	Slice     endpoint.Slice
	Slices    []endpoint.Slice // one per namespace and name
	Namespace string
	Name      string
	AsOf      uint64
	Err       error
	Skips     Skips // what the translation left out

	// Hidden is, of a list, the objects that are there and not published, with their versions.
	Hidden map[object]uint64
	// There tells that the object of a removal is still there, at version AsOf.
	There bool
	// Parts is, of a list, the as-of by namespace, where a source hears each by itself; AsOf is the lowest of them. The
	// AsOf of later updates is that of their Namespace.
	Parts map[string]uint64

	// Unversioned tells that the versions of Slices and AsOf mean nothing: the source has none, the watcher counts.
	Unversioned bool
	// Partial tells that a list is not all that there is: what it does not hold may be there.
	Partial bool
	// Live tells that a list says what has just changed, so that its latency may be measured.
	Live bool
}

// object names an EndpointSlice inside a cluster.
type object struct{ namespace, name string }

func objectOf(s *endpoint.Slice) object { return object{s.Key.Namespace, s.Name} }
