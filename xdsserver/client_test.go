package xdsserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// got is one received response, of either protocol, in short.
type got struct {
	kind    string // "cds", "eds"
	nonce   string
	version string
	sizes   int
	names   []string          // of resources, in order
	res     map[string]string // text of each resource, by name
	vers    map[string]string // delta: version of each
	removed []string
}

// client is a scripted client.
type client struct {
	t      *testing.T
	node   *corev3.Node
	delta  grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	sotw   grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	cancel context.CancelFunc
	in     chan got
	err    chan error
	vers   map[string]string // SotW: last accepted version by type
	nonces map[string]string
	fences int
}

func nodeOf(id, cluster, region, zone string) *corev3.Node {
	n := &corev3.Node{Id: id, Locality: &corev3.Locality{Region: region, Zone: zone}}
	n.Metadata = structOf(map[string]string{metadataCluster: cluster})
	return n
}

// deltaClient opens a delta ADS stream.
func (b *bench) deltaClient() *client {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.client(cancel)
	c.delta = g
	go c.pump(func() (got, error) {
		m, err := g.Recv()
		if err != nil {
			return got{}, err
		}
		return deltaGot(m)
	})
	return c
}

// sotwClient opens a SotW ADS stream.
func (b *bench) sotwClient() *client {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.conn).StreamAggregatedResources(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.client(cancel)
	c.sotw = g
	go c.pump(func() (got, error) {
		m, err := g.Recv()
		if err != nil {
			return got{}, err
		}
		return sotwGot(m)
	})
	return c
}

func (b *bench) client(cancel context.CancelFunc) *client {
	c := &client{
		t: b.t, node: &corev3.Node{Id: "envoy-1"}, cancel: cancel, in: make(chan got, 10000), err: make(chan error, 1),
		vers: map[string]string{}, nonces: map[string]string{},
	}
	b.t.Cleanup(cancel)
	return c
}

func (c *client) pump(next func() (got, error)) {
	for {
		g, err := next()
		if err != nil {
			c.err <- err
			close(c.in)
			return
		}
		c.in <- g
	}
}

func typeOf(kind string) string {
	for k := range kinds {
		if k.String() == kind {
			return k.typeURL()
		}
	}
	return kind
}

func kindText(url string) string {
	if k, ok := kindOf(url); ok {
		return k.String()
	}
	return url
}

// recv gives the next response.
func (c *client) recv() got {
	c.t.Helper()
	select {
	case g, open := <-c.in:
		if !open {
			c.t.Fatalf("the stream has ended: %v", <-c.err)
		}
		c.nonces[g.kind] = g.nonce
		return g
	case <-time.After(10 * time.Second):
		c.t.Fatal("no response came")
		return got{}
	}
}

// fence fails if anything is sent before the answer to a new name: what was asked before it has no answer.
func (c *client) fence(names ...string) {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%d.nowhere", c.fences)
	if c.delta != nil {
		c.subscribe("eds", nil, name)
	} else {
		c.ask("eds", append(names, name)...)
	}
	g := c.recv()
	if g.kind != "eds" || !slices.Equal(g.names, []string{name}) || len(g.removed) > 0 {
		c.t.Fatalf("something was sent that should not be: %+v", g)
	}
	if c.delta != nil {
		c.ack(g)
	} else {
		c.accept(g, append(names, name)...)
	}
}

// end waits for the end of the stream and gives its error.
func (c *client) end() error {
	c.t.Helper()
	for {
		select {
		case _, open := <-c.in:
			if !open {
				return <-c.err
			}
		case <-time.After(10 * time.Second):
			c.t.Fatal("the stream does not end")
		}
	}
}

// subscribe sends a delta request.
func (c *client) subscribe(kind string, initial map[string]string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeOf(kind), ResourceNamesSubscribe: names, InitialResourceVersions: initial})
}

func (c *client) unsubscribe(kind string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeOf(kind), ResourceNamesUnsubscribe: names})
}

func (c *client) send(m *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	m.Node = c.node
	if err := c.delta.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

// ack acknowledges a delta response.
func (c *client) ack(g got) got {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeOf(g.kind), ResponseNonce: g.nonce})
	return g
}

// nack rejects a delta response.
func (c *client) nack(g got) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeOf(g.kind), ResponseNonce: g.nonce, ErrorDetail: &statusv1.Status{Message: "no"}})
}

// ask sends a SotW request with the last nonce and version of the type.
func (c *client) ask(kind string, names ...string) {
	c.t.Helper()
	c.askAs(kind, c.vers[kind], c.nonces[kind], nil, names...)
}

