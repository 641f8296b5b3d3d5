package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// What `slicecast bootstrap envoy --demo` prints is all that an Envoy needs: its clusters come from slicecast, and a request
// goes to the service port that its host names.
func TestAPrintedBootstrapServesEveryService(t *testing.T) {
	sb := newSandbox(t)
	cp, err := sandbox.NewFiles(within(t, 2*time.Minute), sb, cluster, sandbox.Workload{})
	if err != nil {
		t.Fatal(err)
	}
	startSlicecast(t, sb, cp)
	for i, binary := range []string{".tools/envoy", ".tools/envoy-old"} {
		for _, protocol := range []string{"delta", "sotw"} {
			t.Run(binary+" "+protocol, func(t *testing.T) {
				path, err := sb.Tool("bin/slicecast")
				if err != nil {
					t.Fatal(err)
				}
				args := []string{"bootstrap", "envoy", "--demo", "--node-cluster", cluster, "-o", "json", fmt.Sprintf("--sotw=%t", protocol == "sotw")}
				config, err := exec.CommandContext(within(t, 10*time.Second), path, args...).Output()
				if err != nil {
					t.Fatal(err)
				}
				envoy, err := sb.StartEnvoy(within(t, time.Minute), sandbox.EnvoyConfig{
					NodeID: fmt.Sprintf("envoy-%d-%s", i, protocol), Binary: binary, Bootstrap: config,
				})
				if err != nil {
					t.Fatal(err)
				}
				if status, pod := request(t, "web.shop:http"); status != http.StatusOK || pod == "" {
					t.Errorf("web.shop:http: status %d of pod %q, want 200 of one", status, pod)
				}
				if status, pod := request(t, "none.shop:http"); status != http.StatusServiceUnavailable || pod != "" {
					t.Errorf("none.shop:http: status %d of pod %q, want 503 of none", status, pod)
				}
				if err := envoy.Stop(5 * time.Second); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// request sends one request for a host to the printed bootstrap's listener, and gives the pod that answered.
func request(t *testing.T, host string) (status int, pod string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, 10*time.Second), http.MethodGet, "http://127.0.0.1:10000/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Close = host, true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode, answer.Header.Get(sandbox.PodHeader)
}
