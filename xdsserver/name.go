// Pure: values in, values out.

package xdsserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// errName is what every error of ParseName wraps.
var errName = errors.New("not <service>.<namespace>[.<cluster>][:<port>]")

// Name is the name of an xDS resource: one port of a service, in all clusters or in one.
//
// Invariants: N1: Service and Namespace are DNS labels. N2: Cluster and Port are empty or DNS labels.
type Name struct {
	Service   string
	Namespace string
	Cluster   string // "" for the service in all clusters
	Port      string // name or number of the port; "" for the unnamed port
}

// ParseName reads what Name.String wrote.
func ParseName(text string) (Name, error) {
	host, port, has := strings.Cut(text, ":")
	if has && !endpoint.IsLabel(port) {
		return Name{}, fmt.Errorf("name %q: port: %w", clip(text), errName)
	}
	parts := strings.Split(host, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Name{}, fmt.Errorf("name %q: %w", clip(text), errName)
	}
	for _, p := range parts {
		if !endpoint.IsLabel(p) {
			return Name{}, fmt.Errorf("name %q: part %q: %w", clip(text), clip(p), errName)
		}
	}
	n := Name{Service: parts[0], Namespace: parts[1], Port: port}
	if len(parts) == 3 {
		n.Cluster = parts[2]
	}
	return n, nil
}

// String gives "<service>.<namespace>[.<cluster>][:<port>]".
func (n Name) String() string {
	text := n.Service + "." + n.Namespace
	if n.Cluster != "" {
		text += "." + n.Cluster
	}
	if n.Port != "" {
		text += ":" + n.Port
	}
	return text
}

// service gives the service that n is a port of.
func (n Name) service() serviceID { return serviceID{n.Namespace, n.Service} }

// number gives the port number that n may mean, 0 when it can only be a name.
func (n Name) number() uint16 {
	v, err := strconv.ParseUint(n.Port, 10, 16)
	if err != nil || strconv.FormatUint(v, 10) != n.Port {
		return 0
	}
	return uint16(v)
}

// serviceID names a service of all clusters: namespace sameness.
type serviceID struct{ namespace, service string }

func (s serviceID) String() string { return s.namespace + "/" + s.service }

// clip bounds foreign text in an error or a log line.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
