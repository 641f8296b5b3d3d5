package xdsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// What the transport is set to. A request grows with the names of a client: 10,000 names with versions are 1 MiB.
const (
	maxRequest     = 32 << 20
	maxStreams     = 10_000 // of a connection: without ADS a client opens one per cluster
	receiveWindow  = 1 << 20
	writeBuffer    = 64 << 10
	pingAfter      = 30 * time.Second
	pingTimeout    = 10 * time.Second
	clientPingsMin = 10 * time.Second
)

// serveWhenReady waits until the replica may serve, listens, and serves until ctx ends.
func (s *Server) serveWhenReady(ctx context.Context) error {
	if !s.awaitReady(ctx) {
		return nil
	}
	withdraw := s.crowd.register(ctx)
	defer withdraw()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("xDS server: %w", err)
	}
	healthy := s.crowd.healthy
	server := s.grpcServer(healthy)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	addr := listener.Addr()
	s.addr.Store(&addr)
	s.why.Store(nil)
	close(s.listening)
	guarded, unguard := context.WithCancel(ctx)
	var guard sync.WaitGroup
	defer guard.Wait()
	defer unguard()
	guard.Go(func() { s.crowd.guard(guarded) })
	s.log.Info("serving xDS", "address", addr.String())
	select {
	case err = <-failed:
		err = fmt.Errorf("serve xDS on %s: %w", addr, err)
	case <-ctx.Done():
	}
	s.notReady("it is stopping")
	healthy.Shutdown()
	close(s.stopping)
	stop(server, s.cfg.StopTimeout)
	s.workers.Wait()
	if err != nil {
		return err
	}
	if err = <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve xDS on %s: %w", addr, err)
	}
	return nil
}

// stop lets streams end by themselves for a while, then cuts them.
func stop(server *grpc.Server, after time.Duration) {
	cut := time.AfterFunc(after, server.Stop)
	server.GracefulStop()
	cut.Stop()
}

func (s *Server) grpcServer(healthy *health.Server) *grpc.Server {
	transport := insecure.NewCredentials()
	if s.tls != nil {
		transport = credentials.NewTLS(s.tls.serverConfig())
	}
	server := grpc.NewServer(
		grpc.Creds(transport),
		grpc.ForceServerCodecV2(s.codec),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(receiveWindow),
		grpc.InitialConnWindowSize(receiveWindow),
		grpc.WriteBufferSize(writeBuffer),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: s.cfg.MaxStreamAge, MaxConnectionAgeGrace: s.cfg.DrainSpread,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPingsMin, PermitWithoutStream: true}),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, adsService{s: s})
	endpointservice.RegisterEndpointDiscoveryServiceServer(server, edsService{s: s})
	clusterservice.RegisterClusterDiscoveryServiceServer(server, cdsService{s: s})
	listenerservice.RegisterListenerDiscoveryServiceServer(server, ldsService{s: s})
	routeservice.RegisterRouteDiscoveryServiceServer(server, rdsService{s: s})
	statusv3.RegisterClientStatusDiscoveryServiceServer(server, csdsService{s: s})
	healthv1.RegisterHealthServer(server, healthy)
	reflection.Register(server)
	for name := range server.GetServiceInfo() {
		healthy.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	return server
}

type (
	sotwStream  = grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	deltaStream = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
)

// adsService and the services of one type: all do the same for the types they offer.
type adsService struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	s *Server
}

type edsService struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
	s *Server
}

type cdsService struct {
	clusterservice.UnimplementedClusterDiscoveryServiceServer
	s *Server
}

type ldsService struct {
	listenerservice.UnimplementedListenerDiscoveryServiceServer
	s *Server
}

type rdsService struct {
	routeservice.UnimplementedRouteDiscoveryServiceServer
	s *Server
}

func (l ldsService) StreamListeners(g sotwStream) error           { return l.s.sotw(g, "lds") }
func (l ldsService) DeltaListeners(g deltaStream) error           { return l.s.delta(g, "lds") }
func (r rdsService) StreamRoutes(g sotwStream) error              { return r.s.sotw(g, "rds") }
func (r rdsService) DeltaRoutes(g deltaStream) error              { return r.s.delta(g, "rds") }
func (a adsService) StreamAggregatedResources(g sotwStream) error { return a.s.sotw(g, "ads") }
func (a adsService) DeltaAggregatedResources(g deltaStream) error { return a.s.delta(g, "ads") }
func (e edsService) StreamEndpoints(g sotwStream) error           { return e.s.sotw(g, "eds") }
func (e edsService) DeltaEndpoints(g deltaStream) error           { return e.s.delta(g, "eds") }
func (c cdsService) StreamClusters(g sotwStream) error            { return c.s.sotw(g, "cds") }
func (c cdsService) DeltaClusters(g deltaStream) error            { return c.s.delta(g, "cds") }

// sotw serves a state-of-the-world stream.
func (s *Server) sotw(g sotwStream, service string) error {
	last := map[string]digest{}
	return s.serve(g, streamOptions{service: service}, func() (message, error) {
		in := sotwMessage{last: last}
		if err := g.RecvMsg(&in); err != nil {
			return message{}, err
		}
		m := &in.request
		return message{
			typeURL: m.GetTypeUrl(), noted: in.note,
			request: request{
				node: m.GetNode(), nonce: m.GetResponseNonce(), nack: m.GetErrorDetail() != nil, detail: m.GetErrorDetail().GetMessage(),
				version: m.GetVersionInfo(), names: m.GetResourceNames(), digest: in.names,
			},
		}, nil
	})
}

// delta serves an incremental stream.
func (s *Server) delta(g deltaStream, service string) error {
	return s.serve(g, streamOptions{service: service, delta: true}, func() (message, error) {
		m, err := g.Recv()
		if err != nil {
			return message{}, err
		}
		return message{
			typeURL: m.GetTypeUrl(),
			request: request{
				node: m.GetNode(), nonce: m.GetResponseNonce(), nack: m.GetErrorDetail() != nil, detail: m.GetErrorDetail().GetMessage(),
				subscribe: m.GetResourceNamesSubscribe(), unsubscribe: m.GetResourceNamesUnsubscribe(),
				initial: m.GetInitialResourceVersions(),
			},
		}, nil
	})
}

// message is a received request before its type is known.
type message struct {
	request
	typeURL string
	noted   func(kind) // SotW: is told the kind, if it is served
}
