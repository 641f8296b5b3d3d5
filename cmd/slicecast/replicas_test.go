package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/xdsserver"
)

// wire carries TCP connections to one address until it is cut.
type wire struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	off   bool
	conns map[net.Conn]bool
}

func startWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target, conns: map[net.Conn]bool{}}
	w.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.group.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		w.cut(true)
		_ = l.Close()
		w.group.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) cut(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = off
	for c := range w.conns {
		if off {
			_ = c.Close()
		}
	}
}

func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off {
		_ = c.Close()
		return false
	}
	w.conns[c] = true
	return true
}

func (w *wire) drop(c net.Conn) {
	_ = c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func (w *wire) serve(in net.Conn) {
	if !w.keep(in) {
		return
	}
	defer w.drop(in)
	out, err := net.Dial("tcp", w.target)
	if err != nil || !w.keep(out) {
		return
	}
	defer w.drop(out)
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	both.Wait()
}

// fleet is a bus with a folder of manifests on it, and xDS replicas.
type fleet struct {
	t      *testing.T
	folder string
	bus    string // host:port
	ttl    time.Duration
}

const twoPods = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.0.1], conditions: {ready: READY, serving: true, terminating: LEAVING}, targetRef: {kind: Pod, name: web-a, uid: u1}}
- {addresses: [10.244.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: web-b, uid: u2}}
`

// soon is a time to live that lapses in a test, and is long enough for a machine that is busy with others.
const soon = 8 * time.Second

// newFleet starts the bus, a watcher and a projector. What is registered outlives its process by ttl, and a proxy counts as
// lost after as long.
func newFleet(t *testing.T, ttl time.Duration) *fleet {
	t.Helper()
	f := &fleet{t: t, folder: t.TempDir(), ttl: ttl}
	// Not the embedded one: that waits for the disk at each write, and a slow disk is not what is tested.
	server, err := natsserver.NewServer(&natsserver.Options{
		ServerName: "bus", Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 64 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	if !server.ReadyForConnections(30 * time.Second) {
		t.Fatal("the bus is not ready")
	}
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	f.bus = strings.TrimPrefix(server.ClientURL(), "nats://")
	f.leaving(false)
	f.run("data", f.bus, func(ctx context.Context, g *group) error {
		specs, err := parseClusters([]string{"east=dir:" + f.folder})
		if err != nil {
			return err
		}
		if err := g.watch(ctx, specs, watchFlags{apiStale: time.Hour}); err != nil {
			return err
		}
		return g.project(ctx)
	})
	return f
}

func (f *fleet) log(name string) *slog.Logger {
	var text output
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("log of %s:\n%s", name, text.String())
		}
	})
	return slog.New(slog.NewTextHandler(&text, nil))
}

// leaving says whether the pod web-a, 10.244.0.1, is terminating.
func (f *fleet) leaving(leaving bool) {
	f.t.Helper()
	text := strings.NewReplacer("READY", fmt.Sprint(!leaving), "LEAVING", fmt.Sprint(leaving)).Replace(twoPods)
	hidden, final := filepath.Join(f.folder, ".web.yaml"), filepath.Join(f.folder, "web.yaml")
	if err := os.WriteFile(hidden, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(hidden, final); err != nil {
		f.t.Fatal(err)
	}
}

// run runs roles on the bus at an address, until the test ends or stop is called.
func (f *fleet) run(name, address string, build func(context.Context, *group) error) (stop func()) {
	f.t.Helper()
	t := newTelemetry(f.log(name))
	conn, err := bus.Connect(f.t.Context(), bus.Config{
		Name: name, URLs: []string{"nats://" + address}, Proxies: true, ClaimTTL: f.ttl, Log: t.log, Metrics: t.registry,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	eg, ctx := errgroup.WithContext(ctx)
	g := &group{Group: eg, bus: conn, t: t}
	if err := build(ctx, g); err != nil {
		cancel()
		f.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	})
	f.t.Cleanup(stop)
	return stop
}

// node is one xDS replica, with wires to it and from it to the bus.
type node struct {
	f             *fleet
	toBus, toNode *wire
	id            string
	drain         string // host:port of its gate
	stop          func()
}

func (f *fleet) node(name string, expected ...string) *node {
	f.t.Helper()
	n := &node{f: f, toBus: startWire(f.t, f.bus), drain: freeAddress(f.t)}
	listen := freeAddress(f.t)
	n.toNode = startWire(f.t, listen)
	flags := xdsFlags{
		listen: listen, drainListen: n.drain, startTimeout: 3 * time.Second, failover: "any", maxViews: 1000, proxyLostAfter: f.ttl,
		leavingWithin: time.Minute, fallbackWait: time.Minute, streamsPerSecond: 500,
	}
	n.stop = f.run(name, n.toBus.addr(), func(ctx context.Context, g *group) error {
		n.id = g.bus.ID()
		return g.serve(ctx, flags, expected)
	})
	until(f.t, name+" to listen", func() bool {
		c, err := net.Dial("tcp", listen)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return n
}

// kill ends a replica as a lost machine does: nobody hears of it again.
func (n *node) kill() {
	n.toBus.cut(true)
	n.toNode.cut(true)
	go n.stop()
}

// proxyClient is a delta client that acknowledges when it is told to.
type proxyClient struct {
	f    *fleet
	name string
	g    grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	in   chan *discoveryv3.DeltaDiscoveryResponse
	end  chan error
	quit func()
}

// client opens a stream to a replica that asks for web.
func (f *fleet) client(name string, n *node, versions map[string]string) *proxyClient {
	f.t.Helper()
	conn, err := grpc.NewClient(n.toNode.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &proxyClient{f: f, name: name, in: make(chan *discoveryv3.DeltaDiscoveryResponse, 100), end: make(chan error, 1)}
	if c.g, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		f.t.Fatal(err)
	}
	var pump sync.WaitGroup
	c.quit = func() { cancel(); pump.Wait(); _ = conn.Close() }
	f.t.Cleanup(c.quit)
	c.send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: name}, ResourceNamesSubscribe: []string{"web.shop:http"}, InitialResourceVersions: versions,
	})
	pump.Go(func() {
		for {
			m, err := c.g.Recv()
			if err != nil {
				c.end <- err
				return
			}
			c.in <- m
		}
	})
	return c
}

func (c *proxyClient) send(m *discoveryv3.DeltaDiscoveryRequest) {
	m.TypeUrl = assignmentType
	_ = c.g.Send(m) // A stream that has ended says so in Recv.
}

// recv waits for the next response.
func (c *proxyClient) recv() *discoveryv3.DeltaDiscoveryResponse {
	c.f.t.Helper()
	select {
	case m := <-c.in:
		return m
	case err := <-c.end:
		c.f.t.Fatalf("%s: the stream has ended: %v", c.name, err)
	case <-time.After(20 * time.Second):
		c.f.t.Fatalf("%s: nothing came", c.name)
	}
	return nil
}

func (c *proxyClient) ack(m *discoveryv3.DeltaDiscoveryResponse) {
	c.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: m.GetNonce()})
}

// ended waits for the end of the stream and gives why.
func (c *proxyClient) ended() error {
	c.f.t.Helper()
	for {
		select {
		case <-c.in:
		case err := <-c.end:
			return err
		case <-time.After(20 * time.Second):
			c.f.t.Fatalf("%s: the stream does not end", c.name)
		}
	}
}

// holding gives a client that has acknowledged web as it is.
func (f *fleet) holding(name string, n *node) *proxyClient {
	f.t.Helper()
	c := f.client(name, n, nil)
	c.ack(c.recv())
	f.listed(name, n, true)
	return c
}

// listed waits until the list has a stream of a client at a replica, which has, or has not, acknowledged all it wants.
func (f *fleet) listed(name string, n *node, clean bool) {
	f.t.Helper()
	until(f.t, "the stream of "+name+" to be listed", func() bool {
		for _, e := range f.list() {
			if e.replica == n.id && strings.Contains(e.text, `"node":"`+name+`"`) && strings.Contains(e.text, `"clean":true`) == clean && !strings.Contains(e.text, "ended") {
				return true
			}
		}
		return false
	})
}

type listedEntry struct{ replica, text string }

// collector takes in what is on the list of proxies.
type collector struct {
	entries map[string]listedEntry
	done    func()
}

func (c *collector) Opened()   { c.entries = map[string]listedEntry{} }
func (c *collector) Complete() { c.done() }
func (c *collector) Entry(e bus.ProxyEntry) {
	if e.Body == nil {
		delete(c.entries, e.Replica+"."+e.Stream)
	} else {
		c.entries[e.Replica+"."+e.Stream] = listedEntry{e.Replica, string(e.Body)}
	}
}

func (f *fleet) list() map[string]listedEntry {
	f.t.Helper()
	t := newTelemetry(slog.New(slog.DiscardHandler))
	conn, err := bus.Connect(f.t.Context(), bus.Config{Name: "list", URLs: []string{"nats://" + f.bus}, Log: t.log, Metrics: t.registry})
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	c := &collector{done: cancel}
	if err := conn.Proxies().Follow(ctx, c); err != nil {
		f.t.Fatal(err)
	}
	return c.entries
}

// waiting is a question to a gate.
type waiting struct {
	f      *fleet
	done   chan struct{}
	answer xdsserver.DrainAnswer
	err    error
}

// ask asks the gate of a replica whether web-a may stop.
func (n *node) ask(timeout time.Duration) *waiting {
	w := &waiting{f: n.f, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	n.f.t.Cleanup(func() { cancel(); <-w.done })
	go func() {
		defer close(w.done)
		w.answer, w.err = askDrain(ctx, n.drain, timeout)
	}()
	return w
}

func askDrain(ctx context.Context, address string, timeout time.Duration) (a xdsserver.DrainAnswer, err error) {
	url := fmt.Sprintf("http://%s/v1/drain?cluster=east&namespace=shop&pod=web-a&uid=u1&ip=10.244.0.1&timeout=%s", address, timeout)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	return a, json.NewDecoder(response.Body).Decode(&a)
}

// stands fails the test if there is an answer. It can only miss one that comes late.
func (w *waiting) stands(why string) {
	w.f.t.Helper()
	select {
	case <-w.done:
		w.f.t.Fatalf("%s: got %+v (%v), want no answer yet", why, w.answer, w.err)
	case <-time.After(300 * time.Millisecond):
	}
}

// says waits for the answer.
func (w *waiting) says(drained bool) xdsserver.DrainAnswer {
	w.f.t.Helper()
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		w.f.t.Fatal("no answer came")
	}
	if w.err != nil || w.answer.Drained != drained {
		w.f.t.Fatalf("got %+v (%v), want drained %t", w.answer, w.err, drained)
	}
	return w.answer
}

// healthy reports what a replica says of its health.
func (n *node) healthy() bool {
	conn, err := grpc.NewClient(n.toNode.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r, err := healthv1.NewHealthClient(conn).Check(n.f.t.Context(), &healthv1.HealthCheckRequest{})
	return err == nil && r.GetStatus() == healthv1.HealthCheckResponse_SERVING
}
