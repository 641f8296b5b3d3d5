package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	peer "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

const maxRequest = 16 << 20 // bytes, as ours has it

// listen serves a cache of go-control-plane with its own server.
func listen(ctx context.Context, c cache.Cache, change func(i, n int) error) (*backend, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(100_000))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, peer.NewServer(ctx, c, nil))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return &backend{addr: l.Addr().String(), change: change, stop: func() error {
		s.Stop()
		return <-ended
	}}, nil
}

func allAssignments(services int) (map[string]types.Resource, error) {
	all := map[string]types.Resource{}
	for i := range services {
		m, err := assignmentOf(i, 0)
		if err != nil {
			return nil, err
		}
		all[nameOf(i)] = m
	}
	return all, nil
}

func serveLinear(ctx context.Context, services int) (*backend, error) {
	all, err := allAssignments(services)
	if err != nil {
		return nil, err
	}
	c := cache.NewLinearCache(resource.EndpointType, cache.WithInitialResources(all))
	return listen(ctx, c, func(i, n int) error {
		m, err := assignmentOf(i, n)
		if err != nil {
			return err
		}
		return c.UpdateResource(nameOf(i), m)
	})
}

// one gives all nodes the same snapshot, as all of them see the same services.
type one struct{}

// ID is that of the snapshot.
func (one) ID(*corev3.Node) string { return "all" }

func serveSnapshot(ctx context.Context, services int) (*backend, error) {
	all, err := allAssignments(services)
	if err != nil {
		return nil, err
	}
	c := cache.NewSnapshotCache(false, one{}, nil)
	var mu sync.Mutex
	version := 0
	set := func() error {
		version++
		list := make([]types.Resource, 0, len(all))
		for _, r := range all {
			list = append(list, r)
		}
		s, err := cache.NewSnapshot(fmt.Sprint(version), map[resource.Type][]types.Resource{resource.EndpointType: list})
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		return c.SetSnapshot(ctx, "all", s)
	}
	if err := set(); err != nil {
		return nil, err
	}
	return listen(ctx, c, func(i, n int) error {
		m, err := assignmentOf(i, n)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all[nameOf(i)] = m
		return set()
	})
}
