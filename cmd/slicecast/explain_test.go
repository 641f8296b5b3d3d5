package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

func TestExplainShowsWhatAStandaloneServesAndSinceWhen(t *testing.T) {
	folder, bus := standalone(t)
	explained := func() (e explanation) {
		t.Helper()
		text := command(t, bus, "explain", "web", "-o", "json", "--from-cluster", "east")
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return e
	}
	e := explained()
	if len(e.Ports) != 1 || e.Ports[0].Resource != "web.shop:http" || len(e.Ports[0].Endpoints) != 1 || e.Client.Cluster != "east" {
		t.Fatalf("got %+v", e)
	}
	first := e.Ports[0].Endpoints[0]
	if !first.Used || first.Rule != "R3" || first.Pod != "web-a" || first.UID != "u1" || first.Slice != "web-1" || first.Address != "10.244.0.1:8080" || !first.ChangedExact {
		t.Errorf("got %+v", first)
	}
	writeManifest(t, folder, "false")
	until(t, "the edit to be explained", func() bool { return !explained().Ports[0].Endpoints[0].Used })
	last := explained().Ports[0].Endpoints[0]
	if last.Reason != "not ready" || last.Rule != "R3" || last.Ready || !last.Serving || last.Version == first.Version {
		t.Errorf("got %+v", last)
	}
	if !last.ChangedExact || !last.Changed.After(*first.Changed) {
		t.Errorf("changed %s (%t), and before %s", last.Changed, last.ChangedExact, first.Changed)
	}

	text := command(t, bus, "explain", "web.shop.east", "--port", "8080", "--zone", "z1", "--ip-family", "ipv4")
	for _, want := range []string{
		"Service web.shop, as a client of no cluster, zone z1, address family ipv4 sees it\n", "web.shop.east:8080: 0 of 1 used\n",
		"10.244.0.1:8080   out    R3     -s-", "neither ready nor terminating\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for args, want := range map[string]string{
		"web.ops":                    "slicecast: namespace ops has no service web; it is in shop\n",
		"web.shop.west":              "slicecast: cluster west has no service web.shop; it is in east\n",
		"we":                         "slicecast: the bus has no service we; it has web.shop\n",
		"nothing":                    "slicecast: the bus has no service nothing\n",
		"web --port grpc":            "slicecast: service web.shop has no port grpc; it has http\n",
		"web --from-cluster=moon":    "note: the bus knows no cluster moon\n",
		"":                           "slicecast: want one SERVICE[.NAMESPACE][.CLUSTER], got \"\"\nsee: slicecast explain --help\n",
		"web shop":                   "got \"web shop\"",
		"we%b":                       "\"we%b\" in \"we%b\" is not a DNS label",
		"web -o yaml":                "--output \"yaml\" is neither text nor json",
		"web --ip-family 5":          "--ip-family \"5\" is neither ipv4 nor ipv6",
		"web --failover-default far": "--failover-default \"far\" is not any, region or none",
		"web --from-cluster a.b":     "--from-cluster \"a.b\" is not a DNS label",
	} {
		if got := command(t, bus, append([]string{"explain"}, strings.Fields(args)...)...); !strings.Contains(got, want) {
			t.Errorf("explain %s: got %q, want %q", args, got, want)
		}
	}
}

// sliceAt gives a slice of a service with one port "http".
func sliceAt(cluster, namespace, name string, rv uint64, eps ...endpoint.Endpoint) endpoint.Slice {
	return endpoint.Slice{
		Key: endpoint.Key{Cluster: cluster, Namespace: namespace, Service: "web"}, Name: name, Version: endpoint.Version{Generation: 1, Resource: rv},
		Ports: []endpoint.Port{{Name: "http", Number: 8080}}, Endpoints: eps, Observed: second(int(rv)),
	}
}

