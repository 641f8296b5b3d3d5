package bus_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
)

var quiet = slog.New(slog.DiscardHandler)

// extServer is a nats-server with a listener on loopback, as an external one, whose port stays over restarts.
type extServer struct {
	options server.Options
	srv     *server.Server
	url     string
}

func startServer(t *testing.T, change ...func(*server.Options)) *extServer {
	t.Helper()
	s := &extServer{options: server.Options{
		ServerName: "external", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 64 << 20,
	}}
	for _, c := range change {
		c(&s.options)
	}
	s.start(t)
	s.options.Port = s.srv.Addr().(*net.TCPAddr).Port
	t.Cleanup(s.stop)
	return s
}

func (s *extServer) start(t *testing.T) {
	t.Helper()
	o := s.options
	srv, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	s.srv, s.url = srv, srv.ClientURL()
}

func (s *extServer) stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

func (s *extServer) restart(t *testing.T) {
	t.Helper()
	s.stop()
	s.start(t)
}

func (s *extServer) wipe(t *testing.T) {
	t.Helper()
	s.stop()
	if err := os.RemoveAll(s.options.StoreDir + "/jetstream"); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

// connect fills what a test leaves out, with short times, and closes at the end of the test.
func connect(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), fill(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// onFailure gives a logger whose lines are shown when the test fails.
func onFailure(t *testing.T) *slog.Logger {
	log, text := logger()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", t.Name(), text)
		}
	})
	return log
}

func fill(t *testing.T, cfg bus.Config) bus.Config {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("test/%s", t.Name())
	}
	if cfg.Log == nil {
		cfg.Log = onFailure(t)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 100 * time.Millisecond
	}
	cfg.RetryMin, cfg.RetryMax, cfg.Heartbeat = 20*time.Millisecond, time.Second, 500*time.Millisecond
	return cfg
}
