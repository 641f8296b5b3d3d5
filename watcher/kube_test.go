package watcher

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// kubeRig is a Kube source on a server.
type kubeRig struct {
	*heardOf
	t   *testing.T
	k   *Kube
	log *lines
	n   int
}

func watchKube(t *testing.T, cfg KubeConfig) *kubeRig {
	t.Helper()
	r := &kubeRig{&heardOf{moved: make(chan struct{})}, t, nil, &lines{}, 0}
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	k, err := NewKube(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.k = k
	r.run()
	return r
}

func (r *kubeRig) run() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.k.Watch(ctx, Scope{"prod", 3}, r.handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.t.Error(err)
			}
		case <-time.After(patience):
			r.t.Error("Watch did not end with its context")
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// next waits for an update of a kind, as "name@version" or "name" and the as-of.
func (r *kubeRig) next(kind UpdateKind) Update {
	r.t.Helper()
	var u Update
	u, r.n = r.until(r.t, r.n, "an update", func(u Update) bool { return u.Kind == kind })
	return u
}

// asOf waits until the source says that it is complete as of at.
func (r *kubeRig) asOf(at uint64) {
	r.t.Helper()
	r.until(r.t, 0, "an as-of", func(u Update) bool { return u.AsOf >= at })
}

func TestAnAPIServerIsListedAndWatched(t *testing.T) {
	for _, streams := range []bool{true, false} {
		a := newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		none := esl("none", 0)
		none.Labels = nil
		a.set(none)
		s := serve(t, a)
		s.streams = streams
		r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
		u := r.next(Listed)
		if len(u.Slices) != 1 || u.Slices[0].Version != ver(3, 101) || u.AsOf != 102 || u.Skips.Count(SkippedNoService) != 1 || u.Slices[0].Observed.IsZero() {
			t.Errorf("streams %v: list %+v", streams, u)
		}
		a.set(esl("b", 0, ep("10.0.0.2", "nnn", "y")))
		if u := r.next(Changed); u.Slice.Name != "b" || u.AsOf != 103 || show(u.Slice) != "http:8080 10.0.0.2[rs-]y" {
			t.Errorf("streams %v: change %+v", streams, u)
		}
		a.remove("a")
		if u := r.next(Removed); u.Namespace != "shop" || u.Name != "a" || u.AsOf != 104 {
			t.Errorf("streams %v: removal %+v", streams, u)
		}
		lost := esl("b", 0)
		lost.Labels = nil
		a.set(lost)
		if u := r.next(Removed); u.Name != "b" || u.AsOf != 105 {
			t.Errorf("streams %v: a slice that lost its service: %+v", streams, u)
		}
		for _, q := range s.lists() {
			if v := q.Get("resourceVersion"); v != "" {
				t.Errorf("streams %v: a list with resourceVersion %q", streams, v)
			}
		}
	}
}

func TestEveryPageOfALongListIsRead(t *testing.T) {
	a := newAPI()
	for i := range 1203 {
		a.set(esl("s"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+itoa(i), 0))
	}
	s := serve(t, a)
	s.streams = false
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	if u := r.next(Listed); len(u.Slices) != 1203 {
		t.Errorf("%d slices", len(u.Slices))
	}
	if n := len(s.lists()); n < 3 {
		t.Errorf("%d lists, want pages", n)
	}
}

func TestBookmarksAndQueriesMoveTheAsOf(t *testing.T) {
	a := newAPI()
	a.set(esl("a", 0))
	s := serve(t, a)
	s.bookmark = 5 * time.Millisecond
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	r.next(Listed)
	a.do(func() { a.version = 200 }) // something else of the cluster changed
	r.asOf(200)
	s.change(func() { s.bookmark = 0 })
	s.endWatches()
	a.do(func() { a.version = 300 })
	at, err := r.k.Floor(t.Context())
	if err != nil || at != 300 {
		t.Fatalf("floor %d, error %v", at, err)
	}
	r.asOf(300)
	a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
	if u := r.next(Changed); u.AsOf != 301 {
		t.Errorf("%+v", u)
	}
}

func TestAnOutageIsReportedAndWatchedThrough(t *testing.T) {
	a := newAPI()
	a.set(esl("a", 0))
	s := serve(t, a)
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	r.next(Listed)
	a.setDown(true)
	s.endWatches()
	if u := r.next(Lost); u.Err == nil {
		t.Errorf("%+v", u)
	}
	a.set(esl("b", 0))
	a.remove("a")
	a.setDown(false)
	r.until(t, r.n, "b after the outage", func(u Update) bool {
		return u.Kind == Changed && u.Slice.Name == "b" || u.Kind == Listed && len(u.Slices) == 1 && u.Slices[0].Name == "b"
	})
	for _, u := range r.all {
		if u.Kind == Listed && len(u.Slices) == 0 {
			t.Error("an outage looked like an empty cluster")
		}
	}
}

func TestAServerThatCannotBeReachedAtStartIsNamed(t *testing.T) {
	a := newAPI()
	s := serve(t, a)
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig()}) // the current context points to a closed port
	if u := r.next(Lost); !strings.Contains(u.Err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", u.Err)
	}
	if _, err := r.k.UID(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, err := r.k.Floor(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestAServerThatForbidsIsLost(t *testing.T) {
	s := serve(t, newAPI())
	s.refuse = http.StatusForbidden
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	if u := r.next(Lost); !strings.Contains(u.Err.Error(), "Forbidden") {
		t.Errorf("error %v", u.Err)
	}
	s.change(func() { s.refuse = 0 })
	r.next(Listed)
}

func TestAHistoryBehindTheWatchIsListedAnew(t *testing.T) {
	a := newAPI()
	a.set(esl("a", 0))
	a.set(esl("b", 0))
	s := serve(t, a)
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	r.next(Listed)
	old := a.now[object{"shop", "a"}]
	a.restore(101, old)
	s.endWatches()
	if u := r.next(Listed); u.AsOf != 101 || len(u.Slices) != 1 {
		t.Errorf("%+v", u)
	}
}

func TestAnotherClusterAtTheSameAddressIsNotListened(t *testing.T) {
	a := newAPI()
	a.set(esl("a", 0))
	s := serve(t, a)
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	if uid, err := r.k.UID(t.Context()); err != nil || uid != "uid-1" {
		t.Fatal(uid, err)
	}
	r.next(Listed)
	a.do(func() { a.uid = "uid-2" })
	a.remove("a")
	r.next(Removed) // the connection that is there still belongs to the old one
	s.endWatches()
	if u := r.next(Lost); !strings.Contains(u.Err.Error(), "another cluster") {
		t.Errorf("error %v", u.Err)
	}
	a.do(func() { a.uid = "uid-1" })
	a.set(esl("b", 0))
	r.until(t, r.n, "b of the first cluster", func(u Update) bool {
		return u.Kind == Changed && u.Slice.Name == "b" || u.Kind == Listed && len(u.Slices) == 1
	})
}

func TestTheScopeIsThatOfNamespacesAndSelector(t *testing.T) {
	a := newAPI()
	for i, ns := range []string{"n1", "n2", "n3"} {
		es := esl("a", 0)
		es.Namespace = ns
		es.Labels["tier"] = []string{"x", "x", "y"}[i]
		a.set(es)
	}
	s := serve(t, a)
	for _, tt := range []struct {
		namespaces []string
		selector   string
		want       int
	}{{nil, "", 3}, {[]string{"n2"}, "", 1}, {[]string{"n1", "n3"}, "", 2}, {[]string{"n1", "n3"}, "tier=x", 1}, {nil, "tier in (x)", 2}} {
		r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here", Namespaces: tt.namespaces, Selector: tt.selector})
		if u := r.next(Listed); len(u.Slices) != tt.want {
			t.Errorf("%+v: %d slices", tt, len(u.Slices))
		}
	}
}

func TestARefusedPartIsLoggedOnce(t *testing.T) {
	a := newAPI()
	bad := esl("bad", 0, ep("10.0.0.300", "ttf", "x"), ep("10.0.0.1", "ttf", "y"))
	a.set(bad)
	s := serve(t, a)
	r := watchKube(t, KubeConfig{Kubeconfig: s.kubeconfig(), Context: "here"})
	if u := r.next(Listed); len(u.Slices) != 1 || len(u.Slices[0].Endpoints) != 1 {
		t.Errorf("%+v", u)
	}
	for range 3 {
		a.set(bad)
		r.next(Changed)
	}
	if n := r.log.count("10.0.0.300"); n != 1 {
		t.Errorf("%d lines:\n%s", n, r.log)
	}
}

func TestABadConfigurationGetsOneLine(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]KubeConfig{
		"missing":     {Kubeconfig: filepath.Join(dir, "nope")},
		"broken":      {Kubeconfig: broken},
		"selector":    {Kubeconfig: broken, Selector: "a==b==c"},
		"not in pod":  {InCluster: true},
		"bad context": {Kubeconfig: serve(t, newAPI()).kubeconfig(), Context: "nope"},
	} {
		_, err := NewKube(cfg)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
