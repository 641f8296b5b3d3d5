// Pure: values in, values out.

package xdsserver

import "net/netip"

// Family is the address family that a View asks for.
type Family uint8

// The families. AnyFamily takes both: a pod that has both is one endpoint, its IPv4 address first.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// ParseFamily reads the value of the node metadata key slicecast.io/ip-family; anything unknown is AnyFamily.
func ParseFamily(text string) Family {
	switch text {
	case "4", "ipv4", "IPv4":
		return IPv4
	case "6", "ipv6", "IPv6":
		return IPv6
	default:
		return AnyFamily
	}
}

// String is what ParseFamily reads, "" for AnyFamily.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "ipv4"
	case IPv6:
		return "ipv6"
	default:
		return ""
	}
}

// takes reports whether an endpoint of that address belongs to f.
func (f Family) takes(a netip.Addr) bool {
	switch f {
	case IPv4:
		return a.Is4()
	case IPv6:
		return a.Is6()
	default:
		return true
	}
}

// View is a class of clients that see the same of every service. It is comparable; a replica has few of them.
type View struct {
	Cluster string // the client's own Kubernetes cluster, "" for a client of none: it sees all at priority 0
	Region  string // of the client, "" when unknown: then that of its cluster counts
	Zone    string // of the client, for zone hints
	Node    string // Kubernetes node of the client, for node hints
	Family  Family
	Scope   Scope // what the client may see at all; zero: everything
}
