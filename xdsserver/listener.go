// Pure: values in, values out.

package xdsserver

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// listenerForm and routeForm are the versions of what listenerOf and routeOf write. They are part of every resource
// version: a change of a form takes a new number.
const (
	listenerForm = "1"
	routeForm    = "1"
)

const routerFilter = "envoy.filters.http.router"

// encodeListener makes the Listener resource of a service port. It depends on the name alone.
func encodeListener(name string) (*resource, error) {
	l, err := listenerOf(name)
	if err != nil {
		return nil, err
	}
	return encodeFixed(name, typeListener, listenerForm, l)
}

// encodeRoute makes the RouteConfiguration resource of a service port. It depends on the name alone.
func encodeRoute(name string) (*resource, error) {
	return encodeFixed(name, typeRoute, routeForm, routeOf(name))
}

func encodeFixed(name, typeURL, form string, m proto.Message) (*resource, error) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", typeURL, name, err)
	}
	body := appendBytes(appendText(nil, 1, typeURL), 2, value)
	return newResource(name, contentVersion([]byte(form+" "+name)), body), nil
}

// listenerOf gives what a gRPC client without proxy asks for when it dials xds:///<name>: an API listener, whose routes
// are the resource of the same name.
func listenerOf(name string) (*listenerv3.Listener, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, fmt.Errorf("encode the router of listener %s: %w", name, err)
	}
	manager, err := anypb.New(&managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{
			ConfigSource: &corev3.ConfigSource{
				ResourceApiVersion:    corev3.ApiVersion_V3,
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			},
			RouteConfigName: name,
		}},
		HttpFilters: []*managerv3.HttpFilter{{
			Name: routerFilter, ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the manager of listener %s: %w", name, err)
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}, nil
}

// routeOf gives the routes of a service port: everything to the cluster of the same name. Requests that reached no pod,
// or that a pod refused without looking at them, are tried again elsewhere; a long answer is not cut off.
func routeOf(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name: name, Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name},
					Timeout:          durationpb.New(0),
					RetryPolicy:      &routev3.RetryPolicy{RetryOn: "connect-failure,refused-stream", NumRetries: wrapperspb.UInt32(2)},
				}},
			}},
		}},
	}
}
