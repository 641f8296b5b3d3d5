package xdsserver

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// ep gives an endpoint from "address conditions[@zone] [uid]", as in "10.0.0.1 rs-@z1 pod-1".
func ep(text string) endpoint.Endpoint {
	f := strings.Fields(text)
	cond, zone, _ := strings.Cut(f[1], "@")
	c, err := endpoint.ParseConditions(cond)
	if err != nil {
		panic(err)
	}
	e := endpoint.Endpoint{Addr: netip.MustParseAddr(f[0]), Conditions: c, Zone: zone}
	if len(f) > 2 {
		e.TargetKind, e.TargetName, e.TargetUID = "Pod", f[2], f[2]
	}
	return e
}

// hinted gives e with zone hints and node hints.
func hinted(e endpoint.Endpoint, zones, nodes string) endpoint.Endpoint {
	e.ZoneHints, e.NodeHints = zones, nodes
	return e
}

// sliceOf gives a slice of the service cart of namespace shop with one port, "http:8080".
func sliceOf(cluster, name string, rv uint64, eps ...endpoint.Endpoint) endpoint.Slice {
	return endpoint.Slice{
		Key: endpoint.Key{Cluster: cluster, Namespace: "shop", Service: "cart"}, Name: name, UID: name,
		Version: endpoint.Version{Generation: 1, Resource: rv}, Translator: 1,
		Ports: []endpoint.Port{{Name: "http", Number: 8080}}, Endpoints: eps,
		Observed: time.Unix(1000, 0),
	}.Canonical()
}

// withPorts gives sl with other ports, "name:number:appProtocol" each.
func withPorts(sl endpoint.Slice, ports ...endpoint.Port) endpoint.Slice {
	sl.Ports = ports
	return sl.Canonical()
}

// withLabels gives sl with policies.
func withLabels(sl endpoint.Slice, terminating, failover string) endpoint.Slice {
	sl.TerminatingPolicy, sl.FailoverPolicy = terminating, failover
	return sl
}

// ofService gives sl as a slice of another service.
func ofService(sl endpoint.Slice, namespace, service string) endpoint.Slice {
	sl.Key.Namespace, sl.Key.Service = namespace, service
	return sl
}

// stateOf gives the State of slices of one Key.
func stateOf(slicesOf ...endpoint.Slice) endpoint.State {
	st := endpoint.State{Key: slicesOf[0].Key, Slices: slices.Clone(slicesOf)}
	slices.SortFunc(st.Slices, func(a, b endpoint.Slice) int { return strings.Compare(a.Name, b.Name) })
	return st
}

// emptyState gives a State without slices that is complete as of rv.
func emptyState(cluster, namespace, service string, rv uint64) endpoint.State {
	return endpoint.State{
		Key:   endpoint.Key{Cluster: cluster, Namespace: namespace, Service: service},
		Floor: endpoint.Version{Generation: 1, Resource: rv},
	}
}

func mustName(t testing.TB, text string) Name {
	t.Helper()
	n, err := ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ofGeneration gives sl in another generation of its cluster.
func ofGeneration(sl endpoint.Slice, generation uint64) endpoint.Slice {
	sl.Version.Generation = generation
	return sl
}
