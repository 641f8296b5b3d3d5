package xdsserver

import (
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// refuse lets the Store hear that the State of a Key cannot be read.
func (r *reader) refuse(key endpoint.Key) {
	r.t.Helper()
	r.seq++
	delete(r.views, key)
	if err := r.tell(ledger.Notice{Kind: ledger.Refused, Of: ledger.Changed, Cluster: key.Cluster, Key: key, Seq: r.seq}); err != nil {
		r.t.Fatal(err)
	}
}

func TestAStateThatCannotBeReadStaysAsItWasAndTheOthersLive(t *testing.T) {
	r := newReader(t)
	a, b := sliceOf("prod", "a", 10, ep("10.0.0.1 rs-")), ofService(sliceOf("prod", "o", 15, ep("10.0.0.3 rs-")), "shop", "other")
	for _, again := range [...]bool{false, true} {
		if r.open(); !again {
			r.state(stateOf(a))
		}
		r.state(stateOf(b))
		r.refuse(a.Key)
		r.complete()
		for range 10 { // Whoever certifies this view knows no better than that nothing can be read.
			if err := r.certify("prod", 40, false); err != nil {
				t.Fatalf("got %v, want no new session", err)
			}
		}
		r.want("cart", "a@10")
		b.Version.Resource++
		r.state(stateOf(b))
		r.want("other", "o@"+map[bool]string{false: "16", true: "17"}[again])
	}
	if r.s.clusters["prod"].synced {
		t.Error("in sync with what cannot be read")
	}
	a.Version.Resource = 12
	r.state(stateOf(a))
	r.want("cart", "a@12")
	if err := r.certify("prod", 40, false); err != nil || !r.s.clusters["prod"].synced {
		t.Errorf("got %v and sync %v after all can be read, want sync", err, r.s.clusters["prod"].synced)
	}
	r.want("cart", "a@12")
}

func TestWhatCannotBeReadMakesNoClusterExpected(t *testing.T) {
	r := newReader(t)
	r.open()
	r.refuse(endpoint.Key{Cluster: "nowhere", Namespace: "shop", Service: "cart"})
	r.complete()
	if waiting, _ := r.s.waiting(); len(waiting) != 0 || len(r.s.clusterNames()) != 0 {
		t.Errorf("waiting for %v, known %v, want none", waiting, r.s.clusterNames())
	}
	if got := r.s.applied; got != r.seq {
		t.Errorf("applied up to %d, want %d", got, r.seq)
	}
}
