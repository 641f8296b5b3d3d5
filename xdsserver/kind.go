// Pure: values in, values out.

package xdsserver

// kind is a type of resource.
type kind uint8

// The kinds, in the order in which a stream is served: what something refers to goes before it, but for assignments,
// which clients ask for when they have the cluster.
const (
	clusters kind = iota
	assignments
	listeners
	routes
	kinds
)

// typeURLs and kindTexts are those of the kinds.
var (
	typeURLs  = [kinds]string{typeCluster, typeAssignment, typeListener, typeRoute}
	kindTexts = [kinds]string{"cds", "eds", "lds", "rds"}
)

// kindOf gives the kind of a type URL.
func kindOf(typeURL string) (kind, bool) {
	for k, url := range typeURLs {
		if url == typeURL {
			return kind(k), true
		}
	}
	return 0, false
}

func (k kind) typeURL() string { return typeURLs[k] }

func (k kind) String() string { return kindTexts[k] }

// whole reports whether a SotW response must have all resources of the kind, since a name that is missing from it is
// a deletion. These are the kinds that have a wildcard. That of clusters means all merged service ports, that of
// listeners none: the listeners that we know are for clients that ask for them by name.
func (k kind) whole() bool { return k == clusters || k == listeners }

// vanishes reports whether a resource of the kind may be not there. An assignment is empty instead.
func (k kind) vanishes() bool { return k != assignments }

// follower gives the kind whose resource of the same name is sent again after one of this kind: clients forget it.
func (k kind) follower() (kind, bool) {
	switch k {
	case clusters:
		return assignments, true
	case listeners:
		return routes, true
	default:
		return 0, false
	}
}

// removalOrder is the order in which a delta stream is told of what is gone: what refers to something goes before it.
var removalOrder = [...]kind{listeners, routes, clusters}
