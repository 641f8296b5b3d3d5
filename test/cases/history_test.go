package cases

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

// anySteps gives n writes of legal but arbitrary objects: nil in every place, duplicates, port subsets, hints, both
// families, host names, labels, deletions. Names come from small sets, so that things meet.
func anySteps(r endpointtest.Random, n int) (out []step) {
	for range n {
		s := step{cluster: endpointtest.OneOf(r, "prod", "prod", "edge"), deleted: r.UintN(6) == 0}
		service := endpointtest.OneOf(r, "cart", "cart", "api")
		s.object = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: endpointtest.OneOf(r, "slice-a", "slice-b", "slice-c", "slice-d"),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		}}
		if r.UintN(10) == 0 {
			s.object.Labels["slicecast.io/terminating"] = endpointtest.OneOf(r, "drain", "soon")
		}
		s.object.AddressType = endpointtest.OneOf(r, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
		if r.UintN(20) == 0 {
			s.object.AddressType = discoveryv1.AddressTypeFQDN
		}
		s.object.Ports = anyPorts(r)
		for range r.IntN(5) {
			s.object.Endpoints = append(s.object.Endpoints, anyEndpoint(r, s.object.AddressType))
		}
		out = append(out, s)
	}
	return out
}

// maybe gives a pointer to one of the choices, or nil.
func maybe[T any](r endpointtest.Random, choices ...T) *T {
	if r.UintN(3) == 0 {
		return nil
	}
	return new(endpointtest.OneOf(r, choices...))
}

func anyPorts(r endpointtest.Random) (ports []discoveryv1.EndpointPort) {
	for _, name := range []string{"http", "grpc", ""} {
		if r.UintN(3) > 0 {
			p := discoveryv1.EndpointPort{Name: &name, Port: new(endpointtest.OneOf(r, int32(8080), 8080, 9090))}
			if name == "" {
				p.Name = maybe(r, "")
			}
			if r.UintN(8) == 0 {
				p.Port = nil
			}
			p.Protocol = maybe(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)
			p.AppProtocol = maybe(r, "grpc", "http")
			ports = append(ports, p)
		}
	}
	return ports
}

func anyEndpoint(r endpointtest.Random, family discoveryv1.AddressType) discoveryv1.Endpoint {
	n := 1 + r.IntN(6)
	e := discoveryv1.Endpoint{
		Addresses: []string{fmt.Sprintf("10.0.0.%d", n)}, Zone: maybe(r, "z1", "z2"), NodeName: maybe(r, "n1", "n2"), Hostname: maybe(r, "a", ""),
		Conditions: discoveryv1.EndpointConditions{Ready: maybe(r, true, false, false), Serving: maybe(r, true, false), Terminating: maybe(r, true, false)},
	}
	switch family {
	case discoveryv1.AddressTypeIPv6:
		e.Addresses[0] = fmt.Sprintf("fd00::%d", n)
	case discoveryv1.AddressTypeFQDN:
		e.Addresses[0] = "foo.com"
	}
	if r.UintN(8) == 0 {
		e.Addresses = append(e.Addresses, "10.0.0.99")
	}
	if uid := maybe(r, fmt.Sprint("pod-", n), fmt.Sprint("pod-", n), fmt.Sprint("new-", n), "pod-1"); uid != nil {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: *uid, UID: types.UID(*uid)}
	}
	if r.UintN(2) == 0 {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: endpointtest.OneOf(r, "z1", "z2")}}}
		if r.UintN(2) == 0 {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: endpointtest.OneOf(r, "n1", "n2")}}
		}
	}
	return e
}

// shuffled changes the order of everything in an object in which order means nothing.
func shuffled(r endpointtest.Random) func(*discoveryv1.EndpointSlice) {
	return func(es *discoveryv1.EndpointSlice) {
		r.Shuffle(len(es.Endpoints), func(i, j int) { es.Endpoints[i], es.Endpoints[j] = es.Endpoints[j], es.Endpoints[i] })
		if !twicePort(es.Ports) { // Of two ports of one name, which no API server lets through, the first one counts.
			r.Shuffle(len(es.Ports), func(i, j int) { es.Ports[i], es.Ports[j] = es.Ports[j], es.Ports[i] })
		}
		for i := range es.Endpoints {
			if h := es.Endpoints[i].Hints; h != nil {
				slices.Reverse(h.ForZones)
				slices.Reverse(h.ForNodes)
			}
		}
	}
}

