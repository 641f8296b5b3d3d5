package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // the types inside the listener of --demo
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // the type inside the xds cluster
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
)

func bootstrapOf(t *testing.T, args ...string) *bootstrapv3.Bootstrap {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), append([]string{"bootstrap", "envoy"}, args...), &out, &errs); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	text, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(text, b); err != nil {
		t.Fatalf("Envoy would refuse it: %v\n%s", err, out.String())
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatalf("Envoy would refuse it: %v", err)
	}
	return b
}

func TestBootstrapIsOneThatEnvoyTakes(t *testing.T) {
	for _, output := range []string{"yaml", "json"} {
		b := bootstrapOf(t, "-o", output, "--xds", "127.0.0.1:18000", "--xds", "xds.example:443", "--node-cluster", "east", "--node-zone", "z1")
		if got := b.GetNode().GetMetadata().GetFields()["slicecast.io/cluster"].GetStringValue(); got != "east" {
			t.Errorf("cluster of the node: got %q", got)
		}
		if got := b.GetNode().GetLocality().GetZone(); got != "z1" {
			t.Errorf("zone of the node: got %q", got)
		}
		replicas := b.GetStaticResources().GetClusters()[0].GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()
		if len(replicas) != 2 {
			t.Errorf("got %d xDS replicas, want 2", len(replicas))
		}
	}
}

func TestABootstrapOfADemoListensWhereItIsTold(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want uint32
	}{{nil, 0}, {[]string{"--demo"}, 10000}, {[]string{"--demo=127.0.0.1:9"}, 9}} {
		var port uint32
		for _, l := range bootstrapOf(t, tt.args...).GetStaticResources().GetListeners() {
			port = l.GetAddress().GetSocketAddress().GetPortValue()
		}
		if port != tt.want {
			t.Errorf("%q: a listener at port %d, want %d", tt.args, port, tt.want)
		}
	}
}

func TestEachBootstrapHasANodeIDOfItsOwn(t *testing.T) {
	if a, b := bootstrapOf(t).GetNode().GetId(), bootstrapOf(t).GetNode().GetId(); a == b {
		t.Errorf("two bootstraps share the node id %q", a)
	}
	if got := bootstrapOf(t, "--node-id", "mine").GetNode().GetId(); got != "mine" {
		t.Errorf("got node id %q, want mine", got)
	}
}

func TestABootstrapOfEnvoyForTLSChecksTheServerAndShowsTheClient(t *testing.T) {
	tests := []struct {
		name string
		want tlsv3.SubjectAltNameMatcher_SanType
		sni  string
	}{
		{"xds.example", tlsv3.SubjectAltNameMatcher_DNS, "xds.example"},
		{"127.0.0.1", tlsv3.SubjectAltNameMatcher_IP_ADDRESS, ""},
		{"spiffe://example.org/xds", tlsv3.SubjectAltNameMatcher_URI, ""},
	}
	for _, tt := range tests {
		b := bootstrapOf(t, "--tls-ca", "ca.crt", "--tls-cert", "tls.crt", "--tls-key", "tls.key", "--tls-server-name", tt.name)
		socket := b.GetStaticResources().GetClusters()[0].GetTransportSocket()
		got := new(tlsv3.UpstreamTlsContext)
		if err := socket.GetTypedConfig().UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		if err := got.ValidateAll(); err != nil {
			t.Fatalf("Envoy would refuse it: %v", err)
		}
		common := got.GetCommonTlsContext()
		san := common.GetValidationContext().GetMatchTypedSubjectAltNames()[0]
		if san.GetSanType() != tt.want || san.GetMatcher().GetExact() != tt.name || got.GetSni() != tt.sni {
			t.Errorf("%s: got %v with SNI %q, want type %v and SNI %q", tt.name, san, got.GetSni(), tt.want, tt.sni)
		}
		if common.GetValidationContext().GetTrustedCa().GetFilename() != "ca.crt" || common.GetTlsCertificates()[0].GetPrivateKey().GetFilename() != "tls.key" {
			t.Errorf("%s: got %v, want the files in it", tt.name, common)
		}
	}
}

func TestABootstrapOfGRPCIsOneThatGRPCTakes(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"bootstrap", "grpc", "--xds", "a.example:18000", "--xds", "b.example:18000", "--node-cluster", "east", "--node-region", "r1", "--node-zone", "z1"}
	if code := run(t.Context(), args, &out, &errs); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	client, err := xds.NewXDSResolverWithConfigForTesting(out.Bytes())
	if err != nil {
		t.Fatalf("gRPC would refuse it: %v\n%s", err, out.String())
	}
	if client.Scheme() != "xds" {
		t.Errorf("got a resolver of %q", client.Scheme())
	}
	var got struct {
		Servers []struct {
			URI   string `json:"server_uri"`
			Creds []struct {
				Type string `json:"type"`
			} `json:"channel_creds"`
		} `json:"xds_servers"`
		Node struct {
			Metadata map[string]string `json:"metadata"`
			Locality map[string]string `json:"locality"`
		} `json:"node"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Servers) != 2 || got.Servers[1].URI != "b.example:18000" || got.Servers[0].Creds[0].Type != "insecure" ||
		got.Node.Metadata["slicecast.io/cluster"] != "east" || got.Node.Locality["zone"] != "z1" {
		t.Errorf("got %s", out.String())
	}
}

func TestABootstrapThatCannotWorkIsRefused(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"envoy --xds nowhere", "--xds"},
		{"grpc --xds :0", "--xds"},
		{"envoy --tls-cert c --tls-key k", "--tls-ca"},
		{"grpc --tls-ca a --tls-cert c", "belong together"},
		{"grpc --tls-ca a --tls-server-name n", "--tls-server-name"},
		{"grpc --ip-family ipv5", "--ip-family"},
		{"envoy --demo=nowhere", "--demo"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"bootstrap"}, strings.Fields(tt.args)...), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q, want %d and %q", tt.args, code, errs.String(), exitUsage, tt.want)
		}
	}
}
