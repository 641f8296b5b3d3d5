package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

func newFiles(t *testing.T, w Workload) *Files {
	t.Helper()
	f, err := NewFiles(within(t, time.Minute), newSandbox(t), "demo", w)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestConditionsAreThoseOfTheEndpointSliceController(t *testing.T) {
	for _, tc := range []struct {
		ready, terminating bool
		want               string
	}{
		{false, false, "ready=false serving=false terminating=false"},
		{true, false, "ready=true serving=true terminating=false"},
		{true, true, "ready=false serving=true terminating=true"},
		{false, true, "ready=false serving=false terminating=true"},
	} {
		w := Workload{}.withDefaults()
		p := slicePod{name: "p", uid: "u", ip: netip.MustParseAddr("10.244.0.9"), ready: tc.ready, terminating: tc.terminating}
		e := slicesOf(w, []slicePod{p}, 1, time.Now())[0].Endpoints[0]
		got := fmt.Sprintf("ready=%v serving=%v terminating=%v", *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
		if got != tc.want {
			t.Errorf("pod ready=%v terminating=%v: %s, want %s", tc.ready, tc.terminating, got, tc.want)
		}
		if ref := e.TargetRef; ref.Kind != "Pod" || ref.Name != "p" || ref.UID != "u" || ref.Namespace != w.Namespace {
			t.Errorf("the target is %v", ref)
		}
	}
}

func TestUsableEndpointsFallBackToServingOnesThatTerminate(t *testing.T) {
	at := netip.MustParseAddr
	pods := []slicePod{
		{ip: at("10.244.0.3"), ready: true, terminating: true}, {ip: at("10.244.0.4"), terminating: true}, {ip: at("10.244.0.5")},
	}
	w := Workload{}.withDefaults()
	check := func(want ...string) {
		t.Helper()
		got := fmt.Sprint(UsableEndpoints(slicesOf(w, pods, 1, time.Now()), PortName))
		if got != fmt.Sprint(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	check("10.244.0.3:8080")
	pods = append(pods, slicePod{ip: at("10.244.0.6"), ready: true})
	check("10.244.0.6:8080")
}

// readManifests is what a consumer of the folder sees.
func readManifests(t *testing.T, f *Files) []discoveryv1.EndpointSlice {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(strings.TrimPrefix(f.Source(), "dir:"), "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []discoveryv1.EndpointSlice
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s discoveryv1.EndpointSlice
		if err := yaml.UnmarshalStrict(data, &s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, s)
	}
	return all
}

func TestTheManifestsAreTheSlicesAndTheirPodsServe(t *testing.T) {
	f := newFiles(t, Workload{Template: Template{ReadyAfter: time.Millisecond}})
	want, err := f.Slices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readManifests(t, f)); diff != "" {
		t.Errorf("slices (-) and manifests (+) differ:\n%s", diff)
	}
	if s := want[0]; s.APIVersion != "discovery.k8s.io/v1" || s.Kind != "EndpointSlice" || s.Labels[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("the slice is %+v", s)
	}
	usable := UsableEndpoints(want, PortName)
	if len(usable) != 3 {
		t.Fatalf("usable endpoints: %v, want 3", usable)
	}
	for _, at := range usable {
		for _, http2 := range []bool{false, true} {
			if r := drive(t, DriverConfig{Target: at, Rate: 50, HTTP2: http2}, 200*time.Millisecond); r.Failed() > 0 || len(r.ByPod) != 1 {
				t.Errorf("%v over http2=%v: %v, by pod %v", at, http2, r, r.ByPod)
			}
		}
	}
}

func TestPreStopComesBeforeSIGTERMAndStubbornPodsAreKilledAfterTheGrace(t *testing.T) {
	f := newFiles(t, Workload{Replicas: 1, Template: Template{
		ReadyAfter: time.Millisecond, App: Stubborn, PreStop: SleepPreStop, Sleep: 300 * time.Millisecond, Grace: time.Second,
	}})
	if err := f.RolloutRestart(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	p := f.Pods()[0]
	if d, ok := p.ToSignal(); !ok || d < 300*time.Millisecond || !p.Killed || p.Gone.Sub(p.Signalled) < shortestGrace {
		t.Errorf("got %+v, want SIGTERM after 300 ms and SIGKILL 2 s later", p)
	}
}

func TestGracefulPodsFinishWhatIsInFlightAndAbruptOnesCutIt(t *testing.T) {
	for _, app := range []App{Graceful, Abrupt} {
		f := newFiles(t, Workload{Replicas: 1, Template: Template{ReadyAfter: time.Millisecond, App: app, ResponseMax: 2 * time.Second}})
		at := UsableEndpoints(readManifests(t, f), PortName)[0]
		driver, err := NewDriver(DriverConfig{Target: at, Rate: 100})
		if err != nil {
			t.Fatal(err)
		}
		sending, stop := context.WithCancel(t.Context())
		results := make(chan Result, 1)
		go func() { results <- driver.Run(sending) }()
		time.Sleep(500 * time.Millisecond)
		stop() // What is sent is still in flight; the last one may still have to be accepted.
		time.Sleep(100 * time.Millisecond)
		if err := f.Apply(within(t, 20*time.Second), Workload{Replicas: -1}); err != nil {
			t.Fatal(err)
		}
		if r := <-results; (r.Failed() == 0) != (app == Graceful) {
			t.Errorf("%s: %v", app, r)
		}
	}
}

func TestMoreThanAHundredPodsGetASecondSlice(t *testing.T) {
	d := &deployment{pods: make(map[string]*filePod)}
	for i := range 101 {
		p := &filePod{slicePod: slicePod{name: fmt.Sprint(i), ip: netip.AddrFrom4([4]byte{10, 244, 1, byte(i)})}}
		d.pods[p.name] = p
		d.place(p)
	}
	var sizes []int
	var pods []slicePod
	for _, p := range d.pods {
		pods = append(pods, p.slicePod)
	}
	for _, s := range slicesOf(Workload{}.withDefaults(), pods, d.used, time.Now()) {
		sizes = append(sizes, len(s.Endpoints))
	}
	if !slices.Equal(sizes, []int{100, 1}) {
		t.Errorf("slices of %v endpoints, want [100 1]", sizes)
	}
}
