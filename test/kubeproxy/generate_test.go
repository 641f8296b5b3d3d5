package kubeproxy

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels that are policy of a service.
const (
	labelTerminating = "slicecast.io/terminating"
	labelFailover    = "slicecast.io/failover"
)

// portNames are the names that ports have; each is compared after each step.
var portNames = [...]string{"", "http", "grpc", "8080"}

// services are the services that slices belong to.
var services = [...]types.NamespacedName{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "api"}, {Namespace: "ops", Name: "web"}}

// generator makes random histories. Names and addresses come from small sets, so that they meet.
type generator struct {
	*rand.Rand
	api   *apiServer
	queue []step // what has begun and goes on in later steps

	// The character of the history, so that some have much of what others have nothing of.
	dirty  float64 // share of endpoints that are in other slices too, share addresses, or are odd
	odd    float64 // share of odd values
	hinted float64 // share of endpoints that follow the hint mode of their service
	hints  map[types.NamespacedName]int
}

func newGenerator(rng *rand.Rand, api *apiServer) *generator {
	return &generator{
		Rand: rng, api: api,
		dirty:  oneOf(rng, 0, 0, 0.1, 0.5),
		odd:    oneOf(rng, 0, 0.02, 0.2),
		hinted: oneOf(rng, 1, 1, 0.95, 0.5),
		hints:  map[types.NamespacedName]int{},
	}
}

func oneOf[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

func (g *generator) chance(p float64) bool { return g.Float64() < p }

// next gives the next step.
func (g *generator) next() step {
	if len(g.queue) > 0 && g.IntN(3) > 0 {
		s := g.queue[0]
		g.queue = g.queue[1:]
		return s
	}
	kinds := [...]struct {
		weight int
		make   func() step
	}{
		{10, g.create}, {25, g.turn}, {12, g.join}, {8, g.leave}, {8, g.move}, {5, g.deleteSlice}, {6, g.reworkPorts},
		{3, g.rehint}, {4, g.label}, {3, g.rollout}, {2, g.service}, {2, g.moveLabel}, {2, g.reshape},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := g.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k.make()
		}
	}
	return nil
}

// split gives the writes as one step, or as one step each, in this order.
func (g *generator) split(writes ...write) step {
	if len(writes) < 2 || g.IntN(2) == 0 {
		return writes
	}
	for _, w := range writes[1:] {
		g.queue = append(g.queue, step{w})
	}
	return step{writes[0]}
}

// pick gives any slice, nil when there is none. It may be of a service or not.
func (g *generator) pick(keep func(*stored) bool) *discoveryv1.EndpointSlice {
	var some []*stored
	for _, s := range g.api.slices {
		if keep == nil || keep(s) {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		return nil
	}
	slices.SortFunc(some, func(a, b *stored) int { return int(int64(a.version) - int64(b.version)) })
	out := some[g.IntN(len(some))].raw.DeepCopy()
	out.ResourceVersion = ""
	return out
}

func (g *generator) create() step {
	service := services[g.IntN(len(services))]
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-" + oneOf(g.Rand, "a", "b", "c", "d.e"),
			UID:    types.UID(fmt.Sprintf("u%d", g.IntN(1000))),
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
		},
		AddressType: oneOf(g.Rand, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6),
	}
	if g.chance(g.odd / 2) {
		out.AddressType = discoveryv1.AddressTypeFQDN
	}
	out.Ports = g.ports()
	for range g.IntN(6) {
		g.add(out)
	}
	return step{{slice: out}}
}

// turn changes what one endpoint is, or a few.
func (g *generator) turn() step {
	s := g.pick(hasEndpoints)
	if s == nil {
		return g.create()
	}
	for range 1 + g.IntN(2) {
		e := &s.Endpoints[g.IntN(len(s.Endpoints))]
		e.Conditions = g.conditions()
		if g.IntN(4) == 0 {
			g.place(e, g.IntN(pods))
		}
		if g.IntN(3) == 0 {
			g.hint(e, serviceOf(s))
		}
	}
	return step{{slice: s}}
}

func (g *generator) join() step {
	s := g.pick(nil)
	if s == nil {
		return g.create()
	}
	for range 1 + g.IntN(3) {
		g.add(s)
	}
	return step{{slice: s}}
}

func (g *generator) leave() step {
	s := g.pick(hasEndpoints)
	if s == nil {
		return g.create()
	}
	i := g.IntN(len(s.Endpoints))
	s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
	return step{{slice: s}}
}

