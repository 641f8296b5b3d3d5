package sandbox

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// maxEndpointsPerSlice is the EndpointSlice controller's default.
const maxEndpointsPerSlice = 100

const (
	nodeName = "sandbox"
	zoneName = "sandbox-a"
)

// slicePod is what the EndpointSlice controller knows of a pod.
type slicePod struct {
	name, uid          string
	ip                 netip.Addr
	slice              int // Number of the slice that it is in, from 0.
	ready, terminating bool
}

// slicesOf gives the EndpointSlices of a Service with these pods. A service without pods has one slice without endpoints, and
// a slice that was in use stays: count is the number of slices to give, at least 1.
func slicesOf(w Workload, pods []slicePod, count int, changed time.Time) []discoveryv1.EndpointSlice {
	all := make([]discoveryv1.EndpointSlice, max(count, 1))
	for i := range all {
		all[i] = emptySlice(w, i, changed)
	}
	ordered := slices.SortedFunc(slices.Values(pods), func(a, b slicePod) int { return a.ip.Compare(b.ip) })
	for _, p := range ordered {
		all[p.slice].Endpoints = append(all[p.slice].Endpoints, endpointOf(w, p))
	}
	return all
}

func emptySlice(w Workload, number int, changed time.Time) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: fmt.Sprintf("%s-%d", w.Name, number),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: w.Name,
				discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: changed.UTC().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new(PortName), Port: new(int32(Port)), Protocol: new(corev1.ProtocolTCP),
		}},
	}
}

// endpointOf sets the conditions as the controller does: serving is the pod's readiness, ready is that and not terminating.
func endpointOf(w Workload, p slicePod) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{p.ip.String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(p.ready && !p.terminating), Serving: new(p.ready), Terminating: new(p.terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: p.name, UID: types.UID(p.uid)},
		NodeName:  new(nodeName),
		Zone:      new(zoneName),
	}
}

// writeManifest replaces a manifest in one step: a reader sees the old or the new one, whole.
func writeManifest(dir string, s discoveryv1.EndpointSlice) error {
	data, err := yaml.Marshal(s)
	if err != nil {
		return fmt.Errorf("write slice %s: %w", s.Name, err)
	}
	temporary := filepath.Join(dir, "."+s.Name+".tmp")
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("write slice %s: %w", s.Name, err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, s.Name+".yaml")); err != nil {
		return fmt.Errorf("write slice %s: %w", s.Name, err)
	}
	return nil
}

// UsableEndpoints is what a proxy should use of a port's slices: the ready endpoints, or if there is none the serving ones that
// terminate. It is the plain reading of the API's conditions, written without slicecast's code so that it can judge it.
func UsableEndpoints(all []discoveryv1.EndpointSlice, port string) []netip.AddrPort {
	var ready, fallback []netip.AddrPort
	for _, s := range all {
		for _, p := range s.Ports {
			if p.Port == nil || value(p.Name, "") != port {
				continue
			}
			for _, e := range s.Endpoints {
				ip, err := netip.ParseAddr(e.Addresses[0])
				if err != nil {
					continue
				}
				at := netip.AddrPortFrom(ip, uint16(*p.Port))
				switch c := e.Conditions; {
				case value(c.Ready, true):
					ready = append(ready, at)
				case value(c.Serving, true) && value(c.Terminating, false):
					fallback = append(fallback, at)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = fallback
	}
	return sortedUnique(ready)
}

// AllEndpoints is every address of the slices, whatever its conditions say.
func AllEndpoints(all []discoveryv1.EndpointSlice) []netip.AddrPort {
	var found []netip.AddrPort
	for _, s := range all {
		for _, e := range s.Endpoints {
			if ip, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				found = append(found, netip.AddrPortFrom(ip, Port))
			}
		}
	}
	return sortedUnique(found)
}

func sortedUnique(all []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(all, func(a, b netip.AddrPort) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
	})
	return slices.Compact(all)
}

func value[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