func twicePort(ports []discoveryv1.EndpointPort) bool {
	seen := map[string]bool{}
	for _, p := range ports {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}

// fleet is a model of one service under a controller that writes slices as Kubernetes does: new pods become ready, old
// ones end, pods move between slices in two writes, the one that gains first, and addresses are used again.
type fleet struct {
	r     endpointtest.Random
	pods  []*pod
	lists map[string][]*pod // by slice
	owed  []func()
	count int
	out   []step
}

// pod is one pod with its conditions.
type pod struct {
	uid                         string
	host                        int
	zone                        string
	ready, serving, terminating bool
}

// fleetSteps gives n and a few writes.
func fleetSteps(r endpointtest.Random, n int) []step {
	f := &fleet{r: r, lists: map[string][]*pod{}}
	for len(f.out) < n {
		f.step()
	}
	return f.out
}

func (f *fleet) step() {
	r := f.r
	if len(f.owed) > 0 && r.UintN(2) == 0 {
		f.owed[0]()
		f.owed = f.owed[1:]
		return
	}
	if len(f.pods) == 0 || len(f.pods) < 6 && r.UintN(4) == 0 {
		f.count++
		f.pods = append(f.pods, &pod{uid: fmt.Sprint("pod-", f.count), host: 1 + r.IntN(8), zone: endpointtest.OneOf(r, "z1", "z2")})
		f.gain(endpointtest.OneOf(r, "cart-a", "cart-b", "cart-c"), f.pods[len(f.pods)-1])
		return
	}
	p := f.pods[r.IntN(len(f.pods))]
	switch {
	case p.terminating && r.UintN(2) == 0:
		f.remove(p)
		return
	case p.terminating:
		p.serving = r.UintN(2) == 0
	case !p.ready:
		p.ready, p.serving = true, true
	case r.UintN(2) == 0:
		f.move(p)
		return
	default:
		p.ready, p.terminating = false, true
	}
	for _, slice := range f.listing(p) {
		f.write(slice)
	}
}

// listing gives the slices that have a pod, by name.
func (f *fleet) listing(p *pod) (names []string) {
	for _, name := range []string{"cart-a", "cart-b", "cart-c"} {
		if slices.Contains(f.lists[name], p) {
			names = append(names, name)
		}
	}
	return names
}

func (f *fleet) gain(slice string, p *pod) {
	f.lists[slice] = append(f.lists[slice], p)
	f.write(slice)
}

// lose takes a pod out of a slice, which is deleted if it was the last one, or not.
func (f *fleet) lose(slice string, p *pod) {
	if !slices.Contains(f.lists[slice], p) {
		return
	}
	f.lists[slice] = slices.DeleteFunc(slices.Clone(f.lists[slice]), func(o *pod) bool { return o == p })
	if len(f.lists[slice]) == 0 && f.r.UintN(2) == 0 {
		f.out = append(f.out, step{cluster: "prod", object: f.object(slice), deleted: true})
		return
	}
	f.write(slice)
}

func (f *fleet) move(p *pod) {
	to := endpointtest.OneOf(f.r, "cart-a", "cart-b", "cart-c")
	from := f.listing(p)
	if slices.Contains(from, to) {
		return
	}
	f.gain(to, p)
	for _, slice := range from {
		f.owed = append(f.owed, func() { f.lose(slice, p) })
	}
}

func (f *fleet) remove(p *pod) {
	f.pods = slices.DeleteFunc(f.pods, func(o *pod) bool { return o == p })
	for _, slice := range f.listing(p) {
		f.lose(slice, p)
	}
}

func (f *fleet) write(slice string) {
	f.out = append(f.out, step{cluster: "prod", object: f.object(slice)})
}

func (f *fleet) object(slice string) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
	es.Namespace, es.Name, es.Labels = "shop", slice, map[string]string{discoveryv1.LabelServiceName: "cart"}
	for _, p := range f.lists[slice] {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprint("10.0.0.", p.host)}, Zone: new(p.zone),
			Conditions: discoveryv1.EndpointConditions{Ready: new(p.ready), Serving: new(p.serving), Terminating: new(p.terminating)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: p.uid, UID: types.UID(p.uid)},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: p.zone}}},
		})
	}
	return es
}
