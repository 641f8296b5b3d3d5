package endpointtest_test

import (
	"flag"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/endpointtest"
)

var update = flag.Bool("update", false, "rewrite the states in the shared traces")

var same = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}

func TestWhatIsPrintedIsParsedAsItWas(t *testing.T) {
	for seed := range uint64(500) {
		want := endpointtest.NewRandom(seed).Trace()
		got, err := endpointtest.Parse(want.String())
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, want)
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Fatalf("seed %d: (-want +got)\n%s\n%s", seed, diff, want)
		}
	}
}

func TestAPrintedStateIsParsedAsItWas(t *testing.T) {
	for seed := range uint64(500) {
		r := endpointtest.NewRandom(seed)
		want := r.State(r.Key())
		got, err := endpointtest.ParseState(endpointtest.FormatState(want))
		if err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, endpointtest.FormatState(want))
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Fatalf("seed %d: (-want +got)\n%s", seed, diff)
		}
	}
}

func TestRandomValuesAreLegal(t *testing.T) {
	for seed := range uint64(500) {
		r := endpointtest.NewRandom(seed)
		if st := r.State(r.Key()); st.Valid() != nil {
			t.Fatalf("seed %d: state: %v", seed, st.Valid())
		}
		if e := r.Event(r.Key()); e.Valid() != nil {
			t.Fatalf("seed %d: event: %v", seed, e.Valid())
		}
		api := endpointtest.NewAPI("prod")
		for range 30 {
			api.Change(r)
		}
		for _, e := range api.Writes {
			if err := e.Valid(); err != nil {
				t.Fatalf("seed %d: history: %v", seed, err)
			}
		}
		if st := api.View(r, api.Keys()[0], endpoint.Version{Generation: 1, Resource: 1 + r.Uint64N(20)}); st.Valid() != nil {
			t.Fatalf("seed %d: view: %v", seed, st.Valid())
		}
	}
}

func TestABadTraceNamesItsLine(t *testing.T) {
	const set = "set prod/shop/cart cart-a rv=1 "
	for _, tt := range []struct{ name, text, want string }{
		{"no step", "hello", "line 1"},
		{"key", "\nset prod/shop cart-a rv=1 -", "line 2"},
		{"slice name", "set prod/shop/cart A rv=1 -", "not a DNS subdomain"},
		{"no version", "set prod/shop/cart cart-a http:80", "no version"},
		{"no ports", set, "no ports"},
		{"port without number", set + "http", "NAME:NUMBER"},
		{"port number", set + "http:65536", "out of range"},
		{"app", set + "http:80/%Z", "escape"},
		{"option", set + "colour=red -", `"colour"`},
		{"option escape", set + "uid=%1 -", "option uid"},
		{"translator", set + "translator=x -", "option translator"},
		{"peers", set + "peers=cart-b -", "SLICE@V"},
		{"peer version", set + "peers=cart-b@x -", "option peers"},
		{"observed", set + "observed=today -", "option observed"},
		{"observed escape", set + "observed=%zz -", "option observed"},
		{"endpoint", set + "- 10.0.0.1", "ADDR[rst]"},
		{"address", set + "- 10.0.0[rs-]", "ParseAddr"},
		{"conditions", set + "- 10.0.0.1[rsx]", "three of"},
		{"zone", set + "- 10.0.0.1[rs-]z1", "bad zone"},
		{"brace", set + "- 10.0.0.1[rs-]@z1{uid=a", "last brace"},
		{"attribute", set + "- 10.0.0.1[rs-]@z1{colour=red}", `"colour"`},
		{"hints", set + "- 10.0.0.1[rs-]{zones=a%2Cb}", "comma"},
		{"hints escape", set + "- 10.0.0.1[rs-]{zones=%1}", "escape"},
		{"duplicate", set + "- 10.0.0.1[rs-] 10.0.0.1[-st]", "twice"},
		{"families", set + "- 10.0.0.1[rs-] fd00::1[rs-]", "families"},
		{"gone with ports", "gone prod/shop/cart cart-a rv=1 http:80", "that is gone"},
		{"gone without slice", "gone prod/shop/cart", "not a step"},
		{"late comment", set + "-\n# late", "line 2"},
		{"open", "open Prod", "not a step"},
		{"checkpoint", "checkpoint prod rv=x", "version"},
		{"body without head", "----\n  cart-a", "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := endpointtest.Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestABadStateIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		body       []string
		want       string
	}{
		{"other section", "assign zone=z1", nil, "not state KEY"},
		{"key", "state prod/cart", nil, "key"},
		{"attribute", "state prod/shop/cart colour=red", nil, "colour"},
		{"floor", "state prod/shop/cart floor=x", nil, "version"},
		{"wrong version", "state prod/shop/cart rv=2", []string{"cart-a rv=1 -"}, "holds 1"},
		{"peers", "state prod/shop/cart rv=1", []string{"cart-a rv=1 peers=cart-b@1 -"}, "more than"},
		{"line", "state prod/shop/cart rv=1", []string{"cart-a rv=1"}, "no ports"},
		{"empty line", "state prod/shop/cart rv=1", []string{""}, "no slice"},
		{"live and gone", "state prod/shop/cart rv=2", []string{"cart-a rv=1 -", "gone cart-a rv=2"}, "live and gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := endpointtest.ParseState(endpointtest.Section{Head: tt.head, Body: tt.body})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestASliceMayBeNamedGone(t *testing.T) {
	st, err := endpointtest.ParseState(endpointtest.Section{Head: "state prod/shop/cart rv=2", Body: []string{"gone rv=1 -", "gone gone2 rv=2"}})
	if err != nil || len(st.Slices) != 1 || len(st.Gone) != 1 {
		t.Errorf("got %+v, %v, want one slice and one tombstone", st, err)
	}
}

func TestTheSharedTracesCoverWhatTheyShould(t *testing.T) {
	names, err := fs.Glob(endpointtest.Files(), "*.trace")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 20 {
		t.Errorf("got %d traces, want at least 20", len(names))
	}
	for _, name := range names {
		text, err := fs.ReadFile(endpointtest.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := endpointtest.Parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(tr.Stages[0].Comment) == 0 {
			t.Errorf("%s does not say what it shows", name)
		}
	}
}

func TestSharedTracesHoldByThePlainFold(t *testing.T) {
	endpointtest.Run(t, *update, map[string]endpointtest.Answer{"state": func(told []endpointtest.Step, asked endpointtest.Section) (endpointtest.Section, error) {
		for _, st := range endpointtest.States(told) {
			if sec := endpointtest.FormatState(st); strings.HasPrefix(asked.Head+" ", "state "+st.Key.String()+" ") {
				return sec, nil
			}
		}
		return endpointtest.Section{Head: "no state"}, nil
	}})
}

func FuzzTrace(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(endpointtest.NewRandom(seed).Trace().String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := endpointtest.Parse(text)
		if err != nil {
			return
		}
		again, err := endpointtest.Parse(parsed.String())
		if err != nil {
			t.Fatalf("printed trace is not parsed: %v\n%s", err, parsed)
		}
		if again.String() != parsed.String() {
			t.Errorf("got\n%s\nwant\n%s", again, parsed)
		}
	})
}
