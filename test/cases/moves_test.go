package cases

import (
	"slices"
	"strings"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/xdsserver"
)

// Real clients are given the events of moving pods in any order. Where the service had an endpoint at every moment, none
// of them is ever told otherwise, and in the end all hold the same.
func TestNoClientIsToldThatAMovingServiceIsEmpty(t *testing.T) {
	told := 0
	for seed := *firstSeed; seed < *firstSeed+20; seed++ {
		told += runMoves(t, endpointtest.NewRandom(seed))
		if t.Failed() {
			t.Fatalf("-seed=%d", seed)
		}
	}
	if told < 100 {
		t.Errorf("clients were told only %d times: the histories prove nothing", told)
	}
}

// runMoves returns how often clients were told something.
func runMoves(t *testing.T, r endpointtest.Random) (told int) {
	t.Helper()
	p := pastOf(fleetSteps(r, 60))
	start := p.alwaysSome()
	if start < 0 {
		return 0
	}
	views := []xdsserver.View{{Cluster: "prod"}, {Cluster: "prod", Zone: "z2"}, {Zone: "z1"}}
	live := newWhole(t, map[string]string{"prod": ""}, []string{"cart.shop:http"}, views)
	defer live.stop()
	for !p.pending[0].Slice.Version.After(p.versions[start]) {
		live.put(p.pending[0])
		p.pending = p.pending[1:]
	}
	live.certify("prod")
	live.settle()
	for _, c := range live.clients {
		c.log = nil
	}
	for len(p.pending) > 0 {
		live.put(p.next(r))
		if r.UintN(3) == 0 {
			live.fence()
		}
	}
	live.settle()
	name := xdsserver.Name{Service: "cart", Namespace: "shop", Port: "http"}
	key := endpoint.Key{Cluster: "prod", Namespace: name.Namespace, Service: name.Service}
	states := map[endpoint.Key]endpoint.State{key: {Key: key, Slices: p.states[len(p.states)-1]}}
	for _, c := range live.clients {
		told += len(c.log)
		if slices.ContainsFunc(c.log, func(line string) bool { return strings.HasSuffix(line, "  empty") }) {
			t.Errorf("%s client of %+v was told %q", c.kind, c.view, c.log)
		}
		want, err := assignmentText(name.String(), xdsserver.Assign(serviceOf(states, nil, name), c.view, name).Encode())
		if got := c.held[name.String()]; err != nil || got != want {
			t.Errorf("%s client of %+v holds %q, want %q, %v", c.kind, c.view, got, want, err)
		}
	}
	return told
}
