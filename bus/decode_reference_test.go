package bus

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/internal/endpoint"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// What decodeEvent and decodeState read, by the generated types alone: the reference of the tests.

func referenceEvent(body []byte) (endpoint.Event, error) {
	var m slicecastv1.Event
	if err := proto.Unmarshal(body, &m); err != nil {
		return endpoint.Event{}, refuse(badBody, fmt.Errorf("decode event: %w", err))
	}
	key := endpoint.Key{Cluster: m.GetCluster(), Namespace: m.GetNamespace(), Service: m.GetService()}
	sl, err := referenceSlice(key, m.GetSlice())
	if err != nil {
		return endpoint.Event{}, fmt.Errorf("decode event of %s: %w", key, err)
	}
	ev := endpoint.Event{Slice: sl, Gone: m.GetGone(), Previous: versionValue(m.GetPrevious()), Peers: refValues(m.GetPeers())}
	for _, t := range m.GetTransitions() {
		addr, ok := netip.AddrFromSlice(t.GetAddress())
		if !ok {
			return endpoint.Event{}, fmt.Errorf("decode event of %s: transition with an address of %d bytes", key, len(t.GetAddress()))
		}
		ev.Transitions = append(ev.Transitions, endpoint.Transition{
			Addr: addr, Before: conditionsValue(t.GetBefore()), After: conditionsValue(t.GetAfter()),
		})
	}
	if err := ev.Valid(); err != nil {
		return endpoint.Event{}, fmt.Errorf("decode event of %s: %w", key, err)
	}
	return ev, nil
}

func referenceState(body []byte) (endpoint.State, error) {
	var m slicecastv1.State
	if err := proto.Unmarshal(body, &m); err != nil {
		return endpoint.State{}, refuse(badBody, fmt.Errorf("decode state: %w", err))
	}
	st := endpoint.State{
		Key:   endpoint.Key{Cluster: m.GetCluster(), Namespace: m.GetNamespace(), Service: m.GetService()},
		Gone:  refValues(m.GetGone()),
		Floor: versionValue(m.GetFloor()),
	}
	for _, s := range m.GetSlices() {
		sl, err := referenceSlice(st.Key, s)
		if err != nil {
			return endpoint.State{}, fmt.Errorf("decode state of %s: %w", st.Key, err)
		}
		st.Slices = append(st.Slices, sl)
	}
	if err := st.Valid(); err != nil {
		return endpoint.State{}, fmt.Errorf("decode: %w", err)
	}
	return st, nil
}

func referenceSlice(key endpoint.Key, m *slicecastv1.Slice) (endpoint.Slice, error) {
	s := endpoint.Slice{
		Key:               key,
		Name:              m.GetName(),
		UID:               m.GetUid(),
		Version:           versionValue(m.GetVersion()),
		TerminatingPolicy: m.GetTerminatingPolicy(),
		FailoverPolicy:    m.GetFailoverPolicy(),
		Translator:        m.GetTranslator(),
	}
	var err error
	if s.Observed, err = timeValue(m.GetObservedAt()); err != nil {
		return s, fmt.Errorf("slice %s: observed_at: %w", clip(s.Name), err)
	}
	if s.Triggered, err = timeValue(m.GetTriggeredAt()); err != nil {
		return s, fmt.Errorf("slice %s: triggered_at: %w", clip(s.Name), err)
	}
	for _, p := range m.GetPorts() {
		if p.GetNumber() > 65535 {
			return s, fmt.Errorf("slice %s: port number %d", clip(s.Name), p.GetNumber())
		}
		s.Ports = append(s.Ports, endpoint.Port{Name: p.GetName(), Number: uint16(p.GetNumber()), AppProtocol: p.GetAppProtocol()})
	}
	if n := len(m.GetEndpoints()); n > endpoint.MaxEndpoints {
		return s, fmt.Errorf("slice %s: %d endpoints are more than %d", clip(s.Name), n, endpoint.MaxEndpoints)
	} else if n > 0 {
		s.Endpoints = make([]endpoint.Endpoint, 0, n)
	}
	for _, e := range m.GetEndpoints() {
		v, err := referenceEndpoint(e)
		if err != nil {
			return s, fmt.Errorf("slice %s: %w", clip(s.Name), err)
		}
		s.Endpoints = append(s.Endpoints, v)
	}
	return s, nil
}

func referenceEndpoint(m *slicecastv1.Endpoint) (endpoint.Endpoint, error) {
	addr, ok := netip.AddrFromSlice(m.GetAddress())
	if !ok {
		return endpoint.Endpoint{}, fmt.Errorf("an address of %d bytes", len(m.GetAddress()))
	}
	e := endpoint.Endpoint{
		Addr:       addr,
		Conditions: bits(m.GetReady(), m.GetServing(), m.GetTerminating()),
		Zone:       m.GetZone(),
		Node:       m.GetNode(),
		TargetKind: m.GetTargetKind(),
		TargetName: m.GetTargetName(),
		TargetUID:  m.GetTargetUid(),
		Hostname:   m.GetHostname(),
	}
	var err error
	if e.ZoneHints, err = referenceList(m.GetZoneHints()); err != nil {
		return e, err
	}
	e.NodeHints, err = referenceList(m.GetNodeHints())
	return e, err
}

// referenceList joins hints. An empty one, or one with a comma in it, would read back as another list.
func referenceList(items []string) (string, error) {
	for _, item := range items {
		if item == "" || strings.Contains(item, ",") {
			return "", fmt.Errorf("hint %q is empty or holds a comma", clip(item))
		}
	}
	return strings.Join(items, ","), nil
}
