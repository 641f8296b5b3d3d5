package kubeproxy

import (
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
	"github.com/slicecast/slicecast/xdsserver"
)

// cluster is the name of the Kubernetes cluster.
const cluster = "east"

// slicecast is our pipeline without the bus: each event may come late, again, and in any order with others.
type slicecast struct {
	rng    *rand.Rand
	events map[endpoint.Key]map[string][]endpoint.Event // the newest of each slice last, before it a few older ones
	states map[endpoint.Key]endpoint.State
	floor  endpoint.Version
}

func newSlicecast(rng *rand.Rand) *slicecast {
	return &slicecast{rng: rng, events: map[endpoint.Key]map[string][]endpoint.Event{}, states: map[endpoint.Key]endpoint.State{}}
}

// slice does what a watcher does: it publishes what a slice is, and that it is gone from where it was.
func (s *slicecast) slice(e told) {
	var now *endpoint.Slice
	if e.now != nil {
		if sl, _, err := watcher.Translate(cluster, 1, e.now.raw); err == nil {
			now = &sl
		}
	}
	if e.before != nil {
		was, _, err := watcher.Translate(cluster, 1, e.before.raw)
		if err == nil && (now == nil || now.Key != was.Key) {
			gone := endpoint.Slice{Key: was.Key, Name: was.Name, UID: was.UID, Version: endpoint.Version{Generation: 1, Resource: e.version}}
			s.publish(endpoint.Event{Slice: gone, Gone: true})
		}
	}
	if now != nil {
		s.publish(endpoint.Event{Slice: *now})
	}
}

// publish folds an event in: onto the State, or by folding anew, in any order, everything that the bus may deliver.
func (s *slicecast) publish(e endpoint.Event) {
	key, name := e.Slice.Key, e.Slice.Name
	if s.events[key] == nil {
		s.events[key] = map[string][]endpoint.Event{}
	}
	history := append(s.events[key][name], e)
	s.events[key][name] = history[max(0, len(history)-3):]
	if s.rng.IntN(8) == 0 {
		s.floor = e.Slice.Version // All that came before is here.
	}
	if before, known := s.states[key]; known && s.rng.IntN(2) == 0 {
		s.states[key] = before.Join(projector.Fold(key, endpoint.Version{}, e))
		return
	}
	var all []endpoint.Event
	for _, events := range s.events[key] {
		all = append(all, events[s.rng.IntN(len(events)):]...)
	}
	slices.SortFunc(all, func(a, b endpoint.Event) int { return a.Slice.Version.Compare(b.Slice.Version) }) // Map order is no seed.
	s.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	s.states[key] = projector.Fold(key, s.floor, all...)
}

// service gives what an xDS server assigns from.
func (s *slicecast) service(name types.NamespacedName) xdsserver.Service {
	st, known := s.states[endpoint.Key{Cluster: cluster, Namespace: name.Namespace, Service: name.Name}]
	if !known {
		return xdsserver.Service{}
	}
	return xdsserver.Service{States: []endpoint.State{st}}
}

// usable gives the addresses that a client of the View sends new work to, with their zones.
func usable(svc xdsserver.Service, view xdsserver.View, name xdsserver.Name) set {
	var out set
	for _, l := range xdsserver.Assign(svc, view, name).Localities {
		for _, t := range l.Endpoints {
			if t.Draining {
				continue
			}
			out = append(out, member{t.Addr.String(), l.Zone})
			for _, more := range t.More {
				out = append(out, member{more.String(), l.Zone})
			}
		}
	}
	return out.sorted()
}
