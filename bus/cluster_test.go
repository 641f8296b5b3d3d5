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

// cluster is three servers that know each other through proxies only, so that any of them can be parted from the others.
type cluster struct {
	servers []*extServer
	routes  [][]*proxy // routes[i][j] is what i dials for j
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	const size = 3
	c := &cluster{}
	var ports []int
	for range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		must(t, l.Close())
	}
	for i, port := range ports {
		row, routes := make([]*proxy, size), []*url.URL(nil)
		for j, to := range ports {
			if i != j {
				row[j] = startProxy(t, fmt.Sprintf("127.0.0.1:%d", to))
				routes = append(routes, &url.URL{Scheme: "nats", Host: row[j].addr()})
			}
		}
		c.routes = append(c.routes, row)
		c.servers = append(c.servers, startServer(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("server-%d", i)
			// What others are told of leads nowhere, so that they use the proxies.
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port, Advertise: "127.0.0.1:1"}
			o.Routes = routes
		}))
	}
	eventually(t, "a leader of the servers", func() bool {
		leader := false
		for _, s := range c.servers {
			leader = leader || s.srv.JetStreamIsLeader() && len(s.srv.JetStreamClusterPeers()) == size
		}
		return leader
	})
	return c
}

func (c *cluster) urls() []string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.url)
	}
	return urls
}

// part parts a server from the others, or ends that.
func (c *cluster) part(i int, parted bool) {
	for j := range c.servers {
		if i != j {
			c.routes[i][j].set(parted, 0)
			c.routes[j][i].set(parted, 0)
		}
	}
}

// named gives the server of that name.
func (c *cluster) named(t *testing.T, name string) int {
	t.Helper()
	for i, s := range c.servers {
		if s.options.ServerName == name {
			return i
		}
	}
	t.Fatalf("no server %q", name)
	return -1
}

// leader gives the leader of the events.
func (c *cluster) leader(t *testing.T, b *bus.Bus) int {
	t.Helper()
	name := ""
	eventually(t, "a leader of the events", func() bool {
		st, err := b.JetStream().Stream(t.Context(), "SLICECAST_EVENTS")
		if err == nil && st.CachedInfo().Cluster != nil {
			name = st.CachedInfo().Cluster.Leader
		}
		return name != ""
	})
	return c.named(t, name)
}

// ready waits until the streams are there and led: those that were deleted just now may be in the way of new ones.
func (c *cluster) ready(t *testing.T, b *bus.Bus) {
	t.Helper()
	eventually(t, "streams that are led", func() bool {
		if _, _, err := b.Events().Record(t.Context(), "nobody"); err != nil {
			return false
		}
		for _, name := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE", "SLICECAST_HISTORY"} {
			st, err := b.JetStream().Stream(t.Context(), name)
			if err != nil || st.CachedInfo().Cluster == nil || st.CachedInfo().Cluster.Leader == "" {
				return false
			}
		}
		return true
	})
}

func TestAClusterOfServersKeepsTheContract(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	bustest.Suite(t, func(t *testing.T) bustest.Made {
		// Three servers on a busy machine may take longer than two short checks to deliver: that would end a session.
		b := connect(t, bus.Config{URLs: c.urls(), CheckEvery: 3 * time.Second})
		t.Cleanup(func() { must(t, b.DeleteStreams(context.WithoutCancel(t.Context()))) })
		c.ready(t, b)
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
	t.Parallel()
	c := startCluster(t)
	servers := c.servers
	log, text := logger()
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: c.urls(), Log: log, Metrics: reg})
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

func TestAReaderAndAWriterSurviveTheDeathOfTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b := connect(t, bus.Config{URLs: c.urls()})
	f := followAll(t, b)
	f.write(t, 20)
	f.settled(t)
	i := c.leader(t, b)
	c.part(i, true) // It can hand over nothing.
	c.servers[i].stop()
	f.write(t, 20)
	f.settled(t)
	c.part(i, false)
	c.servers[i].start(t)
	f.write(t, 20)
	f.settled(t)
}

// A server that was parted from the others keeps its clients, and would serve them for ever what it had.
func TestAClientOfAPartedServerGoesToTheOthers(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b := connect(t, bus.Config{URLs: c.urls()})
	f := followAll(t, b)
	f.write(t, 20)
	f.settled(t)
	i := c.named(t, b.ServerName())
	c.part(i, true)
	f.write(t, 20)
	f.settled(t)
	if b.ServerName() == c.servers[i].options.ServerName {
		t.Error("connected to the parted server still")
	}
	c.part(i, false)
	f.write(t, 20)
	f.settled(t)
}

// The same for one who only reads: the parted server still shows its heartbeat.
func TestAReaderOfAPartedServerGoesToTheOthers(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b, other := connect(t, bus.Config{URLs: c.urls()}), connect(t, bus.Config{URLs: c.urls()})
	f := followAll(t, b)
	f.b = other
	f.write(t, 20)
	f.settled(t)
	i := c.named(t, b.ServerName())
	c.part(i, true)
	eventually(t, "another server of the reader", func() bool { return b.ServerName() != c.servers[i].options.ServerName })
	f.write(t, 20)
	f.settled(t)
}
