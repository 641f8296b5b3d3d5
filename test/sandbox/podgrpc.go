package sandbox

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// podHandlers serves gRPC calls beside other requests on the same port.
func podHandlers(name string, delay time.Duration) http.Handler {
	plain, calls := podHandler(name, delay), grpc.NewServer()
	healthv1.RegisterHealthServer(calls, &podHealth{name: name, delay: delay})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			calls.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}

// podHealth is the gRPC service of every pod: the public health service, slowed down as the HTTP one is.
type podHealth struct {
	healthv1.UnimplementedHealthServer
	name  string
	delay time.Duration
}

// Check answers after a random time, with the pod's name in the header.
func (h *podHealth) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs(PodHeader, h.name)); err != nil {
		return nil, err
	}
	if h.delay > 0 {
		timer := time.NewTimer(rand.N(h.delay))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

// Watch sends a message every 100 ms until the client leaves: a streaming call.
func (h *podHealth) Watch(_ *healthv1.HealthCheckRequest, stream grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := stream.Send(&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
