package bus_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func embedded(t *testing.T, cfg bus.EmbeddedConfig) *bus.Embedded {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	cfg.Log = quiet
	e, err := bus.StartEmbedded(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

func TestAnEmbeddedServerKeepsItsContentOverARestart(t *testing.T) {
	dir := t.TempDir()
	var seq uint64
	t.Run("first process", func(t *testing.T) {
		b := connect(t, bus.Config{Server: embedded(t, bus.EmbeddedConfig{DataDir: dir})})
		r, err := b.Events().Put(t.Context(), bustest.Event("ca", "shop", "shop-a", 1, 1), 0)
		must(t, err)
		seq = r.Seq
	})
	b := connect(t, bus.Config{Server: embedded(t, bus.EmbeddedConfig{DataDir: dir})})
	n, err := b.Events().Get(t.Context(), bustest.Event("ca", "shop", "shop-a", 1, 1).Slice.Key, "shop-a")
	if err != nil || n.Kind != ledger.Changed || n.Seq != seq {
		t.Errorf("got %+v, %v, want the event at %d", n, err, seq)
	}
}

func TestOneProcessUsesADataDirectory(t *testing.T) {
	dir := t.TempDir()
	first := embedded(t, bus.EmbeddedConfig{DataDir: dir})
	_, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: dir, Log: quiet})
	if !errors.Is(err, bus.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v, want ErrLocked with %s and %d", err, dir, os.Getpid())
	}
	if first.URL() != "" {
		t.Errorf("it listens on %s unasked", first.URL())
	}
}

func TestAnEmbeddedServerRefusesAConfigWithoutPlaceOrLog(t *testing.T) {
	for _, cfg := range [...]bus.EmbeddedConfig{
		{Log: quiet}, {DataDir: t.TempDir()}, {DataDir: t.TempDir(), Log: quiet, Listen: "4222"}, {DataDir: t.TempDir(), Log: quiet, Listen: ":x"},
		{DataDir: t.TempDir(), Log: quiet, Listen: ":0", CertFile: "x"}, {DataDir: t.TempDir(), Log: quiet, Listen: ":0", CertFile: "x", KeyFile: "y"},
		{DataDir: t.TempDir(), Log: quiet, Listen: ":0", CAFile: "x"}, {DataDir: "/dev/null/x", Log: quiet},
	} {
		if e, err := bus.StartEmbedded(cfg); err == nil {
			e.Shutdown()
			t.Errorf("%+v: got no error", cfg)
		}
	}
}

func TestAListenerAsksForThePasswordThatItMade(t *testing.T) {
	dir := t.TempDir()
	e := embedded(t, bus.EmbeddedConfig{DataDir: dir, Listen: ":0"})
	if host, _, err := net.SplitHostPort(strings.TrimPrefix(e.URL(), "nats://")); err != nil || host != "127.0.0.1" {
		t.Errorf("it listens on %s, want loopback", e.URL())
	}
	file := filepath.Join(dir, "bus-password")
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the password is %o", info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	must(t, err)
	connect(t, bus.Config{Server: e}) // In the same process it is known.
	if nc, err := nats.Connect(e.URL()); !errors.Is(err, nats.ErrAuthorization) {
		if err == nil {
			nc.Close()
		}
		t.Errorf("without a password: got %v, want it refused", err)
	}
	b := connect(t, bus.Config{URLs: []string{e.URL()}, User: "slicecast", Password: strings.TrimSpace(string(text))})
	if !b.Connected() {
		t.Error("not connected with the password")
	}
}

func TestAListenerForEverybodyIsOnlyOnDemand(t *testing.T) {
	e := embedded(t, bus.EmbeddedConfig{Listen: "127.0.0.1:0", AllowAnonymous: true})
	if !connect(t, bus.Config{URLs: []string{e.URL()}}).Connected() {
		t.Error("not connected")
	}
}

func TestAListenerWithTLSChecksBothSides(t *testing.T) {
	f := newAuthority(t, "one").issue(t, files(t), time.Now().Add(time.Hour))
	e := embedded(t, bus.EmbeddedConfig{Listen: ":0", CertFile: f.cert, KeyFile: f.key, CAFile: f.ca})
	if b := connect(t, bus.Config{URLs: []string{e.URL()}, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key}); !b.Connected() {
		t.Error("not connected with a certificate")
	}
	if b := connect(t, bus.Config{URLs: []string{e.URL()}, CAFile: f.ca}); b.Connected() {
		t.Error("connected without a certificate")
	}
	if b := connect(t, bus.Config{Server: e}); !b.Connected() {
		t.Error("not connected in the same process")
	}
}

