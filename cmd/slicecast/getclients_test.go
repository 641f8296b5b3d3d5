package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicecast/slicecast/xdsserver"
)

const assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// rejecting opens a stream to an xDS server, asks for two names, and rejects the answer.
func rejecting(t *testing.T, address, node string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); _ = conn.Close() })
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *discoveryv3.DeltaDiscoveryRequest) {
		m.TypeUrl, m.Node = assignmentType, &corev3.Node{Id: node, Locality: &corev3.Locality{Zone: "eu-1a"}}
		if err := g.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"web.shop:http", "nothing.shop"}})
	m, err := g.Recv()
	if err != nil {
		t.Fatal(err)
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: m.Nonce, ErrorDetail: &status.Status{Message: "no such\nlocality"}})
}

func TestGetClientsShowsTheStreamsOfEveryReplica(t *testing.T) {
	_, bus := standalone(t)
	addresses := []string{xdsReplica(t, bus), xdsReplica(t, bus)}
	for i, a := range addresses {
		rejecting(t, a, []string{"envoy-a", "envoy-b"}[i])
	}
	var rows []clientRow
	until(t, "both clients to have rejected", func() bool {
		rows = nil
		text := command(t, bus, "get", "clients", "-o", "json", "--names")
		return json.Unmarshal([]byte(text), &rows) == nil && len(rows) == 2 && rows[0].Types[0].NACKs == 1 && rows[1].Types[0].NACKs == 1
	})
	if rows[0].Node != "envoy-a" || rows[1].Node != "envoy-b" || rows[0].Zone != "eu-1a" || !strings.HasPrefix(rows[0].Replica, "xds/") {
		t.Errorf("got %+v", rows)
	}
	if got := rows[0].Types[0]; got.Rejected != 2 || got.Unresolved != 1 || len(got.Subscribed) != 2 || got.Error != "no such\nlocality" {
		t.Errorf("got %+v", got)
	}
	text := command(t, bus, "get", "clients", "--node", "envoy-b")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "envoy-b ") || !strings.Contains(lines[1], "1 (nothing.shop)") || !strings.HasSuffix(lines[1], "no such...") {
		t.Errorf("got\n%s", text)
	}
	if got := command(t, bus, "get", "clients", "-o", "xml"); !strings.Contains(got, "neither text nor json") {
		t.Errorf("got %q", got)
	}
}

// xdsReplica runs an xDS role on a bus and gives its address.
func xdsReplica(t *testing.T, busArgs []string) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var log output
	ended := make(chan int, 1)
	address = freeAddress(t)
	go func() {
		ended <- run(ctx, append([]string{"xds", "--xds-listen", address, "--http-listen", "127.0.0.1:0"}, busArgs...), &log, &log)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("xds: exit code %d:\n%s", code, log.String())
		}
	})
	until(t, "the xDS replica to listen", func() bool { return strings.Contains(log.String(), "serving xDS") })
	return address
}

func TestTextOfOthersFitsOneCell(t *testing.T) {
	for text, want := range map[string]string{
		"": "-", "a\tb\x1b[0m": "a b [0m", "one\ntwo": "one...", strings.Repeat("ä", 80): strings.Repeat("ä", 50) + "...",
	} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q) = %q, want %q", text, got, want)
		}
	}
	at := time.Unix(9, 0)
	got := cellsOf(xdsserver.Client{Types: []xdsserver.ClientType{
		{Type: "cds", Wildcard: true, Names: 3, Behind: 1, NACKs: 2, Error: "new", ErrorAt: &at},
		{Type: "eds", Names: 2, Rejected: 1, Unacknowledged: 4},
	}})
	if want := (cells{"cds:3*,eds:2", "0", "new", 2, 4, 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
