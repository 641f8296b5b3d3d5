package cases

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// target is the service that the gRPC client looks up, and the name of all its resources.
const target = "case"

// grpcClient is a real proxyless gRPC client and the server that it listens to, which gives it one assignment after the
// other and hears what it says of each.
type grpcClient struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	ctx     context.Context // of the test
	give    chan *anypb.Any
	verdict chan error
}

func newGRPCClient(t *testing.T) *grpcClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	g := &grpcClient{ctx: ctx, give: make(chan *anypb.Any), verdict: make(chan error)}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, g)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	resolver, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil,
		`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}],"node":{"id":"grpc"}}`, lis.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	conn.Connect()
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g
}

// judge gives the client an assignment, under the name that it looks up, and returns why it rejects it.
func (g *grpcClient) judge(cla *endpointv3.ClusterLoadAssignment) error {
	cla = proto.CloneOf(cla)
	cla.ClusterName = target
	a, err := anypb.New(cla)
	if err != nil {
		return err
	}
	select {
	case g.give <- a:
	case <-g.ctx.Done():
		return errors.New("the client does not ask")
	}
	select {
	case err := <-g.verdict:
		return err
	case <-g.ctx.Done():
		return errors.New("the client does not answer")
	}
}

// StreamAggregatedResources serves the client.
func (g *grpcClient) StreamAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	nonce, waiting := 0, "" // waiting is the nonce of the assignment that is not answered
	var give chan *anypb.Any
	for {
		var send *anypb.Any
		select {
		case r, open := <-requests:
			if !open {
				return nil
			}
			if r.TypeUrl != typeURL {
				if r.ResponseNonce == "" {
					send = fixed(r.TypeUrl)
				}
				break
			}
			give = g.give // It asks for the assignment.
			if waiting == "" || r.ResponseNonce != waiting {
				break
			}
			waiting = ""
			var verdict error
			if r.ErrorDetail != nil {
				verdict = errors.New(r.ErrorDetail.Message)
			}
			select {
			case g.verdict <- verdict:
			case <-stream.Context().Done():
			}
		case send = <-give:
			waiting = fmt.Sprint(nonce + 1)
		}
		if send == nil {
			continue
		}
		nonce++
		text := fmt.Sprint(nonce)
		response := &discoveryv3.DiscoveryResponse{TypeUrl: send.TypeUrl, VersionInfo: text, Nonce: text, Resources: []*anypb.Any{send}}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// fixed gives the resources that lead the client to its assignment.
func fixed(url string) *anypb.Any {
	var m proto.Message
	switch url {
	case "type.googleapis.com/envoy.config.listener.v3.Listener":
		m = &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{ApiListener: must(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
				Name: target, VirtualHosts: []*routev3.VirtualHost{{Name: target, Domains: []string{"*"}, Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: target}}},
				}}}},
			}},
			HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: must(&routerv3.Router{})}}},
		})}}
	case "type.googleapis.com/envoy.config.cluster.v3.Cluster":
		m = &clusterv3.Cluster{
			Name: target, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		}
	default:
		return nil
	}
	return must(m)
}

func must(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // It is made of constants.
	}
	return a
}
