package xdsserver

import (
	"fmt"
	"math"
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// grpcFault says why the strictest client, grpc-go, would reject an assignment or silently ignore a part of it; it is
// empty when it would not.
func grpcFault(cla *endpointv3.ClusterLoadAssignment) string {
	type place struct {
		region, zone, sub string
		priority          uint32
	}
	localities, addrs := map[place]bool{}, map[string]bool{}
	weights, priorities := map[uint32]uint64{}, map[uint32]bool{}
	if cla.ClusterName == "" {
		return "no name"
	}
	if cla.Policy != nil || len(cla.NamedEndpoints) > 0 {
		return "a policy lets a client drop endpoints by itself"
	}
	for _, l := range cla.Endpoints {
		if l.Locality == nil {
			return "a locality is missing"
		}
		if l.LoadBalancingWeight.GetValue() == 0 {
			return "a locality has no weight"
		}
		priorities[l.Priority] = true
		if weights[l.Priority] += uint64(l.LoadBalancingWeight.Value); weights[l.Priority] > math.MaxUint32 {
			return "weights overflow"
		}
		at := place{l.Locality.Region, l.Locality.Zone, l.Locality.SubZone, l.Priority}
		if localities[at] {
			return fmt.Sprintf("locality %v is there twice", at)
		}
		localities[at] = true
		if len(l.LbEndpoints) == 0 {
			return "a locality is empty"
		}
		for _, e := range l.LbEndpoints {
			all := []*corev3.Address{e.GetEndpoint().GetAddress()}
			for _, m := range e.GetEndpoint().GetAdditionalAddresses() {
				all = append(all, m.Address)
			}
			for _, a := range all {
				if _, err := netip.ParseAddr(a.GetSocketAddress().GetAddress()); err != nil {
					return err.Error()
				}
				if text := addrText(a); addrs[text] {
					return "address " + text + " is there twice"
				} else {
					addrs[text] = true
				}
			}
			if w := e.LoadBalancingWeight; w != nil && w.Value == 0 {
				return "an endpoint has weight 0"
			}
		}
	}
	for p := range len(priorities) {
		if !priorities[uint32(p)] {
			return fmt.Sprintf("priority %d is missing", p)
		}
	}
	return ""
}

// clusterFault says what in a cluster would delay, widen or revive what its assignments say; it is empty when nothing
// would.
func clusterFault(c *clusterv3.Cluster) string {
	common := c.GetCommonLbConfig()
	switch {
	case c.GetType() != clusterv3.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil:
		return "its assignments do not come over this stream"
	case c.GetEdsClusterConfig().GetServiceName() != "":
		return "another cluster may share its assignment"
	case common.GetHealthyPanicThreshold() == nil || common.GetHealthyPanicThreshold().GetValue() != 0:
		return "it panics"
	case common.GetUpdateMergeWindow() == nil || common.GetUpdateMergeWindow().AsDuration() != 0:
		return "changes of health are merged"
	case common.GetCloseConnectionsOnHostSetChange():
		return "a change closes all its connections"
	case !c.GetIgnoreHealthOnHostRemoval():
		return "a healthy host stays after its removal"
	default:
		return ""
	}
}

func structOf(texts map[string]string) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range texts {
		s.Fields[k] = structpb.NewStringValue(v)
	}
	return s
}
