package rig

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Services of one cluster: as many are steady (rolled out, scaled and moved about, never with less than two ready
// pods) as not.
const steadyServices, wildServices = 3, 3

const (
	ready   = endpoint.Ready | endpoint.Serving
	leaving = endpoint.Serving | endpoint.Terminating
)

// move is the second half of a move: an endpoint that is still to leave a slice.
type move struct {
	key   endpoint.Key
	slice string
	addr  netip.Addr
}

// services lists the names that Change works on.
func (a *API) services() (keys []endpoint.Key) {
	for i := range steadyServices {
		keys = append(keys, endpoint.Key{Cluster: a.Cluster, Namespace: "shop", Service: fmt.Sprint("steady-", i)})
	}
	for i := range wildServices {
		keys = append(keys, endpoint.Key{Cluster: a.Cluster, Namespace: "shop", Service: fmt.Sprint("wild-", i)})
	}
	return keys
}

// Fill makes all services.
func (a *API) Fill(r *rand.Rand) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, key := range a.services() {
		a.create(r, key, i >= steadyServices)
	}
}

// Change makes one random change, of one or a few writes: a step of a rollout, a scaling, a move between slices, the
// deletion or creation of a service.
func (a *API) Change(r *rand.Rand) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.owed) > 0 && r.IntN(2) == 0 {
		m := a.owed[0]
		a.owed = a.owed[1:]
		if s, ok := a.live[m.key][m.slice]; ok {
			s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e endpoint.Endpoint) bool { return e.Addr == m.addr })
			a.set(s)
		}
		return
	}
	all := a.services()
	i := r.IntN(len(all))
	a.step(r, all[i], i >= steadyServices)
}

func (a *API) step(r *rand.Rand, key endpoint.Key, wild bool) {
	all := a.sorted(key)
	if len(all) == 0 {
		a.create(r, key, wild)
		return
	}
	s := all[r.IntN(len(all))]
	up, _ := sortOut(all)
	p := -1
	if len(s.Endpoints) > 0 {
		p = r.IntN(len(s.Endpoints))
	}
	switch n := r.IntN(20); {
	case wild && n == 0:
		for _, s := range all {
			a.remove(s)
		}
	case wild && n == 1:
		a.remove(s)
	case len(up) < 3 || n < 5 && len(up) < 9:
		s.Endpoints = append(slices.Clone(s.Endpoints), a.pod(r))
		a.set(s)
	case p < 0 && len(all) > 1:
		a.remove(s)
	case p < 0:
	case n < 9:
		a.begin(r, key, all, s, s.Endpoints[p])
	case s.Endpoints[p].Conditions == leaving:
		a.everywhere(key, s.Endpoints[p].Addr, func(endpoint.Endpoint) (endpoint.Endpoint, bool) { return endpoint.Endpoint{}, false })
	case wild && n < 12:
		a.everywhere(key, s.Endpoints[p].Addr, func(e endpoint.Endpoint) (endpoint.Endpoint, bool) {
			e.Conditions ^= ready
			return e, true
		})
	default:
		a.everywhere(key, s.Endpoints[p].Addr, func(e endpoint.Endpoint) (endpoint.Endpoint, bool) {
			e.Conditions = leaving
			return e, true
		})
	}
}

// everywhere changes or drops a pod in every slice that has it, each in a write of its own.
func (a *API) everywhere(key endpoint.Key, addr netip.Addr, change func(endpoint.Endpoint) (endpoint.Endpoint, bool)) {
	for _, s := range a.sorted(key) {
		i := slices.IndexFunc(s.Endpoints, func(e endpoint.Endpoint) bool { return e.Addr == addr })
		if i < 0 {
			continue
		}
		e, stays := change(s.Endpoints[i])
		s.Endpoints = slices.Clone(s.Endpoints)
		if s.Endpoints[i] = e; !stays {
			s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
		}
		a.set(s)
	}
}

// begin moves a pod into another slice, a new one at times; that the old one loses it comes later.
func (a *API) begin(r *rand.Rand, key endpoint.Key, all []endpoint.Slice, from endpoint.Slice, e endpoint.Endpoint) {
	to := all[r.IntN(len(all))]
	if len(all) == 1 || len(all) < 4 && r.IntN(4) == 0 {
		to = endpoint.Slice{Key: key, Name: fmt.Sprint(key.Service, "-", a.version), Ports: from.Ports, TerminatingPolicy: from.TerminatingPolicy}
	}
	if to.Name == from.Name || slices.ContainsFunc(to.Endpoints, func(o endpoint.Endpoint) bool { return o.Addr == e.Addr }) {
		return
	}
	to.Endpoints = append(slices.Clone(to.Endpoints), e)
	a.set(to)
	a.owed = append(a.owed, move{key, from.Name, e.Addr})
}

func (a *API) create(r *rand.Rand, key endpoint.Key, wild bool) {
	for i := range 2 {
		s := endpoint.Slice{Key: key, Name: fmt.Sprint(key.Service, "-", i), Ports: []endpoint.Port{{Name: "http", Number: 8080}}}
		if wild {
			s.TerminatingPolicy = "drain"
		}
		for range 2 {
			s.Endpoints = append(s.Endpoints, a.pod(r))
		}
		a.set(s)
	}
}

// pod gives a new ready pod.
func (a *API) pod(r *rand.Rand) endpoint.Endpoint {
	a.hosts++
	return endpoint.Endpoint{
		Addr:       netip.AddrFrom4([4]byte{10, byte(a.hosts >> 16), byte(a.hosts >> 8), byte(a.hosts)}),
		Conditions: ready, Zone: fmt.Sprint("z", r.IntN(2)), TargetKind: "Pod", TargetName: fmt.Sprint("pod-", a.hosts),
		TargetUID: fmt.Sprint("uid-", a.hosts),
	}
}
