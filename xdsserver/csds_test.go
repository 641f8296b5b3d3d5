package xdsserver

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fetched asks for the state of clients.
func (b *bench) fetched(matchers ...*matcherv3.NodeMatcher) (*statusv3.ClientStatusResponse, error) {
	b.t.Helper()
	return statusv3.NewClientStatusDiscoveryServiceClient(b.conn).FetchClientStatus(b.t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: matchers})
}

// statusTexts gives "node eds name version STATUS detail" per resource.
func (b *bench) statusTexts(matchers ...*matcherv3.NodeMatcher) []string {
	b.t.Helper()
	r, err := b.fetched(matchers...)
	must(b.t, err)
	var out []string
	for _, c := range r.Config {
		for _, g := range c.GenericXdsConfigs {
			line := c.Node.Id + " " + kindText(g.TypeUrl) + " " + g.Name + " " + g.ConfigStatus.String()
			if g.ErrorState != nil {
				line += " " + g.ErrorState.Details
			}
			if g.Name != summaryName && (g.VersionInfo == "") != (g.ConfigStatus == statusv3.ConfigStatus_NOT_SENT) {
				line += " with version " + g.VersionInfo
			}
			out = append(out, line)
		}
	}
	return out
}

// statusBecomes waits until the state of clients is as wanted.
func (b *bench) statusBecomes(want ...string) {
	b.t.Helper()
	for end := time.Now().Add(9 * time.Second); ; time.Sleep(time.Millisecond) {
		got := b.statusTexts()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("(-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

func nodeID(text string) *matcherv3.NodeMatcher {
	return &matcherv3.NodeMatcher{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}}
}

func TestTheStateOfAClientFollowsWhatItWasSentAndAnswers(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		b := serving(t, cartAt(7, "10.0.0.1"))
		c := b.deltaClient()
		c.subscribe("eds", nil, cart)
		g := c.recv()
		b.statusBecomes("envoy-1 eds " + cart + " STALE")
		c.ack(g)
		b.statusBecomes("envoy-1 eds " + cart + " SYNCED")
		b.put(cartAt(8, "10.0.0.2"))
		g = c.recv()
		b.statusBecomes("envoy-1 eds " + cart + " STALE")
		c.nack(g)
		b.statusBecomes("envoy-1 eds " + cart + " ERROR no")
		b.put(cartAt(9, "10.0.0.3"))
		c.ack(c.recv())
		b.statusBecomes("envoy-1 eds " + cart + " SYNCED")
		c.subscribe("cds", nil, "nothing.shop:http")
		c.ack(c.recv()) // that it is not there
		b.statusBecomes("envoy-1 cds nothing.shop:http NOT_SENT", "envoy-1 eds "+cart+" SYNCED")
		c.cancel()
		b.statusBecomes()
	})
	t.Run("sotw", func(t *testing.T) {
		b := serving(t, cartAt(7, "10.0.0.1"))
		c := b.sotwClient()
		c.ask("eds", cart)
		g := c.recv()
		b.statusBecomes("envoy-1 eds " + cart + " STALE")
		c.accept(g, cart)
		b.statusBecomes("envoy-1 eds " + cart + " SYNCED")
		b.put(cartAt(8, "10.0.0.2"))
		c.reject(c.recv(), cart)
		b.statusBecomes("envoy-1 eds " + cart + " ERROR no")
	})
}

func TestTheStateOfAClientNamesItsVersionPlaceAndStream(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.node = nodeOf("envoy-7", "prod", "eu", "eu-1a")
	c.subscribe("eds", nil, cart)
	g := c.ack(c.recv())
	b.statusBecomes("envoy-7 eds " + cart + " SYNCED")
	r, err := b.fetched()
	must(t, err)
	got := r.Config[0]
	if v := got.GenericXdsConfigs[0].VersionInfo; v != g.vers[cart] {
		t.Errorf("got version %q, want %q as it was sent", v, g.vers[cart])
	}
	if at := got.GenericXdsConfigs[0].LastUpdated.AsTime(); time.Since(at) > time.Minute || at.After(time.Now()) {
		t.Errorf("got last updated %s", at)
	}
	if !proto.Equal(got.Node, c.node) || !strings.HasPrefix(got.ClientScope, "stream 1, ads delta, from 127.0.0.1:") {
		t.Errorf("got node %v of %q, want %v", got.Node, got.ClientScope, c.node)
	}
}

