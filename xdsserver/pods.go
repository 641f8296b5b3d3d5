package xdsserver

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// index finds the services that a pod or an address is in, by one mention per endpoint of a live slice.
type index struct {
	pods  map[Pod][]*service
	addrs map[clusterAddr][]*service
}

type clusterAddr struct {
	cluster string
	addr    netip.Addr
}

func newIndex() index {
	return index{pods: map[Pod][]*service{}, addrs: map[clusterAddr][]*service{}}
}

// replace takes out what before mentions and puts in what after does; what is in both costs nothing.
func (x *index) replace(svc *service, before, after *endpoint.State) {
	for i := range before.Slices {
		was := &before.Slices[i]
		switch is := liveSlice(after, was.Name); {
		case is == nil:
			x.change(svc, was.Key.Cluster, was.Endpoints, nil)
		case !sameSlice(was, is):
			x.change(svc, was.Key.Cluster, was.Endpoints, is.Endpoints)
		}
	}
	for i := range after.Slices {
		if is := &after.Slices[i]; liveSlice(before, is.Name) == nil {
			x.change(svc, is.Key.Cluster, nil, is.Endpoints)
		}
	}
}

// change takes out the mentions of was and puts in those of is, but for what both have. Both are sorted.
func (x *index) change(svc *service, cluster string, was, is []endpoint.Endpoint) {
	for len(was) > 0 || len(is) > 0 {
		var c int
		switch {
		case len(is) == 0:
			c = -1
		case len(was) == 0:
			c = 1
		default:
			a, b := &was[0], &is[0]
			c = cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.TargetUID, b.TargetUID))
		}
		if c < 0 {
			x.remove(svc, cluster, &was[0])
		} else if c > 0 {
			x.add(svc, cluster, &is[0])
		}
		if c <= 0 {
			was = was[1:]
		}
		if c >= 0 {
			is = is[1:]
		}
	}
}

func (x *index) add(svc *service, cluster string, e *endpoint.Endpoint) {
	at := clusterAddr{cluster, e.Addr}
	x.addrs[at] = append(x.addrs[at], svc)
	if e.TargetUID != "" {
		pod := Pod{cluster, e.TargetUID}
		x.pods[pod] = append(x.pods[pod], svc)
	}
}

func (x *index) remove(svc *service, cluster string, e *endpoint.Endpoint) {
	takeOut(x.addrs, clusterAddr{cluster, e.Addr}, svc)
	if e.TargetUID != "" {
		takeOut(x.pods, Pod{cluster, e.TargetUID}, svc)
	}
}

// takeOut removes one mention of svc.
func takeOut[K comparable](m map[K][]*service, key K, svc *service) {
	list := m[key]
	i := slices.Index(list, svc)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
}

// pod gives what the memory says of one pod.
func (s *Store) pod(cluster, uid string, addrs []netip.Addr) PodView {
	_, promised := s.promised[Pod{cluster, uid}]
	out := PodView{Floor: s.floor(cluster), Promised: promised}
	if c := s.clusters[cluster]; c != nil {
		out.Current = c.synced && s.complete
	}
	for _, svc := range s.mentioning(cluster, uid, addrs) {
		from := len(out.Seen)
		out.Seen = appendSeen(out.Seen, svc, cluster, uid, addrs)
		if len(out.Seen) > from {
			out.Services = append(out.Services, svc.id.String())
			out.Fallback = s.markUsed(svc, out.Seen[from:]) || out.Fallback
		}
	}
	for _, p := range out.Seen {
		out.Used = out.Used || p.Used
		for _, port := range p.Ports {
			out.Addrs = append(out.Addrs, netip.AddrPortFrom(p.Endpoint.Addr, port.Number))
		}
	}
	out.Fallback = out.Fallback && out.Used
	slices.SortFunc(out.Addrs, netip.AddrPort.Compare)
	out.Addrs = slices.Compact(out.Addrs)
	out.Foreign = s.foreign(cluster, uid, addrs, out.Seen)
	out.Shared = slices.ContainsFunc(out.Foreign, func(a netip.AddrPort) bool { return slices.Contains(out.Addrs, a) })
	return out
}

// mentioning lists the services that may hold a pod, sorted by name.
func (s *Store) mentioning(cluster, uid string, addrs []netip.Addr) []*service {
	var list []*service
	if uid != "" {
		list = append(list, s.index.pods[Pod{cluster, uid}]...)
	}
	for _, a := range addrs {
		list = append(list, s.index.addrs[clusterAddr{cluster, a}]...)
	}
	slices.SortFunc(list, func(a, b *service) int { return strings.Compare(a.id.String(), b.id.String()) })
	return slices.Compact(list)
}

// isPod reports whether an endpoint is of the pod: by its uid, or by address where one of the two has none. Who does
// not say which pod is meant may mean any at that address: none of them must be taken for absent.
func isPod(e *endpoint.Endpoint, uid string, addrs []netip.Addr) bool {
	if uid != "" && e.TargetUID != "" {
		return e.TargetUID == uid
	}
	return slices.Contains(addrs, e.Addr)
}

