package xdsserver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestUnknownValuesOfPolicyLabelsAreReportedOnceAndIgnored(t *testing.T) {
	var log bytes.Buffer
	b := newBench(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	seq := uint64(0)
	put := func(st endpoint.State) {
		t.Helper()
		seq++
		if err := b.server.notice(stateNoticeAt(seq, st)); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(lines []string, terminatings, failovers float64) {
		t.Helper()
		var got []string
		for line := range strings.Lines(log.String()) {
			if _, after, found := strings.Cut(line, "is ignored\" "); found {
				got = append(got, strings.TrimSpace(after))
			}
		}
		log.Reset()
		if diff := gocmp.Diff(lines, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		m := b.server.metrics
		if a, f := counter(t, m.ignored[terminating]), counter(t, m.ignored[failover]); a != terminatings || f != failovers {
			t.Errorf("gauges %v and %v, want %v and %v", a, f, terminatings, failovers)
		}
	}
	cartOf := func(cluster string, rv uint64, terminating, failover string) endpoint.State {
		return stateOf(withLabels(sliceOf(cluster, "a", rv, ep("10.0.0.1 rs-")), terminating, failover))
	}

	put(cartOf("prod", 1, "drain", "region"))
	wants(nil, 0, 0)

	put(cartOf("prod", 2, "drain", "sometimes"))
	wants([]string{`key=prod/shop/cart label=slicecast.io/failover value=sometimes accepted="any, region, none"`}, 0, 1)
	put(cartOf("prod", 3, "drain", "sometimes"))
	wants(nil, 0, 1)

	put(cartOf("edge", 1, "Drain", "sometimes")) // The same service in another cluster has labels of its own.
	wants([]string{
		`key=edge/shop/cart label=slicecast.io/terminating value=Drain accepted=drain`,
		`key=edge/shop/cart label=slicecast.io/failover value=sometimes accepted="any, region, none"`,
	}, 1, 2)

	put(cartOf("prod", 4, "", "never"+strings.Repeat("!", 100)))
	wants([]string{`key=prod/shop/cart label=slicecast.io/failover value=never` + strings.Repeat("!", 75) + `... accepted="any, region, none"`}, 1, 2)

	// An older slice with another value does not speak, and neither does one that is gone.
	put(stateOf(
		withLabels(sliceOf("prod", "a", 5, ep("10.0.0.1 rs-")), "", "none"), withLabels(sliceOf("prod", "b", 3, ep("10.0.0.2 rs-")), "", "older")))
	wants(nil, 1, 1)
	put(cartOf("prod", 6, "", "sometimes"))
	wants([]string{`key=prod/shop/cart label=slicecast.io/failover value=sometimes accepted="any, region, none"`}, 1, 2)
	put(emptyState("edge", "shop", "cart", 9))
	wants(nil, 0, 1)
	put(emptyState("prod", "shop", "cart", 9))
	wants(nil, 0, 0)
	if n := len(b.server.store.ignored.values); n != 0 {
		t.Errorf("%d values are remembered", n)
	}
}

func TestPoliciesSayWhichLabelsDecide(t *testing.T) {
	version := func(rv uint64) endpoint.Version { return endpoint.Version{Generation: 1, Resource: rv} }
	svc := Service{
		Failover: failoverAny, Regions: map[string]string{"edge": "eu", "prod": "eu", "west": "us"},
		States: []endpoint.State{
			stateOf(withLabels(sliceOf("edge", "e", 3, ep("10.1.0.1 rs-")), "fade", "region")),
			stateOf(withLabels(sliceOf("prod", "p1", 5, ep("10.0.0.1 rs-")), "drain", "region"), withLabels(sliceOf("prod", "p2", 4), "", "none")),
			stateOf(withLabels(sliceOf("west", "w", 1, ep("10.2.0.1 rs-")), "drain", "")),
		},
	}
	edge := []Policy{
		{"edge", LabelTerminating, "fade", false, false, "e", version(3)},
		{"edge", LabelFailover, "region", true, false, "e", version(3)},
	}
	prod := []Policy{
		{"prod", LabelTerminating, "drain", true, true, "p1", version(5)},
		{"prod", LabelFailover, "region", true, false, "p1", version(5)},
	}
	west := Policy{"west", LabelTerminating, "drain", true, true, "w", version(1)}
	with := func(p Policy, applies bool) Policy {
		p.Applies = applies
		return p
	}
	for _, tt := range []struct {
		name string
		view View
		res  string
		want []Policy
	}{
		{"the client's own cluster", View{Cluster: "prod"}, cart, []Policy{edge[0], edge[1], prod[0], with(prod[1], true), with(west, false)}},
		{"a cluster without the service: the smallest name", View{Cluster: "moon"}, cart, []Policy{edge[0], with(edge[1], true), with(prod[0], false), prod[1], with(west, false)}},
		{"a client of no cluster fails over nowhere", View{}, cart, []Policy{edge[0], edge[1], prod[0], prod[1], west}},
		{"a pinned name", View{Cluster: "west"}, "cart.shop.prod:http", prod},
		{"an unset label leaves the default", View{Cluster: "west"}, cart, []Policy{edge[0], edge[1], prod[0], prod[1], west}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, Policies(svc, tt.view, mustName(t, tt.res))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailoverIsReadFromTheOwnClusterElseTheSmallestThatHasTheService(t *testing.T) {
	of := func(cluster, policy string, rv uint64) endpoint.State {
		return stateOf(withLabels(sliceOf(cluster, cluster, rv, ep("10.0.0.1 rs-")), "", policy))
	}
	empty := emptyState("alpha", "shop", "cart", 9)
	for _, tt := range []struct {
		name   string
		states []endpoint.State
		own    string
		want   string
	}{
		{"the own cluster", []endpoint.State{of("edge", "region", 9), of("prod", "none", 1)}, "prod", "none"},
		{"the own cluster says nothing", []endpoint.State{of("edge", "region", 9), of("prod", "", 1)}, "prod", "any"},
		{"the own cluster says what nobody knows", []endpoint.State{of("edge", "region", 9), of("prod", "near", 1)}, "prod", "any"},
		{"the smallest name, whatever its version", []endpoint.State{of("edge", "region", 1), of("prod", "none", 9)}, "moon", "region"},
		{"a cluster that only had it does not speak", []endpoint.State{empty, of("edge", "region", 1)}, "alpha", "region"},
		{"the smallest name says what nobody knows", []endpoint.State{of("edge", "near", 1), of("prod", "none", 9)}, "moon", "any"},
		{"the newest slice of the own cluster", []endpoint.State{stateOf(
			withLabels(sliceOf("prod", "a", 7), "", "region"), withLabels(sliceOf("prod", "b", 8), "", "none"))}, "prod", "none"},
		{"a slice without ports and endpoints speaks too", []endpoint.State{stateOf(
			withLabels(sliceOf("prod", "a", 7, ep("10.0.0.1 rs-")), "", "region"), withPorts(withLabels(sliceOf("prod", "b", 8), "", "none")))}, "prod", "none"},
		{"a newer generation is newer", []endpoint.State{stateOf(
			ofGeneration(withLabels(sliceOf("prod", "a", 7), "", "region"), 2), withLabels(sliceOf("prod", "b", 80), "", "none"))}, "prod", "region"},
		{"nobody has it", []endpoint.State{empty}, "alpha", "any"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := failoverPolicy(&Service{States: tt.states, Failover: failoverAny}, tt.own); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheTerminatingPolicyIsEachClustersOwn(t *testing.T) {
	svc := Service{States: []endpoint.State{
		stateOf(sliceOf("edge", "e", 1, ep("10.1.0.1 rs-"), ep("10.1.0.2 -st"))),
		stateOf(withLabels(sliceOf("prod", "p", 1, ep("10.0.0.1 rs-"), ep("10.0.0.2 -st")), "drain", "")),
		stateOf(withLabels(sliceOf("west", "w", 1, ep("10.2.0.1 rs-"), ep("10.2.0.2 -st")), "DRAIN", "")),
	}}
	want := "p0 / w3 10.0.0.1:8080 10.0.0.2:8080(draining) 10.1.0.1:8080 10.2.0.1:8080"
	got := text(Assign(svc, View{}, mustName(t, cart)))
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
