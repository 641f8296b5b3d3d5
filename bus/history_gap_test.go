package bus

import (
	"fmt"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestAGapIsAVersionThatWasNotShown(t *testing.T) {
	key := endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "web"}
	l := newLastVersions(10)
	for i, step := range [...]struct{ name, previous, is, missing uint64 }{
		{1, 0, 4, 0}, {1, 4, 5, 0}, {1, 7, 9, 7}, {1, 9, 10, 0},
		{2, 3, 4, 0},                 // the first of its slice
		{1, 11, 12, 11},              // ahead of a copy that is late
		{1, 10, 11, 0},               // the late copy
		{1, 12, 13, 0},               // and on
		{1, 0, 14, 0},                // the bus had lost it
		{1, 5, 15, 0}, {2, 9, 10, 9}, // the bus went back; another slice goes by itself
	} {
		ev := endpoint.Event{Slice: endpoint.Slice{Key: key, Name: fmt.Sprint(step.name), Version: version(step.is)}}
		if step.previous > 0 {
			ev.Previous = version(step.previous)
		}
		if got := l.take(&ev); got.Resource != step.missing {
			t.Errorf("step %d: got %s, want %d", i, got, step.missing)
		}
	}
}

func TestTheMemoryForGapsIsBoundedAndHoldsTheLatest(t *testing.T) {
	l := newLastVersions(100)
	put := func(name int, previous, is uint64) endpoint.Version {
		return l.take(&endpoint.Event{Slice: endpoint.Slice{Name: fmt.Sprint(name), Version: version(is)}, Previous: version(previous)})
	}
	for i := range 1000 {
		put(i, 1, 2)
		if n := len(l.young) + len(l.old); n > 200 {
			t.Fatalf("%d slices are remembered, want at most 200", n)
		}
	}
	if got := put(960, 9000, 9001); got != version(9000) {
		t.Errorf("got %s, want a gap of a recent slice to be seen", got)
	}
	if got := put(3, 9000, 9001); !got.IsZero() {
		t.Errorf("got %s of a slice forgotten long ago, want nothing known", got)
	}
}
