package main

import (
	"bytes"
	"context"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // the type inside the xds cluster
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

func TestEachBootstrapHasANodeIDOfItsOwn(t *testing.T) {
	if a, b := bootstrapOf(t).GetNode().GetId(), bootstrapOf(t).GetNode().GetId(); a == b {
		t.Errorf("two bootstraps share the node id %q", a)
	}
	if got := bootstrapOf(t, "--node-id", "mine").GetNode().GetId(); got != "mine" {
		t.Errorf("got node id %q, want mine", got)
	}
}
