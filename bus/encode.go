// Pure: values of internal/endpoint into protobuf.

package bus

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// Events and States are on the hot path, a service may have thousands of endpoints, and most of them have not changed:
// their bytes are appended straight from the values, into one buffer of the right size. They are those that the
// generated types give; a test compares them. Each message has a pair of functions, its size and its writer, with the
// field numbers of slicecast.proto.

// marshal gives equal bytes for equal messages of one release.
func marshal(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b, nil
}

// encodeEvent is the body of an event. The error names a text that is not UTF-8.
func encodeEvent(ev endpoint.Event) ([]byte, error) {
	w := writer{b: make([]byte, 0, sizeOfEvent(&ev))}
	w.event(&ev)
	return w.done("Event")
}

// encodeState is the body of a State. The error names a text that is not UTF-8.
func encodeState(st endpoint.State) ([]byte, error) {
	w := writer{b: make([]byte, 0, sizeOfState(&st))}
	w.state(&st)
	return w.done("State")
}

func sizeOfEvent(e *endpoint.Event) int {
	k := &e.Slice.Key
	n := sizeOfText(k.Cluster) + sizeOfText(k.Namespace) + sizeOfText(k.Service) + sizeOfPart(sizeOfSlice(&e.Slice)) + sizeOfFlag(e.Gone)
	if !e.Previous.IsZero() {
		n += sizeOfPart(sizeOfVersion(e.Previous))
	}
	for i := range e.Peers {
		n += sizeOfPart(sizeOfRef(&e.Peers[i]))
	}
	for i := range e.Transitions {
		n += sizeOfPart(sizeOfTransition(&e.Transitions[i]))
	}
	return n
}

func (w *writer) event(e *endpoint.Event) {
	w.text(1, e.Slice.Key.Cluster)
	w.text(2, e.Slice.Key.Namespace)
	w.text(3, e.Slice.Key.Service)
	w.part(4, sizeOfSlice(&e.Slice))
	w.slice(&e.Slice)
	w.flag(5, e.Gone)
	w.version(6, e.Previous)
	for i := range e.Peers {
		w.part(7, sizeOfRef(&e.Peers[i]))
		w.ref(&e.Peers[i])
	}
	for i := range e.Transitions {
		w.part(8, sizeOfTransition(&e.Transitions[i]))
		w.transition(&e.Transitions[i])
	}
}

func sizeOfState(s *endpoint.State) int {
	n := sizeOfText(s.Key.Cluster) + sizeOfText(s.Key.Namespace) + sizeOfText(s.Key.Service)
	for i := range s.Slices {
		n += sizeOfPart(sizeOfSlice(&s.Slices[i]))
	}
	for i := range s.Gone {
		n += sizeOfPart(sizeOfRef(&s.Gone[i]))
	}
	if !s.Floor.IsZero() {
		n += sizeOfPart(sizeOfVersion(s.Floor))
	}
	return n
}

func (w *writer) state(s *endpoint.State) {
	w.text(1, s.Key.Cluster)
	w.text(2, s.Key.Namespace)
	w.text(3, s.Key.Service)
	for i := range s.Slices {
		w.part(4, sizeOfSlice(&s.Slices[i]))
		w.slice(&s.Slices[i])
	}
	for i := range s.Gone {
		w.part(5, sizeOfRef(&s.Gone[i]))
		w.ref(&s.Gone[i])
	}
	w.version(6, s.Floor)
}

func encodeCheckpoint(cp ledger.Checkpoint) ([]byte, error) {
	return marshal(&slicecastv1.Checkpoint{
		Complete: versionMessage(cp.Complete), AsOf: cp.AsOf, Count: cp.Count, Sum: cp.Sum.Bytes(), WrittenAt: timeMessage(cp.Written),
	})
}

func encodeRecord(r ledger.Record) ([]byte, error) {
	return marshal(&slicecastv1.Cluster{Uid: r.UID, Generation: r.Generation, Region: r.Region, Policy: r.Policy, Scope: r.Scope})
}

func versionMessage(v endpoint.Version) *slicecastv1.Version {
	if v.IsZero() {
		return nil
	}
	return &slicecastv1.Version{Generation: v.Generation, Resource: v.Resource}
}

func timeMessage(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
