package xdsserver

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/xds"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// backend is a gRPC server on an address of its own. The port is the same for all.
func backend(t *testing.T, at netip.AddrPort) netip.AddrPort {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at.String())
	must(t, err)
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return netip.MustParseAddrPort(listener.Addr().String())
}

// xdsResolver is that of a gRPC client which asks the server of b.
func (b *bench) xdsResolver() resolver.Builder {
	b.t.Helper()
	config, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": b.server.Addr().String(), "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "grpc-1", "locality": map[string]any{"zone": "z1"}},
	})
	must(b.t, err)
	builder, err := xds.NewXDSResolverWithConfigForTesting(config)
	must(b.t, err)
	return builder
}

// pods gives the State of cart with ready pods at addresses that all have the same port.
func pods(rv uint64, at ...netip.AddrPort) endpoint.State {
	sl := sliceOf("prod", "cart-x1", rv)
	sl.Ports = []endpoint.Port{{Name: "http", Number: at[0].Port()}}
	for _, a := range at {
		sl.Endpoints = append(sl.Endpoints, ep(a.Addr().String()+" rs-@z1"))
	}
	return stateOf(sl.Canonical())
}

func TestAGRPCClientWithoutProxyFollowsThePods(t *testing.T) {
	one := backend(t, netip.MustParseAddrPort("127.0.0.1:0"))
	two := backend(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), one.Port()))
	b := serving(t, pods(7, one))
	conn, err := grpc.NewClient("xds:///"+cart, grpc.WithResolvers(b.xdsResolver()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	ask := func() netip.AddrPort {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var from peer.Peer
		if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&from), grpc.WaitForReady(true)); err != nil {
			t.Fatalf("the call failed: %v", err)
		}
		return netip.MustParseAddrPort(from.Addr.String())
	}
	if got := ask(); got != one {
		t.Errorf("got an answer of %s, want %s", got, one)
	}
	b.put(pods(8, two))
	deadline := time.Now().Add(20 * time.Second)
	for ask() != two {
		if time.Now().After(deadline) {
			t.Fatal("the client stays with a pod that is gone")
		}
	}
}
