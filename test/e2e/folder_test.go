package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// manifest is an EndpointSlice of service web.shop with ready endpoints at these addresses.
func manifest(name string, addresses ...string) string {
	text := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  namespace: shop
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports:
- {name: http, port: 8080, protocol: TCP}
endpoints:
`, name)
	for _, a := range addresses {
		text += fmt.Sprintf("- {addresses: [%q], conditions: {ready: true, serving: true, terminating: false}}\n", a)
	}
	if len(addresses) == 0 {
		text = strings.Replace(text, "endpoints:\n", "endpoints: []\n", 1)
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

// folders gives two folders of manifests and the configuration that serves both.
func folders(t *testing.T) (east, west string, cfg sandbox.SlicecastConfig) {
	t.Helper()
	dir := t.TempDir()
	east, west = filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{east, west} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(east, "web.yaml"), manifest("web-1", address(1)))
	write(t, filepath.Join(west, "web.yaml"), manifest("web-1", address(101)))
	return east, west, sandbox.SlicecastConfig{Clusters: []string{"east=dir:" + east, "west=dir:" + west}}
}

func TestAnEditOfAFileReachesDeltaAndStateOfTheWorldClients(t *testing.T) {
	east, west, cfg := folders(t)
	sb := newSandbox(t)
	if _, err := sb.StartSlicecast(within(t, time.Minute), cfg); err != nil {
		t.Fatal(err)
	}
	const both, eastOnly = "web.shop:http", "web.shop.east:http"
	for _, kind := range []string{"delta", "sotw"} {
		t.Run(kind, func(t *testing.T) {
			c := newXDSClient(t, kind, both, eastOnly, "none.shop:http")
			c.want(t, both, "p0 "+address(1)+":8080", "p0 "+address(101)+":8080")
			c.want(t, eastOnly, "p0 "+address(1)+":8080")
			c.want(t, "none.shop:http")

			write(t, filepath.Join(east, "web.yaml"), manifest("web-1", address(1), address(2)))
			c.want(t, both, "p0 "+address(1)+":8080", "p0 "+address(101)+":8080", "p0 "+address(2)+":8080")
			c.want(t, eastOnly, "p0 "+address(1)+":8080", "p0 "+address(2)+":8080")

			write(t, filepath.Join(west, "more.yaml"), manifest("web-2", address(102)))
			c.want(t, both, "p0 "+address(1)+":8080", "p0 "+address(101)+":8080", "p0 "+address(102)+":8080", "p0 "+address(2)+":8080")
			if err := os.Remove(filepath.Join(west, "more.yaml")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(east, "web.yaml"), manifest("web-1", address(1)))
			c.want(t, both, "p0 "+address(1)+":8080", "p0 "+address(101)+":8080")
		})
	}
}

func TestAMalformedFileTakesNothingAway(t *testing.T) {
	east, _, cfg := folders(t)
	sb := newSandbox(t)
	if _, err := sb.StartSlicecast(within(t, time.Minute), cfg); err != nil {
		t.Fatal(err)
	}
	c := newXDSClient(t, "delta", "web.shop.east:http")
	c.want(t, "web.shop.east:http", "p0 "+address(1)+":8080")
	write(t, filepath.Join(east, "web.yaml"), "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: [\n")
	write(t, filepath.Join(east, "other.yaml"), manifest("web-2", address(3)))
	c.want(t, "web.shop.east:http", "p0 "+address(1)+":8080", "p0 "+address(3)+":8080")
	if logs := sb.Logs(200); !strings.Contains(logs, "web.yaml") {
		t.Errorf("the log does not name the file:\n%s", logs)
	}
	write(t, filepath.Join(east, "web.yaml"), manifest("web-1", address(4)))
	c.want(t, "web.shop.east:http", "p0 "+address(3)+":8080", "p0 "+address(4)+":8080")
}
