package kubeproxy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	pods      = 16 // different pods
	hintModes = 6
)

// address gives the address of a pod in a family, sometimes in a spelling that old API servers let through.
func (g *generator) address(kind discoveryv1.AddressType, pod int) string {
	n := pod + 1
	if g.chance(g.dirty) {
		n = 1 + g.IntN(4) // The pod has the address of another.
	}
	old := g.chance(g.odd)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		return fmt.Sprintf("p%d.example.com", n)
	case kind == discoveryv1.AddressTypeIPv4 && old && g.IntN(2) == 0:
		return fmt.Sprintf("010.000.00.%03d", n)
	case kind == discoveryv1.AddressTypeIPv4 && old:
		return fmt.Sprintf("::ffff:10.0.0.%d", n)
	case kind == discoveryv1.AddressTypeIPv4:
		return fmt.Sprintf("10.0.0.%d", n)
	default:
		return fmt.Sprintf("fd00::%x", n)
	}
}

// add appends an endpoint: a pod that the service has nowhere else in that family, or, in dirty histories, any.
func (g *generator) add(s *discoveryv1.EndpointSlice) {
	pod := g.IntN(pods)
	if !g.chance(g.dirty) {
		taken := g.taken(s)
		for range pods {
			if !taken[podUID(pod)] {
				break
			}
			pod = (pod + 1) % pods
		}
		if taken[podUID(pod)] {
			return
		}
	}
	e := discoveryv1.Endpoint{Addresses: []string{g.address(s.AddressType, pod)}, Conditions: g.conditions()}
	for g.chance(g.odd) {
		e.Addresses = append(e.Addresses, g.address(s.AddressType, g.IntN(pods)))
	}
	e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: fmt.Sprintf("web-%d", pod), UID: podUID(pod)}
	if g.chance(g.odd) {
		e.TargetRef = nil
	} else if g.chance(g.odd / 4) {
		e.TargetRef = &corev1.ObjectReference{Kind: "Node", Name: "n1"}
	}
	if g.chance(g.odd) {
		e.Hostname = new(fmt.Sprintf("h%d", g.IntN(3)))
	}
	g.place(&e, pod)
	g.hint(&e, serviceOf(s))
	s.Endpoints = append(s.Endpoints, e)
}

func podUID(pod int) types.UID { return types.UID(fmt.Sprintf("pod-%d", pod)) }

// taken gives the pods that slices of the service have in the family of s.
func (g *generator) taken(s *discoveryv1.EndpointSlice) map[types.UID]bool {
	out := map[types.UID]bool{}
	note := func(of *discoveryv1.EndpointSlice) {
		for i := range of.Endpoints {
			if ref := of.Endpoints[i].TargetRef; ref != nil {
				out[ref.UID] = true
			}
		}
	}
	note(s)
	for _, other := range g.api.of(serviceOf(s)) {
		if other.raw.Name != s.Name && other.raw.AddressType == s.AddressType {
			note(other.raw)
		}
	}
	return out
}

// place puts an endpoint on the node and into the zone of a pod, mostly.
func (g *generator) place(e *discoveryv1.Endpoint, pod int) {
	e.NodeName, e.Zone = new(fmt.Sprintf("n%d", 1+pod%4)), new(fmt.Sprintf("z%d", 1+pod%3))
	if g.chance(0.1) {
		e.NodeName = nil
	}
	if g.chance(0.1) {
		e.Zone = oneOf(g.Rand, nil, new(""), new("z2"))
	}
}

// hint gives an endpoint the hints that its service's mode asks for.
func (g *generator) hint(e *discoveryv1.Endpoint, service types.NamespacedName) {
	mode := g.hints[service]
	e.Hints = nil
	if mode == 0 {
		return
	}
	if !g.chance(g.hinted) {
		mode = g.IntN(hintModes)
	}
	e.Hints = &discoveryv1.EndpointHints{}
	zones, nodes := 0, 0
	switch mode {
	case 1: // As the controller writes them: the own zone.
		if e.Zone != nil {
			e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
		}
		if e.Zone != nil && *e.Zone == "" && !g.chance(g.odd) {
			e.Hints.ForZones = nil
		}
	case 2: // The own zone and node.
		zones = 1
		if e.NodeName != nil {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
	case 3:
		zones = 1 + g.IntN(3)
	case 4:
		nodes = 1 + g.IntN(3)
	case 5:
		zones, nodes = g.IntN(3), g.IntN(3)
	}
	for range zones {
		if h := (discoveryv1.ForZone{Name: fmt.Sprintf("z%d", 1+g.IntN(3))}); !slices.Contains(e.Hints.ForZones, h) {
			e.Hints.ForZones = append(e.Hints.ForZones, h)
		}
	}
	for range nodes {
		if h := (discoveryv1.ForNode{Name: fmt.Sprintf("n%d", 1+g.IntN(3))}); !slices.Contains(e.Hints.ForNodes, h) {
			e.Hints.ForNodes = append(e.Hints.ForNodes, h)
		}
	}
}

func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

// conditions gives what controllers write, mostly, and anything at all.
func (g *generator) conditions() discoveryv1.EndpointConditions {
	switch n := g.IntN(100); {
	case n < 40:
		return conditions(true, true, false)
	case n < 50:
		return discoveryv1.EndpointConditions{} // nil everywhere: ready
	case n < 62:
		return conditions(false, true, true)
	case n < 68:
		return conditions(false, false, true)
	case n < 76:
		return conditions(false, false, false)
	case n < 84: // As with publishNotReadyAddresses.
		return conditions(true, g.IntN(2) == 0, g.IntN(2) == 0)
	default:
		any3 := func() *bool { return oneOf(g.Rand, nil, new(false), new(true)) }
		return discoveryv1.EndpointConditions{Ready: any3(), Serving: any3(), Terminating: any3()}
	}
}

// ports gives ports of different names, mostly the usual two.
func (g *generator) ports() []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for i, name := range portNames {
		usual := name == "http" || name == "grpc"
		if !g.chance(0.85) && usual || !usual && !g.chance(max(0.1, g.odd)) {
			continue
		}
		p := discoveryv1.EndpointPort{Name: &portNames[i], Port: new(int32(8080 + 10*i))}
		switch {
		case g.chance(0.15):
			p.Port = oneOf(g.Rand, new(int32(8080)), new(int32(9090)), new(int32(65535)))
		case g.chance(g.odd):
			p.Port = oneOf(g.Rand, nil, new(int32(0)), new(int32(70000)), new(int32(-1)))
		}
		if name == "" && g.IntN(2) == 0 {
			p.Name = nil
		}
		if g.IntN(2) == 0 {
			p.Protocol = new(corev1.ProtocolTCP)
		} else if g.chance(max(g.odd/2, 0.02)) {
			p.Protocol = oneOf(g.Rand, new(corev1.ProtocolUDP), new(corev1.ProtocolSCTP))
		}
		if g.chance(g.odd) {
			p.AppProtocol = new("kubernetes.io/h2c")
		}
		out = append(out, p)
	}
	g.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