func second(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

func podAt(addr string, c endpoint.Conditions, pod string) endpoint.Endpoint {
	return endpoint.Endpoint{Addr: netip.MustParseAddr(addr), Conditions: c, TargetKind: "Pod", TargetName: pod, TargetUID: pod}
}

const usable = endpoint.Ready | endpoint.Serving

func TestAServiceIsChosenOnlyWhereOneIsMeant(t *testing.T) {
	var states []endpoint.State
	for _, namespace := range []string{"b", "a"} {
		for _, cluster := range []string{"west", "east"} {
			sl := sliceAt(cluster, namespace, "web-1", 1)
			states = append(states, endpoint.State{Key: sl.Key, Slices: []endpoint.Slice{sl}})
		}
	}
	for _, tt := range []struct {
		filter serviceFilter
		want   string
	}{
		{serviceFilter{"web", "a", ""}, "east west"},
		{serviceFilter{"web", "a", "west"}, "east west"},
		{serviceFilter{"web", "", ""}, "service web is in 2 namespaces, name one with -n: a, b"},
		{serviceFilter{"web", "c", ""}, "namespace c has no service web; it is in a, b"},
		{serviceFilter{"web", "a", "north"}, "cluster north has no service web.a; it is in east, west"},
		{serviceFilter{"web-2", "", ""}, "the bus has no service web-2; it has web.a, web.b"},
	} {
		var got []string
		mine, err := chooseService(states, tt.filter)
		for _, st := range mine {
			got = append(got, st.Key.Cluster)
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.filter, text, tt.want)
		}
	}
	names := strings.Fields("a b c d e f g h i j")
	if got, want := listed(names), "a, b, c, d, e, f, g, h and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhenAnAddressChangedIsExactOnlyWhereHistoryTells(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	entry := func(rv uint64, missing uint64, changed ...netip.Addr) bus.HistoryEntry {
		e := bus.HistoryEntry{Event: endpoint.Event{Slice: sliceAt("east", "shop", "web-1", rv)}}
		if missing > 0 {
			e.Missing = endpoint.Version{Generation: 1, Resource: missing}
		}
		for _, a := range changed {
			e.Event.Transitions = append(e.Event.Transitions, endpoint.Transition{Addr: a, Before: endpoint.Absent, After: usable})
		}
		return e
	}
	stored := entry(3, 0, addr)
	stored.Event.Slice.Observed, stored.Stored = time.Time{}, second(33)
	other := netip.MustParseAddr("10.0.0.2")
	for _, tt := range []struct {
		name    string
		entries []bus.HistoryEntry
		want    time.Time
		exact   bool
	}{
		{"no history", nil, second(9), false},
		{"an entry with a change", []bus.HistoryEntry{entry(3, 0, addr), entry(5, 0, other)}, second(3), true},
		{"the last of two, whatever their order", []bus.HistoryEntry{entry(5, 0, addr), entry(3, 0, addr)}, second(5), true},
		{"an event without a time", []bus.HistoryEntry{stored}, second(33), true},
		{"older than history", []bus.HistoryEntry{entry(4, 0, other), entry(6, 0)}, second(4), false},
		{"something is missing after the change", []bus.HistoryEntry{entry(3, 0, addr), entry(6, 5, other)}, second(6), false},
		{"something was missing before the change", []bus.HistoryEntry{entry(3, 0), entry(6, 5, addr)}, second(6), true},
		{"something is missing, and no change", []bus.HistoryEntry{entry(3, 0), entry(6, 5)}, second(6), false},
		{"history is ahead", []bus.HistoryEntry{entry(3, 0, addr), entry(12, 0, addr)}, second(9), false},
		{"history of another slice", []bus.HistoryEntry{{Event: endpoint.Event{Slice: sliceAt("west", "shop", "web-1", 3)}}}, second(9), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := readPast(t.Context(), func(_ context.Context, _ bus.HistoryQuery, handle func(bus.HistoryEntry) error) error {
				for _, e := range tt.entries {
					if err := handle(e); err != nil {
						return err
					}
				}
				return nil
			}, bus.HistoryQuery{})
			if err != nil {
				t.Fatal(err)
			}
			at, exact := p.changed(&xdsserver.Verdict{
				Cluster: "east", Slice: "web-1", Addr: netip.AddrPortFrom(addr, 8080), Version: endpoint.Version{Generation: 1, Resource: 9}, Observed: second(9),
			})
			if !at.Equal(tt.want) || exact != tt.exact {
				t.Errorf("got %s (%t), want %s (%t)", at, exact, tt.want, tt.exact)
			}
		})
	}
	failed := errors.New("no permission")
	p, err := readPast(t.Context(), func(context.Context, bus.HistoryQuery, func(bus.HistoryEntry) error) error { return failed }, bus.HistoryQuery{})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if at, exact := p.changed(&xdsserver.Verdict{Observed: second(9)}); !at.Equal(second(9)) || exact {
		t.Errorf("without a history: got %s (%t)", at, exact)
	}
}

