package e2e

import (
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/test/sandbox"
)

const natsAddress = "127.0.0.1:4222"

// startNATS starts a nats-server with a store of its own; it is no part of any role.
func startNATS(t *testing.T, dir string) *bus.Embedded {
	t.Helper()
	server, err := bus.StartEmbedded(bus.EmbeddedConfig{
		DataDir: dir, Listen: natsAddress, AllowAnonymous: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// role is one slicecast process against the external NATS.
type role struct {
	path, log string
	args      []string
	cmd       *exec.Cmd
}

func newRole(t *testing.T, sb *sandbox.Sandbox, name string, args ...string) *role {
	t.Helper()
	path, err := sb.Tool("bin/slicecast")
	if err != nil {
		t.Fatal(err)
	}
	r := &role{path: path, log: filepath.Join(sb.Dir(), name+".log"), args: append([]string{name, "--nats", "nats://" + natsAddress}, args...)}
	r.start(t)
	t.Cleanup(func() {
		if err := r.end(syscall.SIGTERM); err != nil {
			t.Errorf("%s ends with %v", name, err)
		}
	})
	return r
}

func (r *role) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r.cmd = exec.Command(r.path, r.args...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (r *role) end(s syscall.Signal) error {
	if err := r.cmd.Process.Signal(s); err != nil {
		return err
	}
	return r.cmd.Wait()
}

// restart is a crash: SIGKILL, then a new process.
func (r *role) restart(t *testing.T) {
	t.Helper()
	_ = r.end(syscall.SIGKILL)
	r.start(t)
}

func waitReady(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s is not ready", address)
}

// Each role a process, on a NATS of its own: each is killed in turn, then NATS is restarted, then its store is wiped
// under all of them. A client loses nothing and gets every change.
func TestRolesOnAnExternalNATSSurviveCrashesAndAWipedStore(t *testing.T) {
	sb := newSandbox(t)
	dir, store := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, manifest("web-1", address(1)))
	nats := startNATS(t, store)
	defer func() { nats.Shutdown() }()

	watcher := newRole(t, sb, "watcher", "--cluster", "east=dir:"+dir, "--http-listen", "127.0.0.1:18091")
	projector := newRole(t, sb, "projector", "--http-listen", "127.0.0.1:18092")
	xds := newRole(t, sb, "xds", "--expect-cluster", "east", "--http-listen", "127.0.0.1:18093")
	waitReady(t, "127.0.0.1:18093")
	const name = "web.shop:http"
	next := byte(1)
	change := func(c *xdsClient, what string) {
		t.Helper()
		next++
		write(t, file, manifest("web-1", address(1), address(next)))
		c.wantWithin(t, time.Minute, name, "p0 "+address(1)+":8080", "p0 "+address(next)+":8080")
		if t.Failed() {
			t.Fatalf("after %s the change did not arrive", what)
		}
	}
	client := newXDSClient(t, "delta", name)
	client.want(t, name, "p0 "+address(1)+":8080")
	change(client, "the start")
	watcher.restart(t)
	change(client, "a crash of the watcher")
	projector.restart(t)
	change(client, "a crash of the projector")
	nats.Shutdown()
	nats = startNATS(t, store)
	change(client, "a restart of NATS")
	nats.Shutdown()
	nats = startNATS(t, t.TempDir())
	change(client, "a wiped store")
	client.wantNeverEmpty(t, name)

	// Its stream ends with the xDS process; a new client gets all from the new one.
	xds.restart(t)
	waitReady(t, "127.0.0.1:18093")
	change(newXDSClient(t, "sotw", name), "a crash of the xDS server")
}
