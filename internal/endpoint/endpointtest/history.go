package endpointtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// API is a model of one API server with the services of one cluster: what it holds now and what it went through.
// Every change is one write with the next resourceVersion, as in Kubernetes; an endpoint moves between two slices
// in two writes, the one that gains it first.
type API struct {
	Cluster string
	Writes  []endpoint.Event // all of them, in order: a whole slice, or that it is gone
	live    map[endpoint.Key]map[string]endpoint.Slice
	version endpoint.Version
	hosts   uint8
	owed    []endpoint.Event // second halves of moves
}

// NewAPI gives an empty API server.
func NewAPI(cluster string) *API {
	return &API{Cluster: cluster, live: map[endpoint.Key]map[string]endpoint.Slice{}, version: endpoint.Version{Generation: 1, Resource: 1}}
}

// Now is the version of the last write.
func (a *API) Now() endpoint.Version { return a.version }

// Keys are the services that the model uses.
func (a *API) Keys() []endpoint.Key {
	return []endpoint.Key{{Cluster: a.Cluster, Namespace: "shop", Service: "api"}, {Cluster: a.Cluster, Namespace: "shop", Service: "cart"}}
}

// Live gives the slices of key now, by name. The map is the caller's.
func (a *API) Live(key endpoint.Key) map[string]endpoint.Slice {
	out := map[string]endpoint.Slice{}
	for name, s := range a.live[key] {
		out[name] = s
	}
	return out
}

// Change makes one random write.
func (a *API) Change(r Random) {
	if len(a.owed) > 0 && r.UintN(3) > 0 {
		s := a.owed[0].Slice
		a.owed = a.owed[1:]
		if now, live := a.live[s.Key][s.Name]; live {
			gone := s.Endpoints[0]
			now.Endpoints = slices.DeleteFunc(slices.Clone(now.Endpoints), func(e endpoint.Endpoint) bool { return e == gone })
			a.write(now)
		}
		return
	}
	key := OneOf(r, a.Keys()...)
	name := key.Service + OneOf(r, "-a", "-b", "-c")
	s, live := a.live[key][name]
	switch {
	case !live:
		s = endpoint.Slice{Key: key, Name: name, UID: fmt.Sprint(a.version.Resource), Ports: []endpoint.Port{{Number: 8080}}}
		s.Endpoints = []endpoint.Endpoint{a.pod(r)}
		a.write(s)
	case r.UintN(6) == 0:
		a.delete(s)
	case r.UintN(3) == 0 && a.move(r, s):
	case len(s.Endpoints) > 0 && r.UintN(2) == 0:
		i := r.IntN(len(s.Endpoints))
		s.Endpoints = slices.Clone(s.Endpoints)
		if e := &s.Endpoints[i]; e.Conditions&endpoint.Terminating != 0 {
			s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
		} else {
			e.Conditions = endpoint.Serving | endpoint.Terminating
		}
		a.write(s)
	default:
		s.Endpoints = append(slices.Clone(s.Endpoints), a.pod(r))
		a.write(s)
	}
}

// move writes an endpoint of s into another slice of its service; that s loses it comes later.
func (a *API) move(r Random, s endpoint.Slice) bool {
	for _, name := range []string{s.Key.Service + "-a", s.Key.Service + "-b", s.Key.Service + "-c"} {
		to, live := a.live[s.Key][name]
		if name == s.Name || !live || len(s.Endpoints) == 0 {
			continue
		}
		e := s.Endpoints[r.IntN(len(s.Endpoints))]
		if slices.ContainsFunc(to.Endpoints, func(o endpoint.Endpoint) bool { return o.Compare(e) == 0 }) {
			continue
		}
		to.Endpoints = append(slices.Clone(to.Endpoints), e)
		a.write(to)
		s.Endpoints = []endpoint.Endpoint{e}
		a.owed = append(a.owed, endpoint.Event{Slice: s})
		return true
	}
	return false
}

// Tick is a write of something else, which takes a version.
func (a *API) Tick() { a.version.Resource++ }

// pod gives a new endpoint.
func (a *API) pod(r Random) endpoint.Endpoint {
	a.hosts++
	return endpoint.Endpoint{
		Addr: netip.AddrFrom4([4]byte{10, 0, byte(a.version.Resource >> 8), a.hosts}), Conditions: endpoint.Ready | endpoint.Serving,
		Zone: OneOf(r, "z1", "z2"), TargetKind: "Pod", TargetUID: fmt.Sprint("pod-", a.version.Resource),
	}
}

// write stores a slice with the next version.
func (a *API) write(s endpoint.Slice) {
	a.version.Resource++
	s.Version = a.version
	s = s.Canonical()
	if a.live[s.Key] == nil {
		a.live[s.Key] = map[string]endpoint.Slice{}
	}
	a.live[s.Key][s.Name] = s
	a.Writes = append(a.Writes, endpoint.Event{Slice: s})
}

// delete removes a slice, which takes a version too.
func (a *API) delete(s endpoint.Slice) {
	a.version.Resource++
	delete(a.live[s.Key], s.Name)
	a.Writes = append(a.Writes, endpoint.Event{Gone: true, Slice: endpoint.Slice{Key: s.Key, Name: s.Name, UID: s.UID, Version: a.version}})
}

// At gives the slices of key as they were at version v, sorted by name.
func (a *API) At(key endpoint.Key, v endpoint.Version) []endpoint.Slice {
	last := map[string]endpoint.Event{}
	for _, e := range a.Writes {
		if e.Slice.Key == key && !e.Slice.Version.After(v) {
			last[e.Slice.Name] = e
		}
	}
	var out []endpoint.Slice
	for _, e := range last {
		if !e.Gone {
			out = append(out, e.Slice)
		}
	}
	slices.SortFunc(out, func(x, y endpoint.Slice) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// View gives what some honest reader may know of key: complete as of floor, and of each slice all up to some later
// version of its own.
func (a *API) View(r Random, key endpoint.Key, floor endpoint.Version) endpoint.State {
	st := endpoint.State{Key: key}
	upTo := map[string]endpoint.Version{}
	last := map[string]endpoint.Event{}
	for _, e := range a.Writes {
		name := e.Slice.Name
		if e.Slice.Key != key {
			continue
		}
		if _, known := upTo[name]; !known {
			upTo[name] = endpoint.Version{Generation: floor.Generation, Resource: floor.Resource + r.Uint64N(a.version.Resource-floor.Resource+1)}
		}
		if !e.Slice.Version.After(floor) || !e.Slice.Version.After(upTo[name]) {
			last[name] = e
		}
	}
	for _, e := range last {
		if s := e.Slice; !e.Gone {
			st = st.Join(endpoint.State{Key: key, Slices: []endpoint.Slice{s}})
		} else if s.Version.After(floor) {
			st = st.Join(endpoint.State{Key: key, Gone: []endpoint.Ref{{Name: s.Name, Version: s.Version}}})
		}
	}
	st.Floor = floor
	return st
}
