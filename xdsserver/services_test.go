package xdsserver

import (
	"context"
	"errors"
	"testing"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestServicesOfOneTypeServeThatTypeAlone(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	eds, cds := endpointservice.NewEndpointDiscoveryServiceClient(b.conn), clusterservice.NewClusterDiscoveryServiceClient(b.conn)
	s1, err1 := eds.StreamEndpoints(ctx)
	s2, err2 := cds.StreamClusters(ctx)
	d1, err3 := eds.DeltaEndpoints(ctx)
	d2, err4 := cds.DeltaClusters(ctx)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	// The type may be left out; another one is refused.
	err1 = s1.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeCluster})
	err2 = s1.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{cart}})
	err3 = s2.Send(&discoveryv3.DiscoveryRequest{})
	err4 = d1.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{cart}})
	if err := errors.Join(err1, err2, err3, err4, d2.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCluster})); err != nil {
		t.Fatal(err)
	}
	r1, err1 := s1.Recv()
	r2, err2 := s2.Recv()
	r3, err3 := d1.Recv()
	r4, err4 := d2.Recv()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if r1.TypeUrl != typeAssignment || r3.TypeUrl != typeAssignment || r2.TypeUrl != typeCluster || r4.TypeUrl != typeCluster {
		t.Errorf("types %s, %s, %s, %s", r1.TypeUrl, r2.TypeUrl, r3.TypeUrl, r4.TypeUrl)
	}
	if len(r1.Resources) != 1 || len(r2.Resources) != 1 || len(r3.Resources) != 1 || len(r4.Resources) != 1 {
		t.Errorf("%d, %d, %d, %d resources, want one each", len(r1.Resources), len(r2.Resources), len(r3.Resources), len(r4.Resources))
	}
}

func TestHealthIsTakenBackBeforeStreamsEnd(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	watch, err := healthv1.NewHealthClient(b.conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("health %v, %v", r, err)
	}
	ads, err := healthv1.NewHealthClient(b.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService"})
	if err != nil || ads.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("health of ADS %v, %v", ads, err)
	}
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	b.stop()
	if r, err := watch.Recv(); err != nil || r.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while stopping %v, %v", r, err)
	}
	if err := c.end(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	cancel()
	if err := <-b.done; err != nil {
		t.Error(err)
	}
	b.done <- nil
	if ok, _ := b.server.Ready(); ok {
		t.Error("it is ready after its end")
	}
}