// appendSeen appends every place of a service that holds the pod.
func appendSeen(seen []PodSlice, svc *service, cluster, uid string, addrs []netip.Addr) []PodSlice {
	i := svc.find(cluster)
	if i < 0 {
		return seen
	}
	st := &svc.states[i]
	for j := range st.Slices {
		sl := &st.Slices[j]
		for k := range sl.Endpoints {
			if e := &sl.Endpoints[k]; isPod(e, uid, addrs) {
				seen = append(seen, PodSlice{Key: sl.Key, Slice: sl.Name, Version: sl.Version, Endpoint: *e, Ports: sl.Ports})
			}
		}
	}
	return seen
}

// markUsed marks the places that some View would choose: of the merged ports, a client of no cluster and one of each
// cluster; and every other name that is subscribed to. Zones and nodes only narrow what such a client sees. It reports
// whether one is chosen by fallback.
func (s *Store) markUsed(svc *service, seen []PodSlice) (fallback bool) {
	input, _ := s.service(svc.id)
	uses := s.inUse(svc.id)
	ports := map[string]bool{}
	for _, p := range seen {
		for _, port := range p.Ports {
			ports[port.Name] = true
		}
	}
	for port := range ports {
		name := Name{Service: svc.id.service, Namespace: svc.id.namespace, Port: port}
		uses = append(uses, use{View{}, name})
		for cluster := range s.clusters {
			uses = append(uses, use{View{Cluster: cluster}, name})
		}
	}
	for _, u := range uses {
		all, _ := judge(input, u.view, u.name)
		for i := range all {
			c := &all[i]
			if !c.reason.Chosen() {
				continue
			}
			for j := range seen {
				p := &seen[j]
				if c.ep.Addr == p.Endpoint.Addr && c.ep.TargetUID == p.Endpoint.TargetUID && c.from.sl.Name == p.Slice && c.from.sl.Key.Cluster == p.Key.Cluster {
					p.Used = true
					fallback = fallback || c.reason == ReasonFallback
				}
			}
		}
	}
	return fallback
}

// foreign lists, at the pod's addresses, the ports of other pods that are ready or serving. To a pod without a uid
// nobody is another.
func (s *Store) foreign(cluster, uid string, addrs []netip.Addr, seen []PodSlice) []netip.AddrPort {
	if uid == "" {
		return nil
	}
	addrs = slices.Clone(addrs)
	for _, p := range seen {
		addrs = append(addrs, p.Endpoint.Addr)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	var out []netip.AddrPort
	for _, a := range slices.Compact(addrs) {
		for _, svc := range s.mentioning(cluster, "", []netip.Addr{a}) {
			i := svc.find(cluster)
			if i < 0 {
				continue
			}
			for j := range svc.states[i].Slices {
				out = appendForeign(out, &svc.states[i].Slices[j], a, uid)
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

func appendForeign(out []netip.AddrPort, sl *endpoint.Slice, a netip.Addr, uid string) []netip.AddrPort {
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		if e.Addr != a || e.TargetUID == uid || e.TargetUID == "" || e.Conditions&(endpoint.Ready|endpoint.Serving) == 0 {
			continue
		}
		for _, p := range sl.Ports {
			out = append(out, netip.AddrPortFrom(a, p.Number))
		}
	}
	return out
}

// promise puts a pod into the promise set.
func (s *Store) promise(cluster, uid string) {
	if uid != "" {
		s.promised[Pod{cluster, uid}] = struct{}{}
		s.touched(s.touchesOf(cluster, uid))
	}
}

// release takes a pod out of the promise set.
func (s *Store) release(cluster, uid string) {
	if _, promised := s.promised[Pod{cluster, uid}]; promised {
		delete(s.promised, Pod{cluster, uid})
		s.touched(s.touchesOf(cluster, uid))
	}
}

func (s *Store) touchesOf(cluster, uid string) (touched []touch) {
	for _, svc := range s.mentioning(cluster, uid, nil) {
		touched = append(touched, touch{id: svc.id})
	}
	return touched
}

// keepPromises drops the promises for pods of a cluster that are in no slice any more.
func (s *Store) keepPromises(cluster string) {
	for pod := range s.promised {
		if pod.Cluster == cluster && len(s.index.pods[pod]) == 0 {
			delete(s.promised, pod)
			delete(s.promises, pod)
		}
	}
}

// promiseTo notes who was promised that a pod is not chosen again.
func (s *Store) promiseTo(who, cluster, uid string) {
	pod := Pod{cluster, uid}
	if _, promised := s.promised[pod]; !promised {
		return
	}
	if s.promises[pod] == nil {
		s.promises[pod] = map[string]struct{}{}
	}
	s.promises[pod][who] = struct{}{}
}

// releaseFrom takes a promise to one back, and reports whether it was the last one.
func (s *Store) releaseFrom(who, cluster, uid string) (last bool) {
	pod := Pod{cluster, uid}
	if _, has := s.promises[pod][who]; !has {
		return false
	}
	delete(s.promises[pod], who)
	if len(s.promises[pod]) > 0 {
		return false
	}
	delete(s.promises, pod)
	return true
}