// move takes a pod from one slice to another, in two writes of either order, at once or not, changed or not.
func (g *generator) move() step {
	from := g.pick(hasEndpoints)
	if from == nil {
		return g.create()
	}
	to := g.pick(func(s *stored) bool {
		return serviceOf(s.raw) == serviceOf(from) && s.raw.AddressType == from.AddressType && s.raw.Name != from.Name
	})
	if to == nil {
		return g.create()
	}
	i := g.IntN(len(from.Endpoints))
	e := *from.Endpoints[i].DeepCopy()
	from.Endpoints = slices.Delete(from.Endpoints, i, i+1)
	if g.IntN(2) == 0 {
		e.Conditions = g.conditions()
	}
	to.Endpoints = append(to.Endpoints, e)
	if g.IntN(2) == 0 {
		return g.split(write{slice: to}, write{slice: from})
	}
	return g.split(write{slice: from}, write{slice: to})
}

func (g *generator) deleteSlice() step {
	s := g.pick(nil)
	if s == nil {
		return g.create()
	}
	return step{{slice: s, gone: true}}
}

func (g *generator) reworkPorts() step {
	s := g.pick(nil)
	if s == nil {
		return g.create()
	}
	s.Ports = g.ports()
	return step{{slice: s}}
}

// of gives a copy of every slice of a service, in order of names.
func (g *generator) of(service types.NamespacedName) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range g.api.of(service) {
		c := s.raw.DeepCopy()
		c.ResourceVersion = ""
		out = append(out, c)
	}
	return out
}

// rehint gives a service another mode of hints, at once or slice by slice.
func (g *generator) rehint() step {
	service := services[g.IntN(len(services))]
	g.hints[service] = g.IntN(hintModes)
	var out []write
	for _, s := range g.of(service) {
		for i := range s.Endpoints {
			g.hint(&s.Endpoints[i], service)
		}
		out = append(out, write{slice: s})
	}
	return g.split(out...)
}

// label edits the labels of policy.
func (g *generator) label() step {
	s := g.pick(nil)
	if s == nil {
		return g.create()
	}
	name, value := labelTerminating, oneOf(g.Rand, "drain", "drain", "", "what")
	if g.IntN(2) == 0 {
		name, value = labelFailover, oneOf(g.Rand, "any", "none", "region", "", "what")
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	if s.Labels[name] = value; value == "" {
		delete(s.Labels, name)
	}
	return step{{slice: s}}
}

// rollout makes endpoints of a service terminate, and adds others or not.
func (g *generator) rollout() step {
	var out []write
	share := oneOf(g.Rand, 1, 1, 0.7)
	for _, s := range g.of(services[g.IntN(len(services))]) {
		for i := range s.Endpoints {
			if g.chance(share) {
				s.Endpoints[i].Conditions = conditions(false, g.IntN(4) > 0, true)
			}
		}
		if g.IntN(3) == 0 {
			g.add(s)
		}
		out = append(out, write{slice: s})
	}
	return g.split(out...)
}

// service deletes a service and its slices, in any order, or makes it anew.
func (g *generator) service() step {
	name := services[g.IntN(len(services))]
	if g.api.services[name] == nil || g.IntN(3) == 0 {
		return step{{service: g.newService(name)}}
	}
	out := []write{{service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, gone: true}}
	for _, s := range g.of(name) {
		out = append(out, write{slice: s, gone: true})
	}
	g.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	g.queue = append(g.queue, step{{service: g.newService(name)}})
	return g.split(out...)
}

// newService gives a Service of both families, mostly with every name of a port.
func (g *generator) newService(name types.NamespacedName) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	out.Spec.ClusterIPs = []string{"172.16.0.1", "fd01::1"}
	out.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	if g.chance(g.odd / 4) {
		out.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	}
	out.Spec.ClusterIP = out.Spec.ClusterIPs[0]
	for i, port := range portNames {
		if g.chance(g.odd / 2) {
			continue
		}
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: port, Port: int32(80 + i), Protocol: corev1.ProtocolTCP})
		for _, other := range [...]corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: port, Port: int32(80 + i), Protocol: other})
		}
	}
	return out
}

// moveLabel gives a slice to another service, to none, or to an imported one.
func (g *generator) moveLabel() step {
	s := g.pick(nil)
	if s == nil || !g.chance(max(g.odd, g.dirty, 0.1)) {
		return g.turn()
	}
	switch g.IntN(5) {
	case 0:
		s.Labels = nil
	case 1:
		s.Labels = map[string]string{labelImported: services[g.IntN(len(services))].Name}
	case 2:
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "No_Service.can-have-this"}
	case 3:
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "web", labelImported: "api"}
	default:
		s.Labels = map[string]string{discoveryv1.LabelServiceName: oneOf(g.Rand, "web", "api")}
	}
	return step{{slice: s}}
}

// reshape makes a slice anew under its name, of another address type.
func (g *generator) reshape() step {
	s := g.pick(nil)
	if s == nil {
		return g.create()
	}
	s.AddressType = oneOf(g.Rand, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	s.Endpoints = nil
	for range g.IntN(6) {
		g.add(s)
	}
	return step{{slice: s}}
}

func hasEndpoints(s *stored) bool { return len(s.raw.Endpoints) > 0 }
