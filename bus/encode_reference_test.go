package bus

import (
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// What encodeEvent and encodeState write, as the generated types have it: the reference of the tests.

func eventMessage(ev endpoint.Event) *slicecastv1.Event {
	m := &slicecastv1.Event{
		Cluster:   ev.Slice.Key.Cluster,
		Namespace: ev.Slice.Key.Namespace,
		Service:   ev.Slice.Key.Service,
		Slice:     sliceMessage(&ev.Slice),
		Gone:      ev.Gone,
		Previous:  versionMessage(ev.Previous),
		Peers:     refMessages(ev.Peers),
	}
	for _, t := range ev.Transitions {
		m.Transitions = append(m.Transitions, &slicecastv1.Transition{
			Address: t.Addr.AsSlice(), Before: conditionsMessage(t.Before), After: conditionsMessage(t.After),
		})
	}
	return m
}

func stateMessage(st endpoint.State) *slicecastv1.State {
	m := &slicecastv1.State{
		Cluster:   st.Key.Cluster,
		Namespace: st.Key.Namespace,
		Service:   st.Key.Service,
		Slices:    make([]*slicecastv1.Slice, 0, len(st.Slices)),
		Gone:      refMessages(st.Gone),
		Floor:     versionMessage(st.Floor),
	}
	for i := range st.Slices {
		m.Slices = append(m.Slices, sliceMessage(&st.Slices[i]))
	}
	return m
}

func sliceMessage(s *endpoint.Slice) *slicecastv1.Slice {
	m := &slicecastv1.Slice{
		Name:              s.Name,
		Uid:               s.UID,
		Version:           versionMessage(s.Version),
		TerminatingPolicy: s.TerminatingPolicy,
		FailoverPolicy:    s.FailoverPolicy,
		Translator:        s.Translator,
		ObservedAt:        timeMessage(s.Observed),
		TriggeredAt:       timeMessage(s.Triggered),
	}
	for _, p := range s.Ports {
		m.Ports = append(m.Ports, &slicecastv1.Port{Name: p.Name, Number: uint32(p.Number), AppProtocol: p.AppProtocol})
	}
	if len(s.Endpoints) > 0 {
		m.Endpoints = make([]*slicecastv1.Endpoint, len(s.Endpoints))
	}
	for i := range s.Endpoints {
		m.Endpoints[i] = endpointMessage(&s.Endpoints[i])
	}
	return m
}

func endpointMessage(e *endpoint.Endpoint) *slicecastv1.Endpoint {
	return &slicecastv1.Endpoint{
		Address:     e.Addr.AsSlice(),
		Ready:       e.Conditions&endpoint.Ready != 0,
		Serving:     e.Conditions&endpoint.Serving != 0,
		Terminating: e.Conditions&endpoint.Terminating != 0,
		Zone:        e.Zone,
		Node:        e.Node,
		ZoneHints:   splitList(e.ZoneHints),
		NodeHints:   splitList(e.NodeHints),
		TargetKind:  e.TargetKind,
		TargetName:  e.TargetName,
		TargetUid:   e.TargetUID,
		Hostname:    e.Hostname,
	}
}

func refMessages(refs []endpoint.Ref) []*slicecastv1.Ref {
	var out []*slicecastv1.Ref
	for _, r := range refs {
		out = append(out, &slicecastv1.Ref{
			Name: r.Name, Version: versionMessage(r.Version), Translator: r.Translator, ObservedAt: timeMessage(r.Observed),
		})
	}
	return out
}

func conditionsMessage(c endpoint.Conditions) *slicecastv1.Conditions {
	if c&endpoint.Absent != 0 {
		return nil
	}
	return &slicecastv1.Conditions{
		Ready: c&endpoint.Ready != 0, Serving: c&endpoint.Serving != 0, Terminating: c&endpoint.Terminating != 0,
	}
}

func splitList(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
