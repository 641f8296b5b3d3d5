package rig

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is three servers that reach each other through proxies only, so that any of them can be cut off.
type Cluster struct {
	Servers []*Server
	routes  [][]*Proxy // routes[i][j] is what i dials for j
}

// NewCluster starts a cluster whose data is below dir, and waits for its leader.
func NewCluster(dir string, change ...func(*server.Options)) (*Cluster, error) {
	const size = 3
	c := &Cluster{routes: make([][]*Proxy, size)}
	ports := make([]int, size)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to find a free port
		if err != nil {
			return nil, fmt.Errorf("find a port: %w", err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
	}
	for i := range size {
		var routes []*url.URL
		c.routes[i] = make([]*Proxy, size)
		for j := range size {
			if i == j {
				continue
			}
			p, err := NewProxy(fmt.Sprintf("127.0.0.1:%d", ports[j]))
			if err != nil {
				return nil, err
			}
			c.routes[i][j] = p
			routes = append(routes, &url.URL{Scheme: "nats", Host: p.Addr()})
		}
		s, err := NewServer(filepath.Join(dir, fmt.Sprint(i)), append(change, func(o *server.Options) {
			o.ServerName = fmt.Sprint("bus-", i)
			// What others are told of leads nowhere, so that they use the proxies.
			o.Cluster = server.ClusterOpts{Name: "bus", Host: "127.0.0.1", Port: ports[i], Advertise: "127.0.0.1:1"}
			o.Routes = routes
		})...)
		if err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	return c, c.awaitLeader()
}

// awaitLeader waits until the servers know each other.
func (c *Cluster) awaitLeader() error {
	for deadline := time.Now().Add(startWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, s := range c.Servers {
			if s.srv.JetStreamIsLeader() && len(s.srv.JetStreamClusterPeers()) == len(c.Servers) {
				return nil
			}
		}
	}
	return errors.New("the servers have no leader")
}

// URLs for clients.
func (c *Cluster) URLs() (urls []string) {
	for _, s := range c.Servers {
		urls = append(urls, s.URL())
	}
	return urls
}

// Cut parts a server from the others; its clients stay.
func (c *Cluster) Cut(i int) { c.each(i, (*Proxy).Cut) }

// Heal ends Cut.
func (c *Cluster) Heal(i int) { c.each(i, (*Proxy).Heal) }

func (c *Cluster) each(i int, do func(*Proxy)) {
	for j := range c.Servers {
		if i != j {
			do(c.routes[i][j])
			do(c.routes[j][i])
		}
	}
}

// Find gives the server of that name, -1 if there is none.
func (c *Cluster) Find(name string) int {
	for i, s := range c.Servers {
		if s.options.ServerName == name {
			return i
		}
	}
	return -1
}

// Kill stops a server that the others do not hear any more, so that it can hand over nothing.
func (c *Cluster) Kill(i int) {
	c.Cut(i)
	c.Servers[i].Stop()
}

// Revive starts a server that was killed.
func (c *Cluster) Revive(i int) error {
	c.Heal(i)
	return c.Servers[i].Start()
}

// Close ends it for good.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Stop()
	}
	for _, row := range c.routes {
		for _, p := range row {
			if p != nil {
				p.Close()
			}
		}
	}
}
