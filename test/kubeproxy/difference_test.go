package kubeproxy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "seed of the random histories; 0 takes the clock")
	stepsFlag = flag.Int("steps", 20_000, "steps to compare")
)

// episode is the length of one history, in steps.
const episode = 250

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(klog.Logger{}) // Nowhere: kube-proxy logs every port that it leaves out.
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.StrictIPCIDRValidation) + "=false"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	debug.SetGCPercent(400) // Histories are small: collecting them more seldom costs little memory.
	os.Exit(m.Run())
}

func TestSlicecastUsesTheAddressesThatKubeProxyUses(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, %d steps", seed, *stepsFlag)
	start := time.Now()
	total, failure := run(seed, *stepsFlag)
	t.Logf("%s in %s", total.String(), time.Since(start).Round(time.Second))
	if failure != "" {
		t.Fatalf("seed %d: %s", seed, failure)
	}
	if *stepsFlag < 20_000 {
		return // Too few to meet everything.
	}
	if total.hinted == 0 || total.fallback == 0 {
		t.Error("hints or the terminating endpoints were never in force")
	}
	for i := range decisions {
		if total.differed[i] == 0 {
			t.Errorf("kube-proxy never differed by %q: an entry that nothing needs", decisions[i].name)
		}
	}
}

func TestASideThatMissedAWriteIsFound(t *testing.T) {
	w := newWorld(1)
	g := newGenerator(rand.New(rand.NewPCG(1, 1)), w.api)
	ready := g.create()
	ready[0].slice.AddressType = "IPv4"
	ready[0].slice.Ports = []discoveryv1.EndpointPort{{Name: &portNames[1], Port: new(int32(80))}}
	ready[0].slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}
	service := serviceOf(ready[0].slice)
	for _, s := range []step{{{service: g.newService(service)}}, ready} {
		if d := w.play(s); d != nil {
			t.Fatalf("both sides saw every write: %s", d)
		}
	}
	clear(w.cast.states)
	if d := w.compare(service); d == nil || len(d.want) != 1 || len(d.cast) != 0 {
		t.Errorf("slicecast has lost the only address: got %v", d)
	}
	clear(w.kube.families[v4].endpoints)
	if d := w.compare(service); d == nil {
		t.Error("both sides have lost the only address, and the rules predict it")
	}
}

func TestAHistoryThatFailsIsShrunkToWhatMatters(t *testing.T) {
	w := newWorld(1)
	g := newGenerator(rand.New(rand.NewPCG(1, 2)), w.api)
	var played []step
	var found *difference
	for n := 0; found == nil; n++ {
		s := g.next()
		if n >= 40 {
			for i := range s {
				if s[i].slice != nil && !s[i].gone {
					s[i].slice.Ports = append(s[i].slice.Ports, discoveryv1.EndpointPort{Name: new("not a label")})
				}
			}
		}
		played = append(played, s)
		found = w.play(s)
	}
	fewer, d := shrink(1, played, found)
	if len(fewer) != 1 || len(fewer[0]) != 1 || len(fewer[0][0].slice.Ports) != 1 || len(fewer[0][0].slice.Endpoints) != 0 || d == nil {
		t.Errorf("one write of one port is enough, got %v", fewer)
	}
}

// run plays the histories of a seed over all cores, until one fails. The history of each number is always the same.
func run(seed uint64, steps int) (total count, failure string) {
	var (
		next   atomic.Int64
		failed atomic.Bool
		lock   sync.Mutex // guards total and failure
		wg     sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				length := min(episode, steps-number*episode)
				if length <= 0 || failed.Load() {
					return
				}
				seen, report := history(seed, number, length)
				lock.Lock()
				if total.add(seen); report != "" && failure == "" {
					failure = report
					failed.Store(true)
				}
				lock.Unlock()
			}
		})
	}
	wg.Wait()
	return total, failure
}

// history plays one history. What it gives is empty unless both sides differ.
func history(seed uint64, number, length int) (count, string) {
	w := newWorld(seed)
	g := newGenerator(rand.New(rand.NewPCG(seed, uint64(number))), w.api)
	var played []step
	for _, name := range services {
		played = append(played, step{{service: g.newService(name)}})
	}
	for _, s := range played {
		w.play(s)
	}
	w.count = count{}
	for n := range length {
		s := g.next()
		played = append(played, s)
		if d := w.play(s); d != nil {
			fewer, d := shrink(seed, played, d)
			report := fmt.Sprintf("history %d, step %d: %s\n\nThe writes, shrunk to %d of %d steps:\n", number, n, d, len(fewer), len(played))
			for i, s := range fewer {
				report += fmt.Sprintf("### step %d\n%s", i, s)
			}
			return w.count, report
		}
	}
	return w.count, ""
}
