// Pure: values in, values out.

package xdsserver

import (
	"fmt"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// clusterForm is the version of what clusterOf writes. It is part of every resource version: a change of the form
// takes a new number.
const clusterForm = "2"

// connectTimeout is that of the clusters we emit.
const connectTimeout = time.Second

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// clusterSpec is all that a Cluster resource depends on.
type clusterSpec struct {
	name  string
	http2 bool // the port speaks HTTP/2 to the pod
}

// encodeCluster makes the Cluster resource of a service port. Its version is made of the spec, not of bytes that a
// library wrote.
func encodeCluster(spec clusterSpec) (*resource, error) {
	c, err := clusterOf(spec)
	if err != nil {
		return nil, err
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode cluster %s: %w", spec.name, err)
	}
	version := contentVersion(fmt.Appendf(nil, "%s %s %t", clusterForm, spec.name, spec.http2))
	body := appendBytes(appendText(nil, 1, typeCluster), 2, value)
	return newResource(spec.name, version, body), nil
}

// clusterOf gives the Cluster: endpoints from this server, changes of health without delay, removed endpoints drained
// at once whatever their health checks say, and nothing new for an endpoint that is DRAINING, even if all are: who has
// no endpoint that may be chosen is told so, as every gRPC client is.
func clusterOf(spec clusterSpec) (*clusterv3.Cluster, error) {
	c := &clusterv3.Cluster{
		Name:                 spec.name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		ConnectTimeout:            durationpb.New(connectTimeout),
		IgnoreHealthOnHostRemoval: true,
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			UpdateMergeWindow:     durationpb.New(0),
			HealthyPanicThreshold: &typev3.Percent{Value: 0},
		},
	}
	if !spec.http2 {
		return c, nil
	}
	options, err := anypb.New(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
				},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the HTTP/2 options of cluster %s: %w", spec.name, err)
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: options}
	return c, nil
}

// mergedPorts lists the ports of a service in all clusters, by name, with what each speaks: the smallest cluster name
// that has the port decides, and in it the slice with the highest version.
func mergedPorts(states []endpoint.State, former Former) map[string]bool {
	ports := map[string]bool{}
	for _, st := range slices.SortedFunc(slices.Values(states), byCluster) {
		for _, p := range former[st.Key] {
			if _, decided := ports[p.Name]; !decided {
				ports[p.Name] = isHTTP2(p.AppProtocol)
			}
		}
		mine := map[string]*endpoint.Slice{}
		for i := range st.Slices {
			sl := &st.Slices[i]
			for _, p := range sl.Ports {
				_, decided := ports[p.Name]
				if from := mine[p.Name]; from == nil && decided || from != nil && !newer(sl, from) {
					continue
				}
				mine[p.Name] = sl
				ports[p.Name] = isHTTP2(p.AppProtocol)
			}
		}
	}
	return ports
}

// specOf gives the cluster that a name means, and whether the service has such a port. By number it speaks HTTP/2 if
// any port of that number does.
func specOf(svc Service, name Name) (clusterSpec, bool) {
	spec, states := clusterSpec{name: name.String()}, svc.States
	if name.Cluster != "" {
		states = slices.DeleteFunc(slices.Clone(states), func(st endpoint.State) bool { return st.Key.Cluster != name.Cluster })
	}
	if http2, named := mergedPorts(states, svc.Former)[name.Port]; named {
		spec.http2 = http2
		return spec, true
	}
	number := name.number()
	if number == 0 {
		return spec, false
	}
	found := false
	see := func(ports []endpoint.Port) {
		for _, p := range ports {
			if p.Number == number {
				found = true
				spec.http2 = spec.http2 || isHTTP2(p.AppProtocol)
			}
		}
	}
	for _, st := range states {
		see(svc.Former[st.Key])
		for i := range st.Slices {
			see(st.Slices[i].Ports)
		}
	}
	return spec, found
}

func isHTTP2(appProtocol string) bool {
	switch appProtocol {
	case "kubernetes.io/h2c", "h2c", "grpc", "kubernetes.io/grpc":
		return true
	default:
		return false
	}
}