func TestTheReasonOfANACKIsBounded(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.sotwClient()
	c.ask("eds", cart)
	c.askAs("eds", "", c.recv().nonce, &statusv1.Status{Message: strings.Repeat("ä", 100_000)}, cart)
	want := strings.Repeat("ä", (maxRefusal-3)/2) + "?..."
	b.statusBecomes("envoy-1 eds " + cart + " ERROR " + want)
}

func TestNodeMatchersAreHonouredOrRefused(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	for _, id := range []string{"envoy-1", "envoy-2", "gateway-1"} {
		c := b.deltaClient()
		c.node.Id = id
		c.subscribe("eds", nil, cart)
		c.ack(c.recv())
	}
	settled(b, 3)
	text := func(s *matcherv3.StringMatcher) *matcherv3.NodeMatcher { return &matcherv3.NodeMatcher{NodeId: s} }
	regex := func(re string) *matcherv3.NodeMatcher {
		return text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: re}}})
	}
	for name, c := range map[string]struct {
		matchers []*matcherv3.NodeMatcher
		want     int
		code     codes.Code
	}{
		"none":     {nil, 3, codes.OK},
		"exact":    {[]*matcherv3.NodeMatcher{nodeID("envoy-1")}, 1, codes.OK},
		"either":   {[]*matcherv3.NodeMatcher{nodeID("envoy-1"), nodeID("gateway-1")}, 2, codes.OK},
		"nobody":   {[]*matcherv3.NodeMatcher{nodeID("envoy")}, 0, codes.OK},
		"prefix":   {[]*matcherv3.NodeMatcher{text(&matcherv3.StringMatcher{IgnoreCase: true, MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "ENVOY"}})}, 2, codes.OK},
		"case":     {[]*matcherv3.NodeMatcher{text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "ENVOY"}})}, 0, codes.OK},
		"suffix":   {[]*matcherv3.NodeMatcher{text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "-1"}})}, 2, codes.OK},
		"contains": {[]*matcherv3.NodeMatcher{text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: "way"}})}, 1, codes.OK},
		"regex":    {[]*matcherv3.NodeMatcher{regex("envoy-.|gateway")}, 2, codes.OK},
		"no regex": {[]*matcherv3.NodeMatcher{regex("(")}, 0, codes.InvalidArgument},
		"long":     {[]*matcherv3.NodeMatcher{regex(strings.Repeat("a", 2000))}, 0, codes.InvalidArgument},
		"empty":    {[]*matcherv3.NodeMatcher{text(&matcherv3.StringMatcher{})}, 0, codes.InvalidArgument},
		"many":     {make([]*matcherv3.NodeMatcher, maxMatchers+1), 0, codes.InvalidArgument},
		"metadata": {[]*matcherv3.NodeMatcher{{NodeMetadatas: []*matcherv3.StructMatcher{{}}}}, 0, codes.Unimplemented},
	} {
		r, err := b.fetched(c.matchers...)
		if status.Code(err) != c.code || len(r.GetConfig()) != c.want {
			t.Errorf("%s: got %d clients and %v, want %d and %s", name, len(r.GetConfig()), err, c.want, c.code)
		}
	}
	if got := counter(t, b.server.metrics.statuses.WithLabelValues(statusRefused)); got != 5 {
		t.Errorf("%v refused requests are counted, want 5", got)
	}
}

func TestAClientSeesTheStateOfItselfUnlessItMaySeeEverything(t *testing.T) {
	g := newGuarded(t)
	clients := map[string]*guarded{}
	for _, id := range []string{"shop", "admin", "stranger"} {
		clients[id] = g.as(g.own, id)
		c := clients[id].deltaClient()
		c.node.Id = id
		c.subscribe("eds", nil, cart, "key.vault:http")
		c.ack(c.recv())
	}
	settled(g.bench, 3)
	for id, want := range map[string][]string{
		"shop": {"shop"}, "stranger": {"stranger"}, "admin": {"admin", "shop", "stranger"},
	} {
		r, err := clients[id].fetched()
		must(t, err)
		var got []string
		for _, c := range r.Config {
			got = append(got, c.Node.Id)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", id, got, want)
		}
	}
}

func TestWithRulesWhoHasNoIdentitySeesNobody(t *testing.T) {
	access, err := NewAccess([]AccessRule{{Identity: "*", Namespaces: []string{"shop"}, Clusters: []string{"*"}}})
	must(t, err)
	b := newBench(t, func(c *Config) { c.Access = func() *Access { return access } }).with(cartAt(7, "10.0.0.1"))
	b.deltaClient().subscribe("eds", nil, cart)
	opened(b, 1)
	if r, err := b.fetched(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v and %v, want it refused", r, err)
	}
}

