package cases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/xdsserver"
)

// atMost bounds a wait that would otherwise be for ever; nothing is measured by it.
const atMost = time.Minute

// whole is a projector and an xDS server on a bus in memory, and clients of both protocols for each View. What has
// gone all the way is known by a fence: a service that no case speaks of, changed after everything else.
type whole struct {
	*writer
	names   []string // that clients ask for
	views   []xdsserver.View
	clients []*client
	stop    func()
	fences  int
}

// fenceNames are the resources of the fence, one for each family.
var fenceNames = []string{"fence.fence:v4", "fence.fence:v6"}

func newWhole(t *testing.T, regions map[string]string, names []string, views []xdsserver.View) *whole {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	w := &whole{writer: newWriter(ctx, t, regions), names: names, views: views}
	w.start()
	t.Cleanup(func() {
		w.stop()
		cancel()
	})
	return w
}

// start runs everything on what the bus holds, and connects the clients.
func (w *whole) start() {
	w.t.Helper()
	for _, cluster := range w.clusters {
		w.certify(cluster)
	}
	p, err := projector.New(projector.Config{
		Events: w.fake.Events(), States: w.fake.States(), Certifier: w.fake.States(), Parallel: 1, CheckpointEvery: time.Nanosecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := xdsserver.New(xdsserver.Config{
		States: w.fake.States(), Records: w.fake.Events(), Listen: "127.0.0.1:0", StartTimeout: time.Hour, Expected: w.clusters,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Listening():
	case <-ctx.Done():
		_, why := s.Ready()
		w.t.Fatalf("the server does not listen: %s", why)
	}
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, view := range w.views {
		for _, open := range []func(context.Context, *grpc.ClientConn, xdsserver.View, []string) (*client, error){openDelta, openSotW} {
			c, err := open(ctx, conn, view, slices.Concat(w.names, fenceNames))
			if err != nil {
				w.t.Fatal(err)
			}
			w.clients = append(w.clients, c)
		}
	}
	w.stop = func() {
		w.stop = func() {}
		for _, c := range w.clients {
			c.end()
		}
		w.clients = nil
		_ = conn.Close()
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			w.t.Error(err)
		}
	}
}

// restart ends everything but the bus, and starts it anew.
func (w *whole) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// settle waits until what has been put is with every client, and what each was sent since the last time in its log. A
// service that changes while it is written is written again behind others, so one fence is not enough.
func (w *whole) settle() {
	w.t.Helper()
	w.fence()
	w.fence()
}

// fence puts up the next fence in every cluster and waits until every client has it.
func (w *whole) fence() {
	w.t.Helper()
	w.fences++
	for _, cluster := range w.clusters {
		for i, addr := range []string{"192.0.2.1", "2001:db8::1"} {
			w.put(endpoint.Event{Slice: endpoint.Slice{
				Key: endpoint.Key{Cluster: cluster, Namespace: "fence", Service: "fence"}, Name: fmt.Sprint("fence-", i),
				Version:   endpoint.Version{Generation: 1, Resource: uint64(1_000_000 + w.fences)},
				Ports:     []endpoint.Port{{Name: strings.TrimPrefix(fenceNames[i], "fence.fence:"), Number: uint16(w.fences)}},
				Endpoints: []endpoint.Endpoint{{Addr: fenceAddr(addr, slices.Index(w.clusters, cluster)), Conditions: endpoint.Ready}},
			}})
		}
	}
	for _, c := range w.clients {
		if err := c.await(w.ctx, w.fences, len(w.clusters)); err != nil {
			w.t.Fatalf("%s client of %+v: %v", c.kind, c.view, err)
		}
	}
}

func fenceAddr(first string, n int) netip.Addr {
	addr := netip.MustParseAddr(first)
	for range n {
		addr = addr.Next()
	}
	return addr
}

func TestCasesOverRealStreams(t *testing.T) {
	eachCase(t, func(t *testing.T, c testCase) {
		pure, err := runCase(c)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, c, runLive(t, pure))
	})
}

// runLive gives the case with its sections of kind push as clients of both protocols were sent them, and checks that in
// the end of each stage they hold what the pure functions say.
func runLive(t *testing.T, c testCase) testCase {
	t.Helper()
	end := endOf(c)
	names := make([]string, 0, len(end.named))
	for _, n := range end.names() {
		names = append(names, n.String())
	}
	views := viewsOf(t, c)
	regions := map[string]string{}
	for _, cluster := range c.clusters() {
		regions[cluster] = end.regions[cluster]
	}
	live := newWhole(t, regions, names, slices.Collect(maps.Keys(views)))
	world := newWorld()
	live.settle()
	out := testCase{name: c.name}
	for i, st := range c.stages {
		world.events = nil
		for _, cl := range live.clients {
			cl.log = nil
		}
		for _, s := range st.steps {
			if s.restart {
				live.restart()
			}
			for _, e := range world.apply(s) {
				live.put(e)
			}
		}
		live.settle()
		st.asked = slices.Clone(st.asked)
		for _, cl := range live.clients {
			if err := cl.condense(world.events); err != nil {
				t.Error(err)
			}
		}
		for j := range st.asked {
			checkSection(t, live, &st.asked[j])
		}
		if t.Failed() {
			t.Fatalf("stage %d", i+1)
		}
		out.stages = append(out.stages, st)
	}
	return out
}

// viewsOf gives every View that a case asks for.
func viewsOf(t *testing.T, c testCase) map[xdsserver.View]bool {
	t.Helper()
	views := map[xdsserver.View]bool{}
	for _, st := range c.stages {
		for _, sec := range st.asked {
			if kind := sec.Kind(); kind == "assign" || kind == "push" {
				view, err := parseView(sec.Head)
				if err != nil {
					t.Fatal(err)
				}
				views[view] = true
			}
		}
	}
	return views
}

// checkSection compares what clients hold with an assign section, or writes into a push section what they were sent.
func checkSection(t *testing.T, live *whole, sec *endpointtest.Section) {
	t.Helper()
	kind := sec.Kind()
	if kind != "assign" && kind != "push" {
		return
	}
	view, err := parseView(sec.Head)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, cl := range live.clients {
		if cl.view != view {
			continue
		}
		if kind == "assign" {
			for _, line := range sec.Body {
				if name, want, _ := strings.Cut(line, "  "); cl.held[name] != want {
					t.Errorf("%s client of %+v holds %s as %q, want %q", cl.kind, view, name, cl.held[name], want)
				}
			}
			continue
		}
		log := orNothing(cl.log)
		if said != nil && !slices.Equal(said, log) {
			t.Errorf("%s client of %+v was sent %q, that of the other protocol %q", cl.kind, view, log, said)
		}
		said = log
	}
	if kind == "push" {
		sec.Body = said
	}
}
