// Pure: values in, values out.

package xdsserver

import "strings"

// hints decides whether topology hints are followed (rule R8): those for nodes first, then those for zones, and only if
// every ready endpoint of the service port in the client's own cluster has some and one of them means the client. So
// they fail open over the whole service, not slice by slice. A client of no cluster takes all clusters for its own.
type hints struct {
	node, zone   string // of the client, "" when hints do not concern it
	seen         int    // ready endpoints at priority 0
	nodes, zones int    // of those, how many have hints
	nodeMine     bool   // one of them means the client's node
	zoneMine     bool   // one of them means the client's zone
}

// hintsOf gives the hints for a view before any endpoint was seen. A service of one named other cluster knows nothing
// of the client's zones.
func hintsOf(view View, name Name) hints {
	if name.Cluster != "" && view.Cluster != "" && name.Cluster != view.Cluster {
		return hints{}
	}
	return hints{node: view.Node, zone: view.Zone}
}

// see takes one ready endpoint into account.
func (h *hints) see(c *candidate) {
	if c.from.tier != 0 {
		return
	}
	h.seen++
	if c.ep.NodeHints != "" {
		h.nodes++
		h.nodeMine = h.nodeMine || listed(c.ep.NodeHints, h.node)
	}
	if c.ep.ZoneHints != "" {
		h.zones++
		h.zoneMine = h.zoneMine || listed(c.ep.ZoneHints, h.zone)
	}
}

// refuse reports whether the hints give a ready endpoint to others.
func (h *hints) refuse(c *candidate) bool {
	switch {
	case c.from.tier != 0:
		return false
	case h.nodeMine && h.nodes == h.seen:
		return !listed(c.ep.NodeHints, h.node)
	case h.zoneMine && h.zones == h.seen:
		return !listed(c.ep.ZoneHints, h.zone)
	default:
		return false
	}
}

// listed reports whether item is in a comma-joined list.
func listed(list, item string) bool {
	if item == "" {
		return false
	}
	for one := range strings.SplitSeq(list, ",") {
		if one == item {
			return true
		}
	}
	return false
}
