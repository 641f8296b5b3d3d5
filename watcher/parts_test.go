package watcher

import (
	"context"
	"maps"
	"net/http"

	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func in(namespace, name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	es := esl(name, 0, endpoints...)
	es.Namespace = namespace
	return es
}

func TestAWatcherThatMayReadTwoNamespacesOnlyPublishesThem(t *testing.T) {
	for _, streams := range []bool{true, false} {
		a := newAPI()
		for _, ns := range []string{"n1", "n2", "n3"} {
			a.set(in(ns, "a"))
		}
		s := serve(t, a)
		s.streams, s.allow = streams, []string{"n1", "n3"}
		r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here", Namespaces: []string{"n3", "n1", "n3"}, Identity: "ca-1"})
		if uid, err := r.k.UID(t.Context()); err != nil || uid != "ca-1" || r.k.Extent() != "namespaces=n1,n3" {
			t.Fatal(uid, r.k.Extent(), err)
		}
		u := r.next(Listed)
		if len(u.Slices) != 2 || u.AsOf != 103 || !maps.Equal(u.Parts, map[string]uint64{"n1": 103, "n3": 103}) {
			t.Errorf("streams %v: list %+v", streams, u)
		}
		a.set(in("n1", "b"))
		if u := r.next(Changed); u.Slice.Name != "b" || u.Namespace != "n1" || u.AsOf != 104 {
			t.Errorf("streams %v: change %+v", streams, u)
		}
		a.set(in("n2", "b"))
		a.removeFrom("n3", "a")
		if u := r.next(Removed); u.Namespace != "n3" || u.AsOf != 106 || u.There {
			t.Errorf("streams %v: removal %+v", streams, u)
		}
		at, err := r.k.Floor(t.Context())
		if err != nil || at != 106 {
			t.Errorf("floor %d, error %v", at, err)
		}
		r.until(t, 0, "n1 reaches the floor", func(u Update) bool { return u.Kind == Heard && u.Namespace == "n1" && u.AsOf >= 106 })
		a.set(in("n1", "c"))
		r.next(Changed)
		s.change(func() { s.expired = "n1" })
		s.endWatches()
		if u := r.next(Listed); len(u.Slices) != 3 || u.AsOf != 107 {
			t.Errorf("streams %v: one namespace is listed again, so all are: %+v", streams, u)
		}
		a.set(in("n3", "d"))
		if u := r.next(Changed); u.Slice.Name != "d" {
			t.Errorf("streams %v: %+v", streams, u)
		}
	}
}

func TestANamespaceThatMayNotBeReadIsNamedAndNothingIsListed(t *testing.T) {
	a := newAPI()
	a.set(in("n1", "a"))
	s := serve(t, a)
	s.allow = []string{"n1"}
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here", Namespaces: []string{"n1", "n2"}, Identity: "ca-1"})
	if u := r.next(Lost); !strings.Contains(u.Err.Error(), "namespace n2") || !strings.Contains(u.Err.Error(), "Forbidden") {
		t.Errorf("error %v", u.Err)
	}
	a.set(in("n1", "b"))
	a.removeFrom("n1", "a")
	s.change(func() { s.allow = []string{"n1", "n2"} })
	held, listed := map[string]bool{}, false
	r.until(t, 0, "b alone", func(u Update) bool {
		switch u.Kind {
		case Listed:
			listed = true
			clear(held)
			for _, sl := range u.Slices {
				held[sl.Name] = true
			}
		case Changed:
			held[u.Slice.Name] = true
		case Removed:
			delete(held, u.Name)
		}
		if (u.Kind == Changed || u.Kind == Removed) && !listed {
			t.Errorf("before the list: %+v", u)
		}
		return len(held) == 1 && held["b"]
	})
}

func TestAnIdentityThatMayNotBeReadIsAskedFor(t *testing.T) {
	s := serve(t, newAPI())
	s.refuse = http.StatusForbidden
	k, err := NewKube(KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.UID(t.Context()); err == nil || !strings.Contains(err.Error(), "kube-system: permit to get") {
		t.Errorf("error %v", err)
	}
}

// parted is a Source that hears its namespaces each by itself.
type parted struct {
	*apiSource
	say chan Update
}

func (p *parted) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	handle(Update{Kind: Listing})
	u := Update{Kind: Listed, AsOf: uint64(p.a.version), Parts: map[string]uint64{"n1": uint64(p.a.version), "n2": uint64(p.a.version)}}
	for _, es := range p.a.now {
		if sl, ok := p.slice(scope, es); ok {
			u.Slices = append(u.Slices, sl)
		}
	}
	handle(u)
	for {
		select {
		case u := <-p.say:
			handle(u)
		case <-ctx.Done():
			return nil
		}
	}
}

func TestAQuietNamespaceHoldsNoTombstoneOfAnotherAndCertifiesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(in("n1", "a"))
		a.set(in("n1", "b"))
		a.set(in("n2", "c"))
		p := &parted{&apiSource{a: a}, make(chan Update)}
		r.start(p)
		time.Sleep(10 * time.Second)
		r.want("start", "a@1/101", "b@1/102", "c@1/103")
		p.say <- Update{Kind: Removed, Namespace: "n1", Name: "a", AsOf: 110}
		time.Sleep(10 * time.Second)
		r.want("gone at once", "b@1/102", "c@1/103")
		v := r.view()
		if v.gone["a"].Slice.Version != ver(1, 110) || v.cp.Complete != ver(1, 103) {
			t.Errorf("tombstone at %s, checkpoint %s", v.gone["a"].Slice.Version, v.cp.Complete)
		}
		// Another watcher, that is behind in n2, writes what this one knows to be gone.
		key := endpoint.Key{Cluster: "prod", Namespace: "n2", Service: "cart"}
		es := in("n2", "late")
		es.ResourceVersion = "108"
		sl, _, err := Translate("prod", 1, es)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := r.fake.Events().Put(t.Context(), endpoint.Event{Slice: sl}, 0); err != nil || !res.Saved {
			t.Fatal(res, err)
		}
		time.Sleep(time.Minute)
		if n, err := r.fake.Events().Get(t.Context(), key, "late"); err != nil || n.Gone {
			t.Errorf("removed by what another namespace has reached: %+v, %v", n, err)
		}
		p.say <- Update{Kind: Heard, Namespace: "n2", AsOf: 109}
		time.Sleep(time.Minute)
		r.want("n2 has reached it", "b@1/102", "c@1/103")
		if v := r.view(); v.cp.Complete != ver(1, 109) {
			t.Errorf("checkpoint %s, want the lowest of the two", v.cp.Complete)
		}
		p.say <- Update{Kind: Heard, AsOf: 0}
	})
}
