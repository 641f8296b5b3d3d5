package main

import (
	"fmt"
	"net/netip"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

const (
	cluster    = "east"
	perService = 10
	typeURL    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

func serviceOf(i int) string { return fmt.Sprintf("service-%05d", i) }

// nameOf is the name of the assignment of the i-th service.
func nameOf(i int) string { return serviceOf(i) + ".shop:http" }

// stateOf gives the i-th service after its nth change: one endpoint has moved.
func stateOf(i, n int) endpoint.State {
	st := endpoint.State{Key: endpoint.Key{Cluster: cluster, Namespace: "shop", Service: serviceOf(i)}}
	s := endpoint.Slice{
		Key: st.Key, Name: serviceOf(i) + "-x1", UID: serviceOf(i), Version: endpoint.Version{Generation: 1, Resource: uint64(1 + n)}, Translator: 1,
		Ports: []endpoint.Port{{Name: "http", Number: 8080}},
	}
	for j := range perService {
		pod := i*perService + j
		addr := [4]byte{10, byte(pod >> 16), byte(pod >> 8), byte(pod)}
		if j == 0 && n > 0 {
			addr = [4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}
		}
		s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
			Addr: netip.AddrFrom4(addr), Conditions: endpoint.Ready | endpoint.Serving, Zone: "zone-1",
			TargetKind: "Pod", TargetName: fmt.Sprintf("%s-%d", serviceOf(i), j), TargetUID: fmt.Sprintf("8c1d6a0e-4a52-4f0e-9d3f-%012d", pod),
		})
	}
	st.Slices = []endpoint.Slice{s.Canonical()}
	return st
}

// assignmentOf gives the message that all servers send of a service, as slicecast makes it.
func assignmentOf(i, n int) (*endpointv3.ClusterLoadAssignment, error) {
	name, err := xdsserver.ParseName(nameOf(i))
	if err != nil {
		return nil, fmt.Errorf("name of service %d: %w", i, err)
	}
	a := xdsserver.Assign(xdsserver.Service{States: []endpoint.State{stateOf(i, n)}}, xdsserver.View{}, name)
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(a.Encode(), m); err != nil {
		return nil, fmt.Errorf("assignment of %s: %w", nameOf(i), err)
	}
	return m, nil
}
