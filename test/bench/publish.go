package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/test/bus/rig"
)

// perSlice is how many endpoints a slice has here.
const perSlice = 10

// service names the i-th service.
func service(i int) endpoint.Key {
	return endpoint.Key{Cluster: "east", Namespace: fmt.Sprintf("ns-%d", i%100), Service: fmt.Sprintf("service-%d", i)}
}

// sliceOf gives a slice of a service, as a cluster of usual size has them.
func sliceOf(key endpoint.Key, n int, version uint64) endpoint.Slice {
	s := endpoint.Slice{
		Key: key, Name: fmt.Sprintf("%s-%05d", key.Service, n), UID: fmt.Sprintf("5d1b6a0e-4a52-4f0e-9d3f-%012d", n),
		Version: endpoint.Version{Generation: 1, Resource: version}, Translator: 1, Observed: time.Now(),
		Ports: []endpoint.Port{{Name: "http", Number: 8080}, {Name: "metrics", Number: 9090}},
	}
	for i := range perSlice {
		pod := n*perSlice + i
		s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
			Addr:       netip.AddrFrom4([4]byte{10, byte(pod >> 16), byte(pod >> 8), byte(pod)}),
			Conditions: endpoint.Ready | endpoint.Serving, Zone: fmt.Sprint("zone-", pod%3), Node: fmt.Sprint("node-", pod%500),
			TargetKind: "Pod", TargetName: fmt.Sprintf("%s-%d", key.Service, pod), TargetUID: fmt.Sprintf("8c1d6a0e-4a52-4f0e-9d3f-%012d", pod),
		})
	}
	return s.Canonical()
}

func connect(ctx context.Context, cfg bus.Config) (*bus.Bus, error) {
	cfg.Name, cfg.Log, cfg.Metrics = "bench", slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	b, err := bus.Connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return b, nil
}

// publish measures one write after the other, embedded as the product has it and on three servers that sync always.
func publish(ctx context.Context, o options, dir string) ([]row, error) {
	embedded, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: filepath.Join(dir, "embedded"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("start embedded server: %w", err)
	}
	first, err := latency(ctx, o, "publish, embedded, every write synced", bus.Config{Server: embedded})
	embedded.Shutdown()
	if err != nil {
		return nil, err
	}
	c, err := rig.NewCluster(filepath.Join(dir, "cluster"), func(o *server.Options) { o.SyncAlways = true })
	if err != nil {
		return nil, err
	}
	defer c.Close()
	second, err := latency(ctx, o, "publish, three replicas on one machine, every write synced", bus.Config{URLs: c.URLs()})
	return append(first, second...), err
}

func latency(ctx context.Context, o options, what string, cfg bus.Config) ([]row, error) {
	b, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	const subjects = 100
	var p50, p99 []time.Duration
	last := make([]uint64, subjects)
	version := uint64(0)
	for range o.runs {
		var took []time.Duration
		for i := range o.publish {
			version++
			ev := endpoint.Event{Slice: sliceOf(service(i%subjects), 0, version)}
			started := time.Now()
			res, err := b.Events().Put(ctx, ev, last[i%subjects])
			if err != nil || !res.Saved {
				return nil, fmt.Errorf("publish: saved %v: %w", res.Saved, err)
			}
			took = append(took, time.Since(started))
			last[i%subjects] = res.Seq
		}
		slices.Sort(took)
		p50, p99 = append(p50, took[len(took)/2]), append(p99, took[len(took)*99/100])
	}
	return []row{{what + ": p50", several(p50)}, {what + ": p99", several(p99)}}, nil
}