func TestAnAnswerIsSummedUpBeforeItIsTooLarge(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	names := []string{cart}
	for i := range 2*statusListed - 1 {
		names = append(names, fmt.Sprintf("service-%d.shop:http", i))
	}
	c.subscribe("eds", nil, names...)
	for seen := 0; seen < len(names); {
		seen += len(c.ack(c.recv()).names)
	}
	settled(b, 1)
	b.put(cartAt(8, "10.0.0.2"))
	c.nack(c.recv())
	got := b.statusTexts()
	for end := time.Now().Add(9 * time.Second); !slices.Contains(got, "envoy-1 eds "+cart+" ERROR no") && time.Now().Before(end); got = b.statusTexts() {
	}
	if len(got) != statusListed+1 || got[0] != "envoy-1 eds "+cart+" ERROR no" || got[statusListed] != "envoy-1 eds * SYNCED" {
		t.Fatalf("got %d entries, first %q, last %q", len(got), got[0], got[len(got)-1])
	}
	r, err := b.fetched()
	must(t, err)
	if sum, want := r.Config[0].GenericXdsConfigs[statusListed].VersionInfo, "1000 more: 1000 synced, 0 stale, 0 error, 0 not sent"; sum != want {
		t.Errorf("got %q, want %q", sum, want)
	}
	// Others, whose resources are long, are still there, but in one line.
	for range 3 {
		c := b.deltaClient()
		long := make([]string, 0, 600)
		for i := range 600 {
			long = append(long, fmt.Sprint(i)+strings.Repeat("x", 2_000))
		}
		c.subscribe("eds", nil, long...)
	}
	answers := func(n int) *statusv3.ClientStatusResponse {
		for end := time.Now().Add(9 * time.Second); ; time.Sleep(time.Millisecond) {
			r, err := b.fetched()
			must(t, err)
			if len(r.Config) == n || time.Now().After(end) {
				return r
			}
		}
	}
	last := answers(4).Config[3].GenericXdsConfigs
	if len(last) != 1 || !strings.HasPrefix(last[0].VersionInfo, "600 more: ") {
		t.Errorf("got %d entries, first %q, want a summary", len(last), last[0].GetVersionInfo())
	}
}

func TestAnAnswerForTooManyClientsIsRefusedAndSaysHowToAskForFewer(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	long := strings.Repeat("x", 1_000)
	for i := range 2_000 { // Streams without clients, which are never sent anything.
		st := b.server.hub.open(streamOptions{service: "ads", delta: true, peer: "192.0.2.1:1"})
		defer b.server.hub.end(st)
		b.server.hub.request(st, request{kind: assignments, node: nodeOf(fmt.Sprint(i, long), long, long, long), subscribe: []string{cart}})
	}
	if r, err := b.fetched(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "node_matchers") {
		t.Errorf("got %d clients and %v, want it refused with a hint", len(r.GetConfig()), err)
	}
	prefix := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "19"}}
	if r, err := b.fetched(&matcherv3.NodeMatcher{NodeId: prefix}); err != nil || len(r.Config) != 111 {
		t.Errorf("got %d clients and %v, want 111", len(r.GetConfig()), err)
	}
	if got := counter(t, b.server.metrics.statuses.WithLabelValues(statusLarge)); got != 1 {
		t.Errorf("%v too large answers are counted, want 1", got)
	}
}

func TestAStreamOfClientStatusAnswersEachRequestAndEndsWithTheServer(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.subscribe("eds", nil, cart)
	c.ack(c.recv())
	g, err := statusv3.NewClientStatusDiscoveryServiceClient(b.conn).StreamClientStatus(t.Context())
	must(t, err)
	for _, id := range []string{"envoy-1", "envoy-2"} {
		must(t, g.Send(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{nodeID(id)}}))
		r, err := g.Recv()
		must(t, err)
		if want := id == "envoy-1"; len(r.Config) == 1 != want {
			t.Errorf("%s: got %v", id, r.Config)
		}
	}
	must(t, g.Send(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeMetadatas: []*matcherv3.StructMatcher{{Path: []*matcherv3.StructMatcher_PathSegment{}}}}}}))
	if _, err := g.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want it refused", err)
	}
	idle, err := statusv3.NewClientStatusDiscoveryServiceClient(b.conn).StreamClientStatus(t.Context())
	must(t, err)
	must(t, idle.Send(&statusv3.ClientStatusRequest{}))
	if _, err := idle.Recv(); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if _, err := idle.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the replica", err)
	}
}
