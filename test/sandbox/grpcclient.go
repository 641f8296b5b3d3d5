package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

// GRPCClientConfig is a gRPC client without a proxy.
type GRPCClientConfig struct {
	// NodeID names the client to slicecast. Default: "grpc".
	NodeID string
	// KubernetesCluster is the cluster that the client belongs to. Default: "demo".
	KubernetesCluster string
	// Service is what it dials below xds:///. Default: "web.shop:http".
	Service string
	// XDS are the replicas of the xDS server, as one name that resolves to all of them. Default: XDSAddress.
	XDS []netip.AddrPort
}

// A GRPCClient is grpc-go's own xDS client: it asks slicecast for listener, routes, cluster and endpoints, and calls the pods.
type GRPCClient struct{ conn *grpc.ClientConn }

// NewGRPCClient connects at its first call. Close it.
func NewGRPCClient(cfg GRPCClientConfig) (*GRPCClient, error) {
	orText(&cfg.NodeID, "grpc")
	orText(&cfg.KubernetesCluster, "demo")
	orText(&cfg.Service, Workload{}.EnvoyService())
	if len(cfg.XDS) == 0 {
		cfg.XDS = []netip.AddrPort{netip.MustParseAddrPort(XDSAddress)}
	}
	registerReplicas()
	bootstrap, err := json.Marshal(object{
		"xds_servers": []any{object{
			"server_uri": replicasURI(cfg.XDS), "channel_creds": []any{object{"type": "insecure"}}, "server_features": []any{"xds_v3"},
		}},
		"node": object{
			"id": cfg.NodeID, "locality": object{"zone": zoneName}, "metadata": object{"slicecast.io/cluster": cfg.KubernetesCluster},
		},
	})
	if err != nil {
		return nil, err
	}
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap) // The only way to give one program several bootstraps.
	if err != nil {
		return nil, fmt.Errorf("bootstrap of %s: %w", cfg.NodeID, err)
	}
	conn, err := grpc.NewClient("xds:///"+cfg.Service, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		return nil, fmt.Errorf("make gRPC client %s: %w", cfg.NodeID, err)
	}
	return &GRPCClient{conn: conn}, nil
}

// replicasScheme stands for a DNS name with several addresses, such as that of a headless Service. Several xds_servers are
// something else: gRPC leaves the first one only for resources that it does not hold yet (gRFC A71).
const replicasScheme = "sandbox-replicas"

func replicasURI(all []netip.AddrPort) string {
	var texts []string
	for _, address := range all {
		texts = append(texts, address.String())
	}
	return replicasScheme + ":///" + strings.Join(texts, ",")
}

// registerReplicas makes the scheme known: the xDS client of grpc-go takes no resolver of its own.
var registerReplicas = sync.OnceFunc(func() { resolver.Register(replicasResolver{}) })

type replicasResolver struct{}

func (replicasResolver) Scheme() string { return replicasScheme }

func (r replicasResolver) Build(t resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for text := range strings.SplitSeq(t.Endpoint(), ",") {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: text}}})
	}
	return r, cc.UpdateState(state)
}

func (replicasResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (replicasResolver) Close()                                {}

// Ready waits until a call succeeds.
func (c *GRPCClient) Ready(ctx context.Context) error {
	_, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	return err
}

// Close ends the client.
func (c *GRPCClient) Close() error { return c.conn.Close() }

// exchange is one call. It fails when the client knows no pod: it does not wait for one.
func (c *GRPCClient) exchange(ctx context.Context) outcome {
	var header metadata.MD
	_, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&header))
	pod := strings.Join(header.Get(PodHeader), " ")
	switch code := status.Code(err); code {
	case codes.OK:
		return outcome{kind: OK, pod: pod}
	case codes.DeadlineExceeded:
		return outcome{kind: TimedOut, pod: pod}
	default:
		return outcome{kind: fmt.Sprintf("gRPC %s: %.80s", code, status.Convert(err).Message()), pod: pod}
	}
}

// NewGRPCDriver prepares a Driver that calls through c; it can Run once. Target and HTTP2 of cfg are not used.
func NewGRPCDriver(c *GRPCClient, cfg DriverConfig) (*Driver, error) {
	return newDriver(cfg, c.exchange, func() {})
}