func TestAnExplanationReadsLikeATable(t *testing.T) {
	utc := time.Local
	time.Local = time.UTC
	defer func() { time.Local = utc }()
	one := sliceAt("east", "shop", "web-1", 7, podAt("10.0.0.1", usable, "a"), podAt("10.0.0.2", endpoint.Serving|endpoint.Terminating, "b"))
	one.TerminatingPolicy, one.FailoverPolicy = "drain", "near"
	two := sliceAt("east", "shop", "web-2", 8, podAt("10.0.0.1", usable, "a"))
	six := sliceAt("east", "shop", "web-6", 6, podAt("fd00::1", usable, "a"))
	west := sliceAt("west", "shop", "web-1", 3, endpoint.Endpoint{Addr: netip.MustParseAddr("10.1.0.1"), Conditions: usable, Zone: "z1", Node: "n1"})
	west.FailoverPolicy, west.Ports = "none", []endpoint.Port{{Name: "http", Number: 8080}, {Name: "web", Number: 80}}
	two.TerminatingPolicy, two.FailoverPolicy = "drain", "near"
	svc := xdsserver.Service{Regions: map[string]string{"east": "eu"}, Failover: "any", States: []endpoint.State{
		{Key: one.Key, Slices: []endpoint.Slice{one, two, six}}, {Key: west.Key, Slices: []endpoint.Slice{west}},
	}}
	name := xdsserver.Name{Service: "web", Namespace: "shop"}
	e, err := newExplanation(svc, xdsserver.View{Cluster: "east"}, name, "", past{})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := e.printText(&got); err != nil {
		t.Fatal(err)
	}
	want := `Service web.shop, as a client of cluster east sees it
Policy slicecast.io/terminating: drain of cluster east (slice web-2 at 1/8): in force
Policy slicecast.io/failover: near of cluster east (slice web-2 at 1/8): unknown value, ignored
Policy slicecast.io/failover: none of cluster west (slice web-1 at 1/3): does not decide for this client

web.shop:http: 4 of 5 used
CLUSTER   ADDRESS          USED             RULE   CONDITIONS   ZONE   NODE   POD   SLICE   VERSION   CHANGED                          WHY
east      10.0.0.1:8080    out              D12    rs-          -      -      a     web-1   1/7       before 2026-01-02 03:04:07.000   another endpoint speaks for this address and port: a of slice east/web-2 at 1/8 (10.0.0.1)
east      10.0.0.1:8080    in p0            R3     rs-          -      -      a     web-2   1/8       before 2026-01-02 03:04:08.000   ready endpoints are used
east      10.0.0.2:8080    in p0 draining   D11    -st          -      -      b     web-1   1/7       before 2026-01-02 03:04:07.000   it terminates, and the service asks to finish what it has (slicecast.io/terminating: drain)
east      [fd00::1]:8080   in p0            R3     rs-          -      -      a     web-6   1/6       before 2026-01-02 03:04:06.000   ready endpoints are used; sent with 10.0.0.1:8080
west      10.1.0.1:8080    in p1            R3     rs-          z1     n1     -     web-1   1/3       before 2026-01-02 03:04:03.000   ready endpoints are used

web.shop:web: 1 of 1 used
CLUSTER   ADDRESS       USED    RULE   CONDITIONS   ZONE   NODE   POD   SLICE   VERSION   CHANGED                          WHY
west      10.1.0.1:80   in p0   R3     rs-          z1     n1     -     web-1   1/3       before 2026-01-02 03:04:03.000   ready endpoints are used
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	name.Cluster = "moon"
	if e, err = newExplanation(svc, xdsserver.View{}, name, "", past{}); err != nil || len(e.Ports) != 0 {
		t.Errorf("nothing is there: got %+v, %v", e, err)
	}
	got.Reset()
	if err := e.printText(&got); err != nil || !strings.Contains(got.String(), "no EndpointSlice with a port") {
		t.Errorf("got %q, %v", got.String(), err)
	}
	if _, err := newExplanation(svc, xdsserver.View{}, name, "http", past{}); err == nil || fmt.Sprint(err) != "service web.shop.moon has no port http; it has none" {
		t.Errorf("got %v", err)
	}
}
