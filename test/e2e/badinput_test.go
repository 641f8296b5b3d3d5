package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// slicecast runs the built binary until it ends and gives its exit code and what it wrote to stderr.
func slicecast(t *testing.T, sb *sandbox.Sandbox, args ...string) (code int, stderr string) {
	t.Helper()
	path, err := sb.Tool("bin/slicecast")
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd := exec.CommandContext(within(t, 30*time.Second), path, args...)
	cmd.Stderr = &errs
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=")
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), errs.String()
}

// wantRefusal checks the exit code and that one line, and no panic, names every part.
func wantRefusal(t *testing.T, sb *sandbox.Sandbox, code int, parts []string, args ...string) {
	t.Helper()
	got, stderr := slicecast(t, sb, args...)
	if got != code {
		t.Errorf("%q: exit code %d, want %d:\n%s", args, got, code, stderr)
	}
	if strings.Contains(stderr, "panic") || strings.Contains(stderr, "goroutine ") {
		t.Errorf("%q crashed:\n%s", args, stderr)
	}
	for line := range strings.Lines(stderr) {
		named := strings.HasPrefix(line, "slicecast: ")
		for _, p := range parts {
			named = named && strings.Contains(line, p)
		}
		if named {
			return
		}
	}
	t.Errorf("%q: no line names %q:\n%s", args, parts, stderr)
}

func TestBadInputGetsOneClearLine(t *testing.T) {
	sb := newSandbox(t)
	folder := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "web.yaml"), manifest("web-1", address(1)))
	source, data := "east=dir:"+folder, t.TempDir()

	wantRefusal(t, sb, 2, []string{"--nonsense"}, "standalone", "--nonsense")
	wantRefusal(t, sb, 2, []string{"--cluster", "East=dir:x"}, "standalone", "--cluster", "East=dir:x")
	wantRefusal(t, sb, 1, []string{"east", "/none/such"}, "standalone", "--data-dir", data, "--cluster", "east=kubeconfig:/none/such")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"xds-listen", "http-listen", "drain-listen"} {
		wantRefusal(t, sb, 1, []string{"--" + flag, taken.Addr().String(), "in use"},
			"standalone", "--data-dir", data, "--cluster", source, "--"+flag, taken.Addr().String())
	}

	if _, err := sb.StartSlicecast(within(t, time.Minute), sandbox.SlicecastConfig{Clusters: []string{source}, DataDir: data}); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, sb, 1, []string{data}, "standalone", "--data-dir", data, "--cluster", source,
		"--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--drain-listen", "127.0.0.1:0")
}

// A source that cannot be read: not ready, the cluster is named, and the process goes on trying.
func TestASourceThatCannotBeReadIsNamedAndRetried(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, `apiVersion: v1
kind: Config
current-context: far
contexts: [{name: far, context: {cluster: far, user: far}}]
clusters: [{name: far, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: far, user: {}}]
`)
	for name, c := range map[string]struct{ source, place string }{
		"API server": {"kubeconfig:" + kubeconfig, "127.0.0.1:1"},
		"folder":     {"dir:/none/such", "/none/such"},
	} {
		t.Run(name, func(t *testing.T) { wantRetried(t, c.source, c.place) })
	}
}

func wantRetried(t *testing.T, source, place string) {
	sb := newSandbox(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	sc, err := sb.StartSlicecast(ctx, sandbox.SlicecastConfig{Clusters: []string{"far=" + source}})
	if err == nil {
		t.Fatal("slicecast is ready without its source")
	}
	select {
	case <-sc.Done():
		t.Fatal("slicecast gave up")
	default:
	}
	answer, err := http.Get("http://" + sandbox.HTTPAddress + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var body strings.Builder
	if err := answer.Write(&body); err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body.String(), "far: not ready") {
		t.Errorf("/readyz: %s", body.String())
	}
	if logs := sb.Logs(100); !strings.Contains(logs, "cluster=far") || !strings.Contains(logs, place) {
		t.Errorf("the log does not name the cluster and the place:\n%s", logs)
	}
}