// All addresses of the machine can be reached by others, so nothing there is open unless somebody has said so.
func TestAListenerOnAllAddressesIsGuardedUnlessToldOtherwise(t *testing.T) {
	f := newAuthority(t, "one").issue(t, files(t), time.Now().Add(time.Hour))
	for name, tt := range map[string]struct {
		server bus.EmbeddedConfig
		client bus.Config
	}{
		"a password": {bus.EmbeddedConfig{Password: "secret"}, bus.Config{User: "slicecast", Password: "secret"}},
		"TLS and a password": {
			bus.EmbeddedConfig{CertFile: f.cert, KeyFile: f.key, User: "me", Password: "secret"},
			bus.Config{User: "me", Password: "secret", CAFile: f.ca},
		},
		"certificates of both": {
			bus.EmbeddedConfig{CertFile: f.cert, KeyFile: f.key, CAFile: f.ca},
			bus.Config{CAFile: f.ca, CertFile: f.cert, KeyFile: f.key},
		},
		"told otherwise": {bus.EmbeddedConfig{AllowAnonymous: true}, bus.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			log, text := logger()
			tt.server.Listen, tt.server.DataDir, tt.server.Log = "0.0.0.0:0", t.TempDir(), log
			e, err := bus.StartEmbedded(tt.server)
			must(t, err)
			t.Cleanup(e.Shutdown)
			_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(e.URL(), "nats://"), "tls://"))
			must(t, err)
			url := []string{"nats://127.0.0.1:" + port}
			tt.client.URLs = url
			if b := connect(t, tt.client); !b.Connected() {
				t.Error("not connected with what it asks for")
			}
			if b := connect(t, bus.Config{URLs: url, CAFile: tt.client.CAFile}); b.Connected() != tt.server.AllowAnonymous {
				t.Errorf("connected with nothing to show: %v", b.Connected())
			}
			want := 0
			if tt.server.AllowAnonymous {
				want = 1
			}
			if n := text.count("bus listener lets everybody in"); n != want {
				t.Errorf("%d warnings of an open listener, want %d", n, want)
			}
		})
	}
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	urls := []string{"nats://127.0.0.1:1"}
	for name, cfg := range map[string]bus.Config{
		"no bus":         {},
		"two buses":      {URLs: urls, Server: embedded(t, bus.EmbeddedConfig{})},
		"half a pair":    {URLs: urls, CertFile: "x"},
		"two identities": {URLs: urls, CredsFile: "x", User: "y"},
		"two passwords":  {URLs: urls, Password: "x", PasswordFile: "y"},
		"no password":    {URLs: urls, User: "x", PasswordFile: "/none"},
		"too many":       {URLs: urls, Replicas: 6},
		"no such seed":   {URLs: urls, NkeyFile: "/none"},
		"no such creds":  {URLs: urls, CredsFile: "/none"},
		"no such CA":     {URLs: urls, CAFile: "/none"},
		"no url":         {URLs: []string{"://"}},
		"a short claim":  {URLs: urls, ClaimTTL: 1},
	} {
		if b, err := bus.Connect(t.Context(), fill(t, cfg)); err == nil {
			b.Close()
			t.Errorf("%s: got no error", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %q", name, err)
		}
	}
	if _, err := bus.Connect(t.Context(), bus.Config{URLs: urls}); err == nil {
		t.Error("no name: got no error")
	}
	if _, err := bus.Connect(t.Context(), bus.Config{Name: "x", URLs: urls}); err == nil {
		t.Error("no log: got no error")
	}
}

// A lock must not outlive a process that is killed. The test runs itself as that process.
func TestAKilledProcessLeavesNoLock(t *testing.T) {
	if dir := os.Getenv("BUS_TEST_HOLD"); dir != "" {
		if _, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: dir, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("held\n"); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledProcessLeavesNoLock$")
	cmd.Env = append(os.Environ(), "BUS_TEST_HOLD="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := out.Read(make([]byte, 4)); err != nil {
		t.Fatalf("the other process did not start: %v", err)
	}
	if _, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: dir, Log: quiet}); !errors.Is(err, bus.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("got %v, want ErrLocked by %d", err, cmd.Process.Pid)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	embedded(t, bus.EmbeddedConfig{DataDir: dir})
}
