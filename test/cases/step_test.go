package cases

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

// step is one line of what the API server went through. One of object, record, name and restart is set.
type step struct {
	text    string
	cluster string
	version uint64                     // 0: the next one
	object  *discoveryv1.EndpointSlice // without resourceVersion
	deleted bool                       // object is not there any more
	region  string
	record  bool
	name    *xdsserver.Name
	restart bool
}

func parseStep(text string) (step, error) {
	s := step{text: text}
	words := strings.Fields(text)
	switch {
	case len(words) >= 3 && (words[0] == "set" || words[0] == "del"):
		key, err := endpoint.ParseKey(words[1])
		if err != nil {
			return s, err
		}
		s.cluster, s.deleted = key.Cluster, words[0] == "del"
		s.object = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: words[2], Labels: map[string]string{discoveryv1.LabelServiceName: key.Service},
		}}
		return s, s.parseObject(words[3:])
	case len(words) == 3 && words[0] == "record":
		s.cluster, s.region, s.record = words[1], words[2], true
	case len(words) == 2 && words[0] == "name":
		n, err := xdsserver.ParseName(words[1])
		s.name = &n
		return s, err
	case len(words) == 1 && words[0] == "restart":
		s.restart = true
	default:
		return s, fmt.Errorf("%q is not a step", text)
	}
	return s, nil
}

func (s *step) parseObject(words []string) error {
	for len(words) > 0 && isOption(words[0]) {
		if err := s.setOption(words[0]); err != nil {
			return err
		}
		words = words[1:]
	}
	if s.deleted {
		if len(words) > 0 {
			return fmt.Errorf("%q after a slice that is deleted", words[0])
		}
		return nil
	}
	if len(words) == 0 {
		return errors.New("no ports: write - for none")
	}
	var err error
	if s.object.Ports, err = parsePorts(words[0]); err != nil {
		return err
	}
	for _, w := range words[1:] {
		eps, err := parseEndpoints(w)
		if err != nil {
			return fmt.Errorf("endpoint %q: %w", w, err)
		}
		s.object.Endpoints = append(s.object.Endpoints, eps...)
	}
	if s.object.AddressType == "" {
		s.object.AddressType = discoveryv1.AddressTypeIPv4
		if eps := s.object.Endpoints; len(eps) > 0 && len(eps[0].Addresses) > 0 && strings.Contains(eps[0].Addresses[0], ":") {
			s.object.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	return nil
}

func isOption(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && !strings.ContainsAny(name, ":[")
}

func (s *step) setOption(word string) error {
	name, value, _ := strings.Cut(word, "=")
	labels := s.object.Labels
	switch name {
	case "rv":
		v, err := strconv.ParseUint(value, 10, 64)
		s.version = v
		return err
	case "uid":
		s.object.UID = types.UID(value)
	case "type":
		s.object.AddressType = discoveryv1.AddressType(value)
	case "service":
		if labels[discoveryv1.LabelServiceName] = value; value == "none" {
			delete(labels, discoveryv1.LabelServiceName)
		}
	case "imported":
		labels["multicluster.kubernetes.io/service-name"] = value
	case "terminating", "failover":
		labels["slicecast.io/"+name] = value
	case "label":
		key, text, _ := strings.Cut(value, ":")
		labels[key] = text
	default:
		return fmt.Errorf("no option %q", name)
	}
	return nil
}

func parsePorts(word string) ([]discoveryv1.EndpointPort, error) {
	if word == "-" {
		return nil, nil
	}
	var all []discoveryv1.EndpointPort
	for part := range strings.SplitSeq(word, ",") {
		rest, protocol, hasProtocol := strings.Cut(part, "@")
		rest, app, hasApp := strings.Cut(rest, "/")
		name, number, ok := strings.Cut(rest, ":")
		if !ok {
			return nil, fmt.Errorf("port %q is not NAME:NUMBER", part)
		}
		p := discoveryv1.EndpointPort{Name: &name}
		if name == "nil" {
			p.Name = nil
		}
		if hasApp {
			p.AppProtocol = &app
		}
		if hasProtocol {
			p.Protocol = new(corev1.Protocol(protocol))
		}
		if number != "nil" {
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("port %q: %w", part, err)
			}
			p.Port = new(int32(n))
		}
		all = append(all, p)
	}
	return all, nil
}

// parseEndpoints reads one word: one endpoint, or N of them in a row.
func parseEndpoints(word string) ([]discoveryv1.Endpoint, error) {
	addrs, rest, ok := strings.Cut(word, "[")
	conditions, rest, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 {
		return nil, errors.New("not ADDR[R/S/T]")
	}
	var e discoveryv1.Endpoint
	var err error
	if e.Conditions, err = parseConditions(conditions); err != nil {
		return nil, err
	}
	zone, attrs, some := strings.Cut(rest, "{")
	if zone != "" {
		e.Zone = new(strings.TrimPrefix(zone, "@"))
	}
	if some {
		for attr := range strings.SplitSeq(strings.TrimSuffix(attrs, "}"), ",") {
			if err := setAttribute(&e, attr); err != nil {
				return nil, err
			}
		}
	}
	first, count, row := strings.Cut(addrs, "*")
	if !row {
		if addrs != "" {
			e.Addresses = strings.Split(addrs, "+")
		}
		return []discoveryv1.Endpoint{e}, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(first)
	if err != nil {
		return nil, err
	}
	all := make([]discoveryv1.Endpoint, 0, n)
	for i := range n {
		one := *e.DeepCopy()
		one.Addresses = []string{addr.String()}
		if one.TargetRef != nil {
			one.TargetRef.Name += fmt.Sprint("-", i)
			one.TargetRef.UID += types.UID(fmt.Sprint("-", i))
		}
		all = append(all, one)
		addr = addr.Next()
	}
	return all, nil
}

func parseConditions(text string) (c discoveryv1.EndpointConditions, err error) {
	if text == "" {
		return c, nil
	}
	words := strings.Split(text, "/")
	if len(words) != 3 {
		return c, fmt.Errorf("conditions %q are not R/S/T", text)
	}
	for i, at := range []**bool{&c.Ready, &c.Serving, &c.Terminating} {
		switch words[i] {
		case "T", "F":
			*at = new(words[i] == "T")
		case "-":
		default:
			return c, fmt.Errorf("condition %q is not T, F or -", words[i])
		}
	}
	return c, nil
}

func setAttribute(e *discoveryv1.Endpoint, attr string) error {
	name, value, _ := strings.Cut(attr, "=")
	switch name {
	case "uid":
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: value, UID: types.UID(value)}
	case "node":
		e.NodeName = &value
	case "host":
		e.Hostname = &value
	case "zones":
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		for z := range strings.SplitSeq(value, "+") {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
	case "nodes":
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		for n := range strings.SplitSeq(value, "+") {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
	default:
		return fmt.Errorf("no attribute %q", name)
	}
	return nil
}

// copyOf gives an object of its own, so that steps can be used again.
func copyOf(es *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := es.DeepCopy()
	out.Labels = maps.Clone(es.Labels)
	return out
}