func (c *client) askAs(kind, version, nonce string, detail *statusv1.Status, names ...string) {
	c.t.Helper()
	err := c.sotw.Send(&discoveryv3.DiscoveryRequest{
		Node: c.node, TypeUrl: typeOf(kind), VersionInfo: version, ResponseNonce: nonce, ResourceNames: names, ErrorDetail: detail,
	})
	if err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

// accept acknowledges a SotW response.
func (c *client) accept(g got, names ...string) got {
	c.t.Helper()
	c.vers[g.kind] = g.version
	c.askAs(g.kind, g.version, g.nonce, nil, names...)
	return g
}

// reject rejects a SotW response.
func (c *client) reject(g got, names ...string) {
	c.t.Helper()
	c.askAs(g.kind, c.vers[g.kind], g.nonce, &statusv1.Status{Message: "no"}, names...)
}

func deltaGot(m *discoveryv3.DeltaDiscoveryResponse) (got, error) {
	g := got{kind: kindText(m.TypeUrl), nonce: m.Nonce, version: m.SystemVersionInfo, removed: m.RemovedResources, res: map[string]string{}, vers: map[string]string{}}
	for _, r := range m.Resources {
		name, text, err := textOf(r.Resource)
		if err != nil {
			return g, err
		}
		if name != r.Name {
			return g, fmt.Errorf("resource %q is wrapped as %q", name, r.Name)
		}
		g.names = append(g.names, name)
		g.res[name], g.vers[name] = text, r.Version
		g.sizes += len(r.Resource.Value)
	}
	slices.Sort(g.removed)
	return g, nil
}

func sotwGot(m *discoveryv3.DiscoveryResponse) (got, error) {
	g := got{kind: kindText(m.TypeUrl), nonce: m.Nonce, version: m.VersionInfo, res: map[string]string{}}
	for _, r := range m.Resources {
		name, text, err := textOf(r)
		if err != nil {
			return g, err
		}
		g.names = append(g.names, name)
		g.res[name] = text
		g.sizes += len(r.Value)
	}
	return g, nil
}

// textOf gives the name of a resource and what matters in it.
func textOf(a *anypb.Any) (name, text string, err error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return "", "", err
	}
	switch r := m.(type) {
	case *clusterv3.Cluster:
		if fault := clusterFault(r); fault != "" {
			return "", "", fmt.Errorf("cluster %s: %s", r.Name, fault)
		}
		if len(r.TypedExtensionProtocolOptions) > 0 {
			return r.Name, http2Cluster, nil
		}
		return r.Name, "cluster", nil
	case *listenerv3.Listener:
		return r.Name, "listener", nil
	case *routev3.RouteConfiguration:
		return r.Name, "route to " + r.VirtualHosts[0].Routes[0].GetRoute().GetCluster(), nil
	case *endpointv3.ClusterLoadAssignment:
		if fault := grpcFault(r); fault != "" {
			return "", "", fmt.Errorf("gRPC would reject %s: %s", r.ClusterName, fault)
		}
		return r.ClusterName, claText(r), nil
	default:
		return "", "", fmt.Errorf("unexpected resource %T", m)
	}
}

// claText gives "p0 r1/z1 w2 10.0.0.1:8080 10.0.0.2:8080(draining)" per locality.
func claText(r *endpointv3.ClusterLoadAssignment) string {
	var out []string
	for _, l := range r.Endpoints {
		place := l.Locality.Region + "/" + l.Locality.Zone
		line := fmt.Sprintf("p%d %s w%d", l.Priority, place, l.LoadBalancingWeight.GetValue())
		for _, e := range l.LbEndpoints {
			line += " " + addrText(e.GetEndpoint().Address)
			for _, more := range e.GetEndpoint().AdditionalAddresses {
				line += "+" + addrText(more.Address)
			}
			if e.HealthStatus != corev3.HealthStatus_HEALTHY {
				line += "(" + strings.ToLower(e.HealthStatus.String()) + ")"
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

func addrText(a *corev3.Address) string {
	s := a.GetSocketAddress()
	return net.JoinHostPort(s.Address, fmt.Sprint(s.GetPortValue()))
}

// expect receives one delta response, acknowledges it, and compares its resources.
func (c *client) expect(want map[string]string) {
	c.t.Helper()
	g := c.ack(c.recv())
	if diff := cmp.Diff(want, g.res); diff != "" || len(g.removed) > 0 {
		c.t.Fatalf("response %s of %s, removed %v (-want +got):\n%s", g.nonce, g.kind, g.removed, diff)
	}
}
