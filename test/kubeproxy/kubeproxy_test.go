package kubeproxy

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/proxy"
)

// family is an address family; both sides decide for each on its own.
type family int

const (
	v4 family = iota
	v6
)

var families = [...]family{v4, v6}

func (f family) addressType() discoveryv1.AddressType {
	return [...]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f]
}

// kubeProxy is the part of a dual-stack kube-proxy that decides, wired as its proxiers wire it.
type kubeProxy struct {
	families [len(families)]kubeFamily
	left     map[types.NamespacedName]map[string]*stored // slices that it holds under a service that they have left
}

type kubeFamily struct {
	endpointChanges *proxy.EndpointsChangeTracker
	serviceChanges  *proxy.ServiceChangeTracker
	endpoints       proxy.EndpointsMap
	services        proxy.ServicePortMap
}

func newKubeProxy() *kubeProxy {
	k := &kubeProxy{left: map[types.NamespacedName]map[string]*stored{}}
	for i, f := range [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		k.families[i] = kubeFamily{
			// The node's name only says which endpoints are local, which the Cluster traffic policy does not ask.
			endpointChanges: proxy.NewEndpointsChangeTracker(f, "", nil, nil),
			serviceChanges:  proxy.NewServiceChangeTracker(f, nil, nil),
			endpoints:       proxy.EndpointsMap{},
			services:        proxy.ServicePortMap{},
		}
	}
	return k
}

// slice tells it what the informer says, exactly as its proxiers' handlers do: of an update only the new object.
func (k *kubeProxy) slice(e told) {
	switch {
	case e.now == nil:
		k.update(e.before, true)
	case e.before == nil:
		k.update(e.now, false)
	default:
		k.update(e.now, false)
		if old := kubeServiceOf(e.before.raw); old.Name != "" && old != kubeServiceOf(e.now.raw) {
			if k.left[old] == nil {
				k.left[old] = map[string]*stored{}
			}
			k.left[old][e.before.raw.Name] = e.before
		}
	}
	if e.now != nil {
		delete(k.left[kubeServiceOf(e.now.raw)], e.now.raw.Name) // It is back.
	}
}

func (k *kubeProxy) update(s *stored, remove bool) {
	for i := range k.families {
		k.families[i].endpointChanges.EndpointSliceUpdate(s.defaulted, remove)
	}
}

// forget removes what it holds of slices that have left their service, and gives these services.
func (k *kubeProxy) forget() []types.NamespacedName {
	var out []types.NamespacedName
	for service, gone := range k.left {
		for _, s := range gone {
			k.update(s, true)
		}
		if len(gone) > 0 {
			out = append(out, service)
		}
		delete(k.left, service)
	}
	return out
}

func (k *kubeProxy) service(before, now *corev1.Service) {
	for i := range k.families {
		k.families[i].serviceChanges.Update(before, now)
	}
}

// sync is what a proxier does before it writes rules.
func (k *kubeProxy) sync() {
	for i := range k.families {
		f := &k.families[i]
		f.services.Update(f.serviceChanges)
		f.endpoints.Update(f.endpointChanges)
	}
}

// usable gives the addresses that a kube-proxy of that place would send new connections to. known is false where it
// knows no such port of a Service, and so does nothing.
func (k *kubeProxy) usable(f family, name proxy.ServicePortName, at place) (out []proxy.Endpoint, known bool) {
	kf := &k.families[f]
	info, known := kf.services[name]
	if !known {
		return nil, false
	}
	return categorize(kf.endpoints[name], info, at), true
}

// place is where a kube-proxy runs: its node and the labels of that.
type place struct{ zone, node string }

// categorize asks kube-proxy which of the endpoints are used.
func categorize(endpoints []proxy.Endpoint, info proxy.ServicePort, at place) []proxy.Endpoint {
	labels := map[string]string{}
	if at.zone != "" {
		labels[corev1.LabelTopologyZone] = at.zone
	}
	used, _, _, _ := proxy.CategorizeEndpoints(endpoints, info, at.node, labels)
	return used
}
