package xdsserver

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func TestMain(m *testing.M) { bustest.Main(m) }

// bench is a server on a fake bus, and clients of it.
type bench struct {
	t      *testing.T
	bus    *fakeBus
	server *Server
	conn   *grpc.ClientConn
	stop   context.CancelFunc
	done   chan error
	rv     uint64
}

// newBench makes a server that has not been started.
func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, bus: newFakeBus(t), rv: 7}
	cfg := Config{
		States: b.bus, Records: b.bus, Listen: "127.0.0.1:0", StartTimeout: time.Hour,
	}
	for _, c := range change {
		c(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.server = server
	return b
}

// start runs the server; it ends with the test.
func (b *bench) start() *bench {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, make(chan error, 1)
	go func() { b.done <- b.server.Run(ctx) }()
	b.t.Cleanup(func() {
		if b.conn != nil {
			_ = b.conn.Close()
		}
		cancel()
		if err := <-b.done; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	return b
}

// serving starts the server with the given States of cluster prod, certified, and waits until it listens.
func serving(t *testing.T, states ...endpoint.State) *bench {
	t.Helper()
	return newBench(t).with(states...)
}

func (b *bench) with(states ...endpoint.State) *bench {
	b.t.Helper()
	seen := map[string]bool{"prod": true}
	for _, st := range states {
		b.bus.store(stateNotice(st), false)
		seen[st.Key.Cluster] = true
	}
	for cluster := range seen {
		b.bus.store(b.bus.checkpointOf(cluster, b.rv), false)
	}
	b.start()
	b.dial()
	return b
}

func (b *bench) dial() {
	b.t.Helper()
	select {
	case <-b.server.Listening():
	case <-time.After(10 * time.Second):
		_, why := b.server.Ready()
		b.t.Fatalf("does not listen: %s", why)
	}
	conn, err := grpc.NewClient(b.server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.conn = conn
}

// put publishes a State and waits until the server has it.
func (b *bench) put(st endpoint.State) { b.bus.store(stateNotice(st), true) }

// putRecord changes a cluster's record and waits until the server has it.
func (b *bench) putRecord(cluster string, r ledger.Record) {
	b.t.Helper()
	b.bus.deliver(b.bus.recLive, ledger.Notice{Kind: ledger.Recorded, Cluster: cluster, Record: r})
}

// counter reads a counter or a gauge.
func counter(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	out := &dto.Metric{}
	if err := m.Write(out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// samples counts the observations of a histogram.
func samples(t *testing.T, h prometheus.Histogram) uint64 {
	t.Helper()
	out := &dto.Metric{}
	if err := h.Write(out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram().GetSampleCount()
}
