package bustest

import (
	"context"
	"fmt"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Subjects of a cluster as a whole; no key begins so.
const (
	checkpointOf = "checkpoint/"
	recordOf     = "record/"
)

func events(f *Fake) *stream { return f.events }
func states(f *Fake) *stream { return f.states }

func all(ledger.Notice) bool { return true }

// FakeEvents is the EVENTS stream of a Fake, with the methods of bus.Events.
type FakeEvents struct{ f *Fake }

// Follow is bus.Events.Follow.
func (e *FakeEvents) Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error {
	if err := label(cluster, true); err != nil {
		return err
	}
	return follower{f: e.f, of: events, cluster: cluster, wants: all, handle: func(n ledger.Notice) error {
		if headersOnly {
			n.Event = nil
			if n.Kind == ledger.Refused && !n.Version.IsZero() {
				n.Kind, n.Of = ledger.Changed, 0 // headers alone are good
			}
		}
		return handle(n)
	}}.run(ctx)
}

// FollowRecords is bus.Events.FollowRecords.
func (e *FakeEvents) FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error {
	wants := func(n ledger.Notice) bool { return n.Kind == ledger.Recorded }
	return follower{f: e.f, of: events, wants: wants, handle: handle}.run(ctx)
}

// Put is bus.Events.Put. Tombstones stay until Expire.
func (e *FakeEvents) Put(_ context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	if err := ev.Valid(); err != nil {
		return ledger.Result{}, err
	}
	s := ev.Slice
	return e.f.put(events, s.Key.String()+"/"+s.Name, ledger.Notice{
		Kind: ledger.Changed, Cluster: s.Key.Cluster, Key: s.Key, Slice: s.Name,
		Version: s.Version, Gone: ev.Gone, Hash: s.Hash(), Translator: s.Translator, Event: &ev,
	}, expect)
}

// Get is bus.Events.Get.
func (e *FakeEvents) Get(_ context.Context, key endpoint.Key, slice string) (ledger.Notice, error) {
	return e.f.get(events, key.String()+"/"+slice, ledger.Notice{Cluster: key.Cluster, Key: key, Slice: slice})
}

// Certify is bus.Events.Certify.
func (e *FakeEvents) Certify(_ context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	return e.f.certify(events, cluster, cp, expect)
}

// Record is bus.Events.Record.
func (e *FakeEvents) Record(_ context.Context, cluster string) (ledger.Record, uint64, error) {
	n, err := e.f.get(events, recordOf+cluster, ledger.Notice{})
	if err == nil && n.Kind == ledger.Refused {
		err = fmt.Errorf("the record of cluster %s cannot be read", cluster)
	}
	return n.Record, n.Seq, err
}

// PutRecord is bus.Events.PutRecord.
func (e *FakeEvents) PutRecord(_ context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error) {
	if err := label(cluster, false); err != nil {
		return ledger.Result{}, err
	}
	if r.UID == "" || r.Generation == 0 {
		return ledger.Result{}, fmt.Errorf("cluster record of %s without uid or generation", cluster)
	}
	return e.f.put(events, recordOf+cluster, ledger.Notice{Kind: ledger.Recorded, Cluster: cluster, Record: r}, expect)
}

// Expire removes the message of a slice without a word, as the end of a tombstone's time to live does.
func (e *FakeEvents) Expire(key endpoint.Key, slice string) {
	e.f.change(func() { delete(e.f.events.msgs, key.String()+"/"+slice) })
}

// FakeStates is the STATE stream of a Fake, with the methods of bus.States.
type FakeStates struct{ f *Fake }

// Follow is bus.States.Follow.
func (s *FakeStates) Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	if err := label(cluster, true); err != nil {
		return err
	}
	return follower{f: s.f, of: states, cluster: cluster, wants: all, handle: handle}.run(ctx)
}

// Put is bus.States.Put.
func (s *FakeStates) Put(_ context.Context, st endpoint.State, expect uint64) (ledger.Result, error) {
	if err := st.Valid(); err != nil {
		return ledger.Result{}, err
	}
	return s.f.put(states, st.Key.String(), ledger.Notice{Kind: ledger.Changed, Cluster: st.Key.Cluster, Key: st.Key, State: &st}, expect)
}

// Get is bus.States.Get.
func (s *FakeStates) Get(_ context.Context, key endpoint.Key) (ledger.Notice, error) {
	return s.f.get(states, key.String(), ledger.Notice{Cluster: key.Cluster, Key: key})
}

// Certify is bus.States.Certify.
func (s *FakeStates) Certify(_ context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	return s.f.certify(states, cluster, cp, expect)
}

// Last is bus.States.Last.
func (s *FakeStates) Last(context.Context) (uint64, error) {
	var last uint64
	_, err := s.f.get(func(f *Fake) *stream { last = f.states.last; return f.states }, "", ledger.Notice{})
	return last, err
}

func (f *Fake) certify(of func(*Fake) *stream, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	if err := label(cluster, false); err != nil {
		return ledger.Result{}, err
	}
	if cp.Complete.Generation == 0 || cp.Complete.Resource == 0 {
		return ledger.Result{}, fmt.Errorf("checkpoint of %s is complete as of %s", cluster, cp.Complete)
	}
	return f.put(of, checkpointOf+cluster, ledger.Notice{Kind: ledger.Certified, Cluster: cluster, Checkpoint: cp}, expect)
}

// label checks a cluster's name; "" means all where that is allowed.
func label(cluster string, orAll bool) error {
	if orAll && cluster == "" || endpoint.IsLabel(cluster) {
		return nil
	}
	return fmt.Errorf("cluster name %q is not a DNS label", cluster)
}
