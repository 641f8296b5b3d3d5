// Pure: protobuf into values of internal/endpoint, every one of them valid.

package bus

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

func decodeEvent(body []byte) (endpoint.Event, error) {
	var m slicecastv1.Event
	if err := proto.Unmarshal(body, &m); err != nil {
		return endpoint.Event{}, refuse(badBody, fmt.Errorf("decode event: %w", err))
	}
	key := endpoint.Key{Cluster: m.GetCluster(), Namespace: m.GetNamespace(), Service: m.GetService()}
	sl, err := sliceValue(key, m.GetSlice())
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

func decodeState(body []byte) (endpoint.State, error) {
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
		sl, err := sliceValue(st.Key, s)
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

func decodeCheckpoint(body []byte) (ledger.Checkpoint, error) {
	var m slicecastv1.Checkpoint
	if err := proto.Unmarshal(body, &m); err != nil {
		return ledger.Checkpoint{}, refuse(badBody, fmt.Errorf("decode checkpoint: %w", err))
	}
	sum, err := ledger.SumOf(m.GetSum())
	if err != nil {
		return ledger.Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	at, err := timeValue(m.GetWrittenAt())
	if err != nil {
		return ledger.Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	cp := ledger.Checkpoint{Complete: versionValue(m.GetComplete()), AsOf: m.GetAsOf(), Count: m.GetCount(), Sum: sum, Written: at}
	return cp, validCheckpoint(cp)
}

func decodeRecord(body []byte) (ledger.Record, error) {
	var m slicecastv1.Cluster
	if err := proto.Unmarshal(body, &m); err != nil {
		return ledger.Record{}, refuse(badBody, fmt.Errorf("decode cluster record: %w", err))
	}
	r := ledger.Record{UID: m.GetUid(), Generation: m.GetGeneration(), Region: m.GetRegion(), Policy: m.GetPolicy(), Scope: m.GetScope()}
	return r, validRecord(r)
}

func validCheckpoint(cp ledger.Checkpoint) error {
	if cp.Complete.Generation == 0 || cp.Complete.Resource == 0 {
		return fmt.Errorf("checkpoint is complete as of %s", cp.Complete)
	}
	return nil
}

func validRecord(r ledger.Record) error {
	if r.UID == "" {
		return errors.New("cluster record without uid")
	}
	if r.Generation == 0 {
		return errors.New("cluster record with generation 0")
	}
	return nil
}

func sliceValue(key endpoint.Key, m *slicecastv1.Slice) (endpoint.Slice, error) {
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
		v, err := endpointValue(e)
		if err != nil {
			return s, fmt.Errorf("slice %s: %w", clip(s.Name), err)
		}
		s.Endpoints = append(s.Endpoints, v)
	}
	return s, nil
}

func endpointValue(m *slicecastv1.Endpoint) (endpoint.Endpoint, error) {
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
	if e.ZoneHints, err = joinList(m.GetZoneHints()); err != nil {
		return e, err
	}
	e.NodeHints, err = joinList(m.GetNodeHints())
	return e, err
}

// joinList joins hints. An empty one, or one with a comma in it, would read back as another list.
func joinList(items []string) (string, error) {
	for _, item := range items {
		if item == "" || strings.Contains(item, ",") {
			return "", fmt.Errorf("hint %q is empty or holds a comma", clip(item))
		}
	}
	return strings.Join(items, ","), nil
}

func refValues(refs []*slicecastv1.Ref) []endpoint.Ref {
	var out []endpoint.Ref
	for _, r := range refs {
		ref := endpoint.Ref{Name: r.GetName(), Version: versionValue(r.GetVersion()), Translator: r.GetTranslator()}
		// The time of a tombstone is for people: one that is out of range is left out rather than refused.
		ref.Observed, _ = timeValue(r.GetObservedAt())
		out = append(out, ref)
	}
	return out
}

func versionValue(m *slicecastv1.Version) endpoint.Version {
	return endpoint.Version{Generation: m.GetGeneration(), Resource: m.GetResource()}
}

func conditionsValue(m *slicecastv1.Conditions) endpoint.Conditions {
	if m == nil {
		return endpoint.Absent
	}
	return bits(m.GetReady(), m.GetServing(), m.GetTerminating())
}

func bits(ready, serving, terminating bool) endpoint.Conditions {
	var c endpoint.Conditions
	if ready {
		c |= endpoint.Ready
	}
	if serving {
		c |= endpoint.Serving
	}
	if terminating {
		c |= endpoint.Terminating
	}
	return c
}

func timeValue(m *timestamppb.Timestamp) (time.Time, error) {
	if m == nil {
		return time.Time{}, nil
	}
	if err := m.CheckValid(); err != nil {
		return time.Time{}, fmt.Errorf("time: %w", err)
	}
	return m.AsTime(), nil
}
