package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is a buffer that one goroutine writes while another reads.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

const webManifest = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.0.1], conditions: {ready: CONDITION}, targetRef: {kind: Pod, name: web-a, uid: u1}}
`

func writeManifest(t *testing.T, dir, condition string) {
	t.Helper()
	hidden, final := filepath.Join(dir, ".web.yaml"), filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(hidden, []byte(strings.Replace(webManifest, "CONDITION", condition, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, final); err != nil {
		t.Fatal(err)
	}
}

// standalone runs one on a folder with one service, and gives the flags that reach its bus.
func standalone(t *testing.T) (folder string, busArgs []string) {
	t.Helper()
	dir := t.TempDir()
	folder, data, bus := filepath.Join(dir, "manifests"), filepath.Join(dir, "data"), freeAddress(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	writeManifest(t, folder, "true")
	ctx, cancel := context.WithCancel(context.Background())
	var errs output
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{
			"standalone", "--cluster", "east=dir:" + folder + ",region=eu", "--data-dir", data, "--bus-listen", bus,
			"--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--drain-listen", "127.0.0.1:0",
		}, &errs, &errs)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("standalone: exit code %d:\n%s", code, errs.String())
		}
	})
	busArgs = []string{"--nats", "nats://" + bus, "--nats-password-file", filepath.Join(data, "bus-password")}
	until(t, "the bus to hold the service", func() bool {
		return strings.Contains(errs.String(), "serving xDS") && strings.Contains(command(t, busArgs, "get", "endpoints"), "10.244.0.1")
	})
	return folder, busArgs
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// command runs a command that ends by itself and gives what it wrote, errors included.
func command(t *testing.T, busArgs []string, args ...string) string {
	t.Helper()
	var out output
	run(t.Context(), append(args, busArgs...), &out, &out)
	return out.String()
}

func TestTheCommandsShowWhatAStandaloneServes(t *testing.T) {
	folder, bus := standalone(t)

	var rows []map[string]any
	if err := json.Unmarshal([]byte(command(t, bus, "get", "endpoints", "web.shop.east", "-o", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0]["address"] != "10.244.0.1" || rows[0]["ready"] != true || rows[0]["pod"] != "web-a" {
		t.Errorf("get endpoints: got %v", rows)
	}
	if got := command(t, bus, "get", "endpoints", "other.shop", "-o", "json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("get endpoints of a service that is not there: got %q", got)
	}
	if got := strings.Fields(command(t, bus, "cluster", "list")); len(got) < 12 || strings.Join(got[6:11], " ") != "east dir 1 eu hold" || got[12] != "all" {
		t.Errorf("cluster list: got %q", got)
	}
	testEvents(t, folder, bus)
	testAdopt(t, bus)
	testForget(t, bus)
}

func testEvents(t *testing.T, folder string, bus []string) {
	ctx, cancel := context.WithCancel(t.Context())
	var text, lines output
	var running sync.WaitGroup
	running.Go(func() { run(ctx, append([]string{"events", "--current"}, bus...), &text, &text) })
	running.Go(func() {
		run(ctx, append([]string{"events", "-o", "json", "--service", "web", "--current"}, bus...), &lines, &lines)
	})
	until(t, "the current events", func() bool {
		return strings.Contains(text.String(), "10.244.0.1 absent->rs-") && strings.Contains(lines.String(), "\n")
	})
	writeManifest(t, folder, "false")
	until(t, "the event of the edit", func() bool { return strings.Contains(text.String(), "10.244.0.1 rs-->-s-") })
	until(t, "the event of the edit as JSON", func() bool { return strings.Count(lines.String(), "\n") == 2 })
	cancel()
	running.Wait()
	var last jsonEvent
	all := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &last); err != nil {
		t.Fatal(err)
	}
	want := jsonTransition{"10.244.0.1", "rs-", "-s-"}
	if last.Service != "web" || last.Previous == "" || len(last.Transitions) != 1 || last.Transitions[0] != want {
		t.Errorf("events -o json: got %+v", last)
	}
}

func testAdopt(t *testing.T, bus []string) {
	if got := command(t, bus, "cluster", "adopt", "west", "--uid", "x"); !strings.Contains(got, "knows no cluster west") {
		t.Errorf("adopt of an unknown cluster: got %q", got)
	}
	if got := command(t, bus, "cluster", "adopt", "east", "--uid", "dir"); !strings.Contains(got, "already has uid dir") {
		t.Errorf("adopt of the same identity: got %q", got)
	}
	if got := command(t, bus, "cluster", "adopt", "east", "--uid", "other"); !strings.Contains(got, "generation 2") {
		t.Errorf("adopt: got %q", got)
	}
	if got := command(t, bus, "cluster", "list"); !strings.Contains(got, "other") {
		t.Errorf("cluster list after adopt: got %q", got)
	}
}

// testForget removes the cluster, whose watcher is of another identity by now.
func testForget(t *testing.T, bus []string) {
	if got := command(t, bus, "cluster", "forget", "west"); !strings.Contains(got, "knows no cluster west") {
		t.Errorf("forget an unknown cluster: got %q", got)
	}
	if got := command(t, bus, "cluster", "adopt", "east"); !strings.Contains(got, "uid dir, generation 3") {
		t.Errorf("adopt what the waiting watcher sees: got %q", got)
	}
	until(t, "the watcher to be at work again", func() bool {
		return strings.Contains(command(t, bus, "cluster", "list"), "folder=")
	})
	if got := command(t, bus, "cluster", "forget", "east"); !strings.Contains(got, "end it first") {
		t.Errorf("forget a cluster that is watched: got %q", got)
	}
	if got := command(t, bus, "cluster", "adopt", "east", "--uid", "other"); !strings.Contains(got, "generation 4") {
		t.Errorf("adopt: got %q", got)
	}
	if got := command(t, bus, "cluster", "forget", "east"); !strings.Contains(got, "1 slices removed, generation 5") {
		t.Errorf("forget: got %q", got)
	}
	until(t, "no endpoint to be left", func() bool {
		return strings.TrimSpace(command(t, bus, "get", "endpoints", "web.shop", "-o", "json")) == "[]"
	})
	if got := command(t, bus, "cluster", "forget", "east"); !strings.Contains(got, "0 slices removed, generation 6") {
		t.Errorf("forget again: got %q", got)
	}
}

func TestAMissingBusIsNamed(t *testing.T) {
	address := "nats://" + freeAddress(t)
	if got := command(t, []string{"--nats", address}, "get", "endpoints"); !strings.Contains(got, "no NATS server answers at "+address) {
		t.Errorf("got %q", got)
	}
}
