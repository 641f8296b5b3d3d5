package rig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// API is a model of the API server of one cluster: what it holds, and all that it went through. Every change is one
// write with the next resourceVersion. It is safe for use by many goroutines.
type API struct {
	Cluster string
	UID     string

	// mu guards all below.
	mu      sync.Mutex
	version uint64
	live    map[endpoint.Key]map[string]endpoint.Slice
	log     []write
	usable  map[endpoint.Key][]usableFrom
	moved   chan struct{} // closed at every write
	hosts   uint32
	owed    []move
}

// write is one change. The slice carries its resourceVersion.
type write struct {
	slice endpoint.Slice
	gone  bool
}

// usableFrom says which addresses were usable from a version on.
type usableFrom struct {
	version uint64
	addrs   []netip.Addr
}

// NewAPI gives an empty API server.
func NewAPI(cluster string) *API {
	return &API{
		Cluster: cluster, UID: "uid-of-" + cluster, version: 1,
		live: map[endpoint.Key]map[string]endpoint.Slice{}, usable: map[endpoint.Key][]usableFrom{}, moved: make(chan struct{}),
	}
}

// Now is the version of the last write.
func (a *API) Now() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// Set writes a slice, and gives its version.
func (a *API) Set(s endpoint.Slice) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(s)
	return a.version
}

// Delete removes a slice.
func (a *API) Delete(key endpoint.Key, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.live[key][name]; ok {
		a.remove(s)
	}
}

// Live gives the slices of a service, sorted by name.
func (a *API) Live(key endpoint.Key) []endpoint.Slice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sorted(key)
}

// Keys lists every service that there was, sorted.
func (a *API) Keys() []endpoint.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Keys(a.usable), endpoint.Key.Compare)
}

func (a *API) sorted(key endpoint.Key) []endpoint.Slice {
	out := slices.Collect(maps.Values(a.live[key]))
	slices.SortFunc(out, func(x, y endpoint.Slice) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func (a *API) set(s endpoint.Slice) {
	a.version++
	s.Version = endpoint.Version{Generation: 1, Resource: a.version}
	s = s.Canonical()
	if s.UID == "" {
		s.UID = fmt.Sprint(s.Name, "-", a.version)
	}
	if a.live[s.Key] == nil {
		a.live[s.Key] = map[string]endpoint.Slice{}
	}
	a.live[s.Key][s.Name] = s
	a.wrote(write{slice: s})
}

func (a *API) remove(s endpoint.Slice) {
	a.version++
	delete(a.live[s.Key], s.Name)
	s.Version.Resource = a.version
	a.wrote(write{slice: s, gone: true})
}

// wrote notes a write for those who watch and for the oracle.
func (a *API) wrote(w write) {
	a.log = append(a.log, w)
	key := w.slice.Key
	addrs := usableOf(slices.Collect(maps.Values(a.live[key])))
	was := a.usable[key]
	if len(was) == 0 || !slices.Equal(was[len(was)-1].addrs, addrs) {
		a.usable[key] = append(was, usableFrom{a.version, addrs})
	}
	close(a.moved)
	a.moved = make(chan struct{})
}

// at gives what there was at a version.
func (a *API) at(version uint64) []endpoint.Slice {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := map[string]write{}
	for _, w := range a.log {
		if w.slice.Version.Resource > version {
			break
		}
		last[w.slice.Key.Namespace+"/"+w.slice.Name] = w
	}
	var out []endpoint.Slice
	for _, w := range last {
		if !w.gone {
			out = append(out, w.slice)
		}
	}
	return out
}

// after gives the writes after a version, and what is closed at the next one.
func (a *API) after(version uint64) ([]write, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.log), func(i int) bool { return a.log[i].slice.Version.Resource > version })
	return a.log[i:len(a.log):len(a.log)], a.moved
}

// excuse reports whether addrs hold all that was usable of a service in some one state of the cluster since a version.
// Otherwise it gives the state that came closest.
func (a *API) excuse(key endpoint.Key, since uint64, addrs map[netip.Addr]bool) (missing string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	best := -1
	if first := a.usable[key]; len(first) == 0 || first[0].version > since {
		return "", true // there was no such service yet
	}
	for i, u := range a.usable[key] {
		if all := a.usable[key]; i+1 < len(all) && all[i+1].version <= since {
			continue
		}
		var lacks []netip.Addr
		for _, addr := range u.addrs {
			if !addrs[addr] {
				lacks = append(lacks, addr)
			}
		}
		if len(lacks) == 0 {
			return "", true
		}
		if best < 0 || len(lacks) < best {
			best, missing = len(lacks), fmt.Sprintf("%v of version %d", lacks, u.version)
		}
	}
	return missing, false
}
