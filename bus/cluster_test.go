package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// startCluster starts three servers that know each other over loopback.
func startCluster(t *testing.T) []*extServer {
	t.Helper()
	var out []*extServer
	var ports []int
	var routes []*url.URL
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		must(t, l.Close())
	}
	for i, port := range ports {
		out = append(out, startServer(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("server-%d", i)
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
			o.Routes = routes
		}))
	}
	deadline := time.Now().Add(patience)
	for {
		leader := false
		for _, s := range out {
			leader = leader || s.srv.JetStreamIsLeader() && len(s.srv.JetStreamClusterPeers()) == len(out)
		}
		if leader {
			return out
		}
		if time.Now().After(deadline) {
			t.Fatal("the servers have no leader")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAClusterOfServersKeepsTheContract(t *testing.T) {
	servers := startCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url)
	}
	bustest.Suite(t, func(t *testing.T) bustest.Made {
		b := connect(t, bus.Config{URLs: urls})
		t.Cleanup(func() { must(t, b.DeleteStreams(context.WithoutCancel(t.Context()))) })
		st, err := b.JetStream().Stream(t.Context(), "SLICECAST_STATE")
		must(t, err)
		if n := st.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("%d replicas, want 3", n)
		}
		return bustest.Made{
			Events: b.Events(), States: b.States(),
			Restart: func(t *testing.T) { must(t, b.Reconnect()) },
			Wipe: func(t *testing.T) {
				must(t, b.DeleteStreams(t.Context()))
				must(t, b.Reconnect())
			},
		}
	})
}

func TestAReaderSurvivesTheLossOfAServerAndAWriteNeedsAQuorum(t *testing.T) {
	servers := startCluster(t)
	log, text := logger()
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{servers[0].url, servers[1].url, servers[2].url}, Log: log, Metrics: reg})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", text)
		}
	})
	f := followAll(t, b)
	f.write(t, 50)
	f.settled(t)
	servers[2].stop()
	f.write(t, 50)
	f.settled(t)
	servers[1].stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var r ledger.Result
		if r, err = b.Events().Put(ctx, bustest.Event("ca", "shop", "shop-late", 1000, 1), 0); r.Saved {
			t.Fatal("saved by one of three servers")
		}
		if errors.Is(err, bus.ErrNoQuorum) {
			break
		}
	}
	if !errors.Is(err, bus.ErrNoQuorum) {
		t.Errorf("one of three servers: got %v, want ErrNoQuorum", err)
	}
	if isRefused(err) {
		t.Errorf("%v is taken for refused: it passes by itself", err)
	}
	if n := samples(t, reg)["slicecast_bus_publish_errors_total{no_quorum}"]; n == 0 || text.count("kind=no_quorum") != 1 {
		t.Errorf("%v failures counted, and %d lines, want some and 1", n, text.count("kind=no_quorum"))
	}
	servers[1].start(t)
	// A write without an answer may arrive after all; the subject is given up, so that what is known is what is there.
	late := bustest.Event("ca", "shop", "shop-late", 1001, 1)
	f.last[late.Slice.Name] = f.mustPut(t, late)
	f.write(t, 50)
	f.settled(t)
}
