package rig

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slicecast/slicecast/internal/endpoint"
)

const endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// Client is the ADS stream of one proxy: it holds what it was given last of each name, over streams.
type Client struct {
	check func(key endpoint.Key, holds shown)
	moved func()
	names []string

	// mu guards held.
	mu   sync.Mutex
	held map[endpoint.Key]shown
}

func newClient(keys []endpoint.Key, check func(endpoint.Key, shown), moved func()) *Client {
	c := &Client{check: check, moved: moved, held: map[endpoint.Key]shown{}}
	for _, key := range keys {
		c.names = append(c.names, nameOf(key))
	}
	return c
}

// nameOf is the name of a service in one cluster only.
func nameOf(key endpoint.Key) string {
	return fmt.Sprintf("%s.%s.%s:http", key.Service, key.Namespace, key.Cluster)
}

func keyOf(name string) endpoint.Key {
	p := strings.Split(strings.TrimSuffix(name, ":http"), ".")
	return endpoint.Key{Cluster: p[2], Namespace: p[1], Service: p[0]}
}

// follow holds one stream until it or ctx ends.
func (c *Client) follow(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to xDS: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return fmt.Errorf("open ADS: %w", err)
	}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "rig"}, TypeUrl: endpointType, ResourceNamesSubscribe: c.names}
	for {
		if err := stream.Send(request); err != nil {
			return fmt.Errorf("send on ADS: %w", err)
		}
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("read ADS: %w", err)
		}
		for _, r := range response.GetResources() {
			if err := c.take(r.GetResource()); err != nil {
				return err
			}
		}
		c.moved()
		request = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: response.GetNonce()}
	}
}

func (c *Client) take(resource *anypb.Any) error {
	cla := new(endpointv3.ClusterLoadAssignment)
	if err := resource.UnmarshalTo(cla); err != nil {
		return fmt.Errorf("read an assignment: %w", err)
	}
	var s shown
	for _, locality := range cla.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			a, err := netip.ParseAddr(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			if err != nil {
				return fmt.Errorf("read an assignment: %w", err)
			}
			if e.GetHealthStatus() == corev3.HealthStatus_DRAINING {
				s.draining = append(s.draining, a)
			} else {
				s.healthy = append(s.healthy, a)
			}
		}
	}
	slices.SortFunc(s.healthy, netip.Addr.Compare)
	slices.SortFunc(s.draining, netip.Addr.Compare)
	key := keyOf(cla.GetClusterName())
	c.check(key, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[key] = s
	return nil
}

// differs says what the client holds otherwise than it should, "" when nothing.
func (c *Client) differs(a *API) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range a.services() {
		got, ok := c.held[key]
		if want := assignment(a.Live(key)); !ok || !got.equal(want) {
			return fmt.Sprintf("%s: holds %v, want %v", key, got, want)
		}
	}
	return ""
}
