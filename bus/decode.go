// Pure: protobuf into values of internal/endpoint, every one of them valid.

package bus

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// unmarshal reads a message; the error is a refusal.
func unmarshal(body []byte, m proto.Message) error {
	if err := proto.Unmarshal(body, m); err != nil {
		return refuse(badBody, err)
	}
	return nil
}

func decodeEvent(body []byte) (endpoint.Event, error) {
	var m slicecastv1.Event
	var slice []byte
	rest, parts, err := split(body, slicesIn, nil)
	if err == nil {
		slice, err = merged(parts)
	}
	if err == nil {
		err = unmarshal(rest, &m)
	}
	if err != nil {
		return endpoint.Event{}, fmt.Errorf("decode event: %w", err)
	}
	key := endpoint.Key{Cluster: m.GetCluster(), Namespace: m.GetNamespace(), Service: m.GetService()}
	sl, err := (&sliceReader{}).read(key, slice)
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
	rest, parts, err := split(body, slicesIn, nil)
	if err == nil {
		err = unmarshal(rest, &m)
	}
	if err != nil {
		return endpoint.State{}, fmt.Errorf("decode state: %w", err)
	}
	st := endpoint.State{
		Key:   endpoint.Key{Cluster: m.GetCluster(), Namespace: m.GetNamespace(), Service: m.GetService()},
		Gone:  refValues(m.GetGone()),
		Floor: versionValue(m.GetFloor()),
	}
	if len(parts) > 0 {
		st.Slices = make([]endpoint.Slice, 0, len(parts))
	}
	var r sliceReader
	for _, part := range parts {
		sl, err := r.read(st.Key, part)
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
	if err := unmarshal(body, &m); err != nil {
		return ledger.Checkpoint{}, fmt.Errorf("decode checkpoint: %w", err)
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
	if err := unmarshal(body, &m); err != nil {
		return ledger.Record{}, fmt.Errorf("decode cluster record: %w", err)
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
