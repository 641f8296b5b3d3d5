package watcher

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func ver(g, r uint64) endpoint.Version { return endpoint.Version{Generation: g, Resource: r} }

func TestEveryWriteIsComparedBefore(t *testing.T) {
	hashA, hashB := endpoint.Hash{1}, endpoint.Hash{2}
	live := func(g, r uint64, h endpoint.Hash, tr uint32) Entry {
		return Entry{Seq: 9, Version: ver(g, r), Hash: h, Translator: tr}
	}
	gone := func(g, r uint64) Entry { return Entry{Seq: 9, Version: ver(g, r), Gone: true, Translator: 1} }
	held := Held{Version: ver(2, 10), Hash: hashA, Translator: 1}
	hidden := Held{Version: ver(2, 10), Translator: 2, Hidden: true}
	tests := []struct {
		name   string
		cached Held
		view   Entry
		proven bool
		want   Action
	}{
		{"new slice", held, Entry{}, false, Put},
		{"older on the bus", held, live(2, 9, hashA, 1), false, Put},
		{"lower generation on the bus, higher resource", held, live(1, 99, hashA, 1), false, Put},
		{"same on the bus", held, live(2, 10, hashA, 1), false, Nothing},
		{"newer on the bus: this watcher is behind", held, live(2, 11, hashB, 1), false, Nothing},
		{"higher generation on the bus", held, live(3, 1, hashB, 1), false, Nothing},
		{"other content at the same version", held, live(2, 10, hashB, 1), false, Disagree},
		{"other content by an older translator", held, live(2, 10, hashB, 0), false, Put},
		{"other content by a newer translator", held, live(2, 10, hashB, 2), false, Nothing},
		{"same content by an older translator", held, live(2, 10, hashA, 0), false, Nothing},
		{"tombstone below", held, gone(2, 9), false, Put},
		{"tombstone above", held, gone(2, 11), false, Nothing},
		{"tombstone at the same version", held, gone(2, 10), false, Disagree},
		{"nothing on either side", Held{}, Entry{}, false, Nothing},
		{"gone on both sides", Held{}, gone(2, 9), false, Nothing},
		{"live below the as-of, not cached", Held{}, live(2, 19, hashA, 1), false, Tombstone},
		{"live at the as-of, not cached", Held{}, live(2, 20, hashA, 1), false, Nothing},
		{"live above the as-of, not cached", Held{}, live(2, 21, hashA, 1), false, Nothing},
		{"leftover of a lower generation, no proof", Held{}, live(1, 19, hashA, 1), false, Nothing},
		{"leftover of a lower generation, proved", Held{}, live(1, 99, hashA, 1), true, Tombstone},
		{"live in a higher generation", Held{}, live(3, 1, hashA, 1), true, Nothing},
		{"hidden, nothing on the bus", hidden, Entry{}, false, Nothing},
		{"hidden, gone on the bus", hidden, gone(2, 9), false, Nothing},
		{"hidden, older on the bus", hidden, live(2, 9, hashA, 2), false, Tombstone},
		{"hidden, of a lower generation on the bus", hidden, live(1, 99, hashA, 2), false, Tombstone},
		{"hidden, published at the same version by an older translator", hidden, live(2, 10, hashA, 1), false, Tombstone},
		{"hidden, published at the same version by the same translator", hidden, live(2, 10, hashA, 2), false, Disagree},
		{"hidden, published by a newer translator", hidden, live(2, 9, hashA, 3), false, Nothing},
		{"hidden, newer on the bus", hidden, live(2, 11, hashA, 1), false, Nothing},
		{"published, hidden at the same version by a newer translator", held, Entry{Seq: 9, Version: ver(2, 10), Gone: true, Translator: 2}, false, Nothing},
	}
	for _, tt := range tests {
		if got := Decide(tt.cached, tt.view, ver(2, 20), tt.proven); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestAFloorIsOneThatTheViewIsRightAbout(t *testing.T) {
	h := endpoint.Hash{1}
	live := func(g, r uint64) Entry { return Entry{Seq: 1, Version: ver(g, r), Hash: h} }
	gone := func(g, r uint64) Entry { return Entry{Seq: 1, Version: ver(g, r), Gone: true} }
	held := Held{Version: ver(2, 10), Hash: h, Translator: 1}
	tests := []struct {
		name string
		open []Unsettled
		want endpoint.Version
	}{
		{"nothing open", nil, ver(2, 20)},
		{"settled", []Unsettled{{held, live(2, 10), 0}}, ver(2, 20)},
		{"never seen on the bus", []Unsettled{{held, Entry{}, 0}}, endpoint.Version{}},
		{"created after both agreed that it is not there", []Unsettled{{held, Entry{}, 8}}, ver(2, 8)},
		{"created again after a tombstone", []Unsettled{{held, gone(2, 7), 0}}, ver(2, 7)},
		{"changed since the version on the bus, once or often", []Unsettled{{held, live(2, 5), 0}}, ver(2, 5)},
		{"changed after both agreed", []Unsettled{{held, live(2, 5), 9}}, ver(2, 9)},
		{"ahead on the bus below the as-of: one of them is wrong", []Unsettled{{held, live(2, 15), 0}}, ver(2, 14)},
		{"gone on the bus below the as-of, live in the cache: one of them is wrong", []Unsettled{{held, gone(2, 15), 0}}, ver(2, 14)},
		{"the same, and they agreed below", []Unsettled{{held, gone(2, 15), 12}}, ver(2, 14)},
		{"gone on the bus ahead of the as-of", []Unsettled{{held, gone(2, 25), 0}}, ver(2, 20)},
		{"other content by a newer translator", []Unsettled{{held, Entry{Seq: 1, Version: ver(2, 10), Hash: endpoint.Hash{3}, Translator: 2}, 0}}, ver(2, 20)},
		{"hidden by a newer translator", []Unsettled{{held, Entry{Seq: 1, Version: ver(2, 10), Gone: true, Translator: 2}, 0}}, ver(2, 20)},
		{"hidden here, still published", []Unsettled{{Held{Version: ver(2, 10), Translator: 1, Hidden: true}, Entry{Seq: 1, Version: ver(2, 10), Translator: 1}, 0}}, ver(2, 9)},
		{"hidden here, published by a newer translator", []Unsettled{{Held{Version: ver(2, 10), Translator: 1, Hidden: true}, Entry{Seq: 1, Version: ver(2, 9), Translator: 2}, 0}}, ver(2, 20)},
		{"ahead of the as-of", []Unsettled{{held, live(2, 25), 0}}, ver(2, 20)},
		{"tombstone not written", []Unsettled{{Held{}, live(2, 12), 0}}, ver(2, 12)},
		{"tombstone not written, both agreed later", []Unsettled{{Held{}, live(2, 12), 15}}, ver(2, 15)},
		{"created after the as-of", []Unsettled{{Held{}, live(2, 30), 0}}, ver(2, 20)},
		{"the lowest counts", []Unsettled{{held, live(2, 9), 0}, {held, live(2, 5), 0}, {held, live(2, 9), 0}}, ver(2, 5)},
		{"leftover of a lower generation", []Unsettled{{Held{}, live(1, 12), 0}}, endpoint.Version{}},
		{"not yet rewritten into a new generation", []Unsettled{{held, live(1, 30), 0}}, endpoint.Version{}},
		{"other content at the same version", []Unsettled{{Held{Version: ver(2, 10), Hash: endpoint.Hash{2}, Translator: 1}, live(2, 10), 0}}, ver(2, 9)},
	}
	for _, tt := range tests {
		if got := Floor(ver(2, 20), slices.Values(tt.open)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestMissingIsWhatIsLiveOnTheBusOnly(t *testing.T) {
	k := endpoint.Key{Cluster: "c", Namespace: "n", Service: "s"}
	view := map[Place]Entry{
		{k, "b"}: {Seq: 1}, {k, "a"}: {Seq: 2}, {k, "held"}: {Seq: 3}, {k, "gone"}: {Seq: 4, Gone: true}, {k, "none"}: {},
	}
	got := Missing(func(p Place) bool { return p.Slice == "held" }, maps.All(view))
	if want := []Place{{k, "a"}, {k, "b"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDiffNamesEveryAddressWhoseConditionsChanged(t *testing.T) {
	slice := func(eps ...string) endpoint.Slice {
		es := esl("a", 1)
		for _, e := range eps {
			es.Endpoints = append(es.Endpoints, ep(e[4:], e[:3], e))
		}
		s, _, err := Translate("c", 1, es)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tests := []struct {
		name          string
		before, after endpoint.Slice
		want          []string
	}{
		{"nothing", endpoint.Slice{}, endpoint.Slice{}, nil},
		{"new", endpoint.Slice{}, slice("ttf 10.0.0.2", "ftt 10.0.0.1"), []string{"10.0.0.1 absent -st", "10.0.0.2 absent rs-"}},
		{"gone", slice("ttf 10.0.0.1"), endpoint.Slice{}, []string{"10.0.0.1 rs- absent"}},
		{"terminating, then a successor", slice("ttf 10.0.0.1"), slice("ftt 10.0.0.1", "fff 10.0.0.2"), []string{"10.0.0.1 rs- -st", "10.0.0.2 absent ---"}},
		{"the same", slice("ttf 10.0.0.1"), slice("ttf 10.0.0.1"), nil},
		{"an address taken over: the usable one speaks", slice("fft 10.0.0.1"), slice("fft 10.0.0.1", "ttf 10.0.0.1"), []string{"10.0.0.1 --t rs-"}},
	}
	for _, tt := range tests {
		var got []string
		for _, tr := range Diff(tt.before, tt.after) {
			got = append(got, tr.Addr.String()+" "+tr.Before.String()+" "+tr.After.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: want - got +:\n%s", tt.name, diff)
		}
	}
}
