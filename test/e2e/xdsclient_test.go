package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slicecast/slicecast/test/sandbox"
)

const endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// xdsClient holds the assignments that one ADS stream was given, and acknowledges each response.
type xdsClient struct {
	mu   sync.Mutex
	held map[string][]string // by name: addresses with their priority, sorted
	lost map[string]bool     // names whose endpoints were all taken away, once there were some
}

func newXDSClient(t *testing.T, kind string, names ...string) *xdsClient {
	t.Helper()
	conn, err := grpc.NewClient(sandbox.XDSAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &xdsClient{held: map[string][]string{}, lost: map[string]bool{}}
	run := c.delta
	if kind == "sotw" {
		run = c.sotw
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn), names); err != nil && ctx.Err() == nil {
			t.Logf("%s client: %v", kind, err) // what it holds by then is what counts
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close()
	})
	return c
}

func (c *xdsClient) delta(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient, names []string) error {
	stream, err := ads.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "delta"}, TypeUrl: endpointType, ResourceNamesSubscribe: names}
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range response.GetResources() {
			if err := c.take(r.GetResource()); err != nil {
				return err
			}
		}
		request = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: response.GetNonce()}
	}
}

func (c *xdsClient) sotw(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient, names []string) error {
	stream, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "sotw"}, TypeUrl: endpointType, ResourceNames: names}
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range response.GetResources() {
			if err := c.take(r); err != nil {
				return err
			}
		}
		request = &discoveryv3.DiscoveryRequest{
			TypeUrl: endpointType, ResourceNames: names, ResponseNonce: response.GetNonce(), VersionInfo: response.GetVersionInfo(),
		}
	}
}

func (c *xdsClient) take(resource *anypb.Any) error {
	cla := new(endpointv3.ClusterLoadAssignment)
	if err := resource.UnmarshalTo(cla); err != nil {
		return err
	}
	all := []string{}
	for _, locality := range cla.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			all = append(all, fmt.Sprintf("p%d %s:%d", locality.GetPriority(), a.GetAddress(), a.GetPortValue()))
		}
	}
	slices.Sort(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cla.GetClusterName()
	if len(all) == 0 && len(c.held[name]) > 0 {
		c.lost[name] = true
	}
	c.held[name] = all
	return nil
}

// want waits until the client holds exactly these addresses for name.
func (c *xdsClient) want(t *testing.T, name string, want ...string) {
	t.Helper()
	c.wantWithin(t, 10*time.Second, name, want...)
}

// wantNeverEmpty checks that the service never lost all its endpoints on the way.
func (c *xdsClient) wantNeverEmpty(t *testing.T, name string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost[name] {
		t.Errorf("%s was empty for a moment", name)
	}
}

func (c *xdsClient) wantWithin(t *testing.T, patience time.Duration, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		held, known := c.held[name]
		got = held
		c.mu.Unlock()
		if known && slices.Equal(got, want) {
			return
		}
	}
	t.Errorf("%s: the client holds %q, want %q", name, got, want)
}

// address is an endpoint of the manifests of these tests.
func address(last byte) string { return netip.AddrFrom4([4]byte{10, 244, 9, last}).String() }
