package cases

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
	"github.com/slicecast/slicecast/watcher"
	"github.com/slicecast/slicecast/xdsserver"
)

// firstVersion is before that of the first write of a cluster.
const firstVersion = 100

// place is what Kubernetes knows a slice by.
type place struct{ cluster, namespace, name string }

// world is a set of API servers and what their watchers make of them.
type world struct {
	versions map[string]uint64
	live     map[place]endpoint.Slice // what the bus holds live
	regions  map[string]string
	named    map[xdsserver.Name]bool // what clients ask for
	events   []endpoint.Event
	skips    watcher.Skips
	shuffle  func(*discoveryv1.EndpointSlice) // nil: none
}

func newWorld() *world {
	return &world{versions: map[string]uint64{}, live: map[place]endpoint.Slice{}, regions: map[string]string{}, named: map[xdsserver.Name]bool{}}
}

// apply makes the write of a step and gives the events that come of it, which it also keeps.
func (w *world) apply(s step) []endpoint.Event {
	switch {
	case s.record:
		w.regions[s.cluster] = s.region
	case s.name != nil:
		w.named[*s.name] = true
	}
	if s.object == nil {
		return nil
	}
	v := cmp.Or(s.version, max(firstVersion, w.versions[s.cluster])+1)
	w.versions[s.cluster] = max(v, w.versions[s.cluster])
	at := place{s.cluster, s.object.Namespace, s.object.Name}
	before, known := w.live[at]
	var out []endpoint.Event
	sl, ok := w.translate(s, v)
	if known && (!ok || sl.Key != before.Key) {
		out = append(out, w.tombstone(at, v))
	}
	if ok {
		w.live[at] = sl
		e := endpoint.Event{Slice: sl, Peers: w.peers(at, sl.Key)}
		if known && sl.Key == before.Key {
			e.Previous, e.Transitions = before.Version, watcher.Diff(before, sl)
		} else {
			e.Transitions = watcher.Diff(endpoint.Slice{}, sl)
		}
		out = append(out, e)
		for _, p := range sl.Ports {
			w.named[xdsserver.Name{Service: sl.Key.Service, Namespace: sl.Key.Namespace, Port: p.Name}] = true
		}
	}
	w.events = append(w.events, out...)
	return out
}

// translate gives what a watcher publishes of the object of a step, and whether it does.
func (w *world) translate(s step, version uint64) (endpoint.Slice, bool) {
	if s.deleted {
		return endpoint.Slice{}, false
	}
	object := copyOf(s.object)
	object.ResourceVersion = strconv.FormatUint(version, 10)
	if w.shuffle != nil {
		w.shuffle(object)
	}
	sl, skips, err := watcher.Translate(s.cluster, 1, object)
	w.skips.Merge(skips)
	return sl, err == nil
}

// tombstone takes a slice out of its service.
func (w *world) tombstone(at place, version uint64) endpoint.Event {
	before := w.live[at]
	delete(w.live, at)
	gone := endpoint.Slice{
		Key: before.Key, Name: before.Name, UID: before.UID, Translator: watcher.TranslatorVersion,
		Version: endpoint.Version{Generation: 1, Resource: version},
	}
	return endpoint.Event{Slice: gone, Gone: true, Previous: before.Version, Peers: w.peers(at, before.Key), Transitions: watcher.Diff(before, endpoint.Slice{})}
}

// peers lists the other slices of a service, as watchers do.
func (w *world) peers(of place, key endpoint.Key) (refs []endpoint.Ref) {
	for at, sl := range w.live {
		if at != of && sl.Key == key {
			refs = append(refs, endpoint.Ref{Name: sl.Name, Version: sl.Version})
		}
	}
	slices.SortFunc(refs, func(a, b endpoint.Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs
}

// names lists what clients ask for.
func (w *world) names() []xdsserver.Name {
	return slices.SortedFunc(maps.Keys(w.named), func(a, b xdsserver.Name) int { return strings.Compare(a.String(), b.String()) })
}

// clusters lists the clusters that a case speaks of.
func (c testCase) clusters() []string {
	all := map[string]bool{}
	for _, s := range c.steps() {
		if s.cluster != "" {
			all[s.cluster] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// endOf gives the world after all stages, whose names are those of the whole case.
func endOf(c testCase) *world {
	w := newWorld()
	for _, s := range c.steps() {
		w.apply(s)
	}
	return w
}

// formatStates prints States without what is the same in all cases: the translator, and of a pod more than its uid.
func formatStates(states map[endpoint.Key]endpoint.State) (out []endpointtest.Section) {
	for _, key := range slices.SortedFunc(maps.Keys(states), endpoint.Key.Compare) {
		st := states[key]
		st.Slices, st.Gone = slices.Clone(st.Slices), slices.Clone(st.Gone)
		for i := range st.Gone {
			st.Gone[i].Translator = 0
		}
		for i := range st.Slices {
			sl := &st.Slices[i]
			sl.Translator = 0
			sl.Endpoints = slices.Clone(sl.Endpoints)
			for j := range sl.Endpoints {
				if e := &sl.Endpoints[j]; e.TargetKind == "Pod" && e.TargetName == e.TargetUID {
					e.TargetKind, e.TargetName = "", ""
				}
			}
		}
		sec := endpointtest.FormatState(st)
		for i := range st.Slices {
			if n := len(st.Slices[i].Endpoints); n > 12 {
				sec.Body[i] = shortened(sec.Body[i], n)
			}
		}
		out = append(out, sec)
	}
	return out
}

// shortened keeps the first and the last of n endpoints of a printed slice.
func shortened(line string, n int) string {
	words := strings.Fields(line)
	head := words[:len(words)-n]
	return fmt.Sprintf("%s  %s ... %s  %d endpoints", strings.Join(head, " "), words[len(head)], words[len(words)-1], n)
}

// parseView reads the words after the kind of a section.
func parseView(head string) (xdsserver.View, error) {
	var v xdsserver.View
	for _, word := range strings.Fields(head)[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "cluster":
			v.Cluster = value
		case "region":
			v.Region = value
		case "zone":
			v.Zone = value
		case "node":
			v.Node = value
		case "family":
			v.Family = xdsserver.ParseFamily(value)
		default:
			return v, fmt.Errorf("a view has no %q", word)
		}
	}
	return v, nil
}
