package watcher

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// server serves the model as an API server does: JSON over HTTP, lists in pages, watches with bookmarks.
type server struct {
	*api
	t    *testing.T
	http *httptest.Server

	mu       sync.Mutex
	streams  bool // knows sendInitialEvents
	asked    []url.Values
	refuse   int           // status of every answer, 0 for none
	allow    []string      // namespaces whose slices may be read, and nothing else; nil: all
	expired  string        // namespace whose watches cannot be resumed
	bookmark time.Duration // 0: none but the one that ends initial events
	ended    chan struct{} // closed: all watches end
}

func serve(t *testing.T, a *api) *server {
	s := &server{api: a, t: t, streams: true, ended: make(chan struct{})}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() { s.endWatches(); s.http.Close() })
	return s
}

// kubeconfig writes one that points here.
func (s *server) kubeconfig() string {
	path := filepath.Join(s.t.TempDir(), "config")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: other
clusters: [{name: c, cluster: {server: %q}}, {name: o, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: c, user: u}}, {name: other, context: {cluster: o, user: u}}]
users: [{name: u, user: {token: x}}]
`, s.http.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *server) change(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *server) endWatches() {
	s.change(func() { close(s.ended); s.ended = make(chan struct{}) })
}

// lists gives the queries of lists (streamed ones too) so far.
func (s *server) lists() (out []url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if q.Get("watch") == "" || q.Get("sendInitialEvents") != "" {
			out = append(out, q)
		}
	}
	return out
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	refuse, streams, bookmark, ended := s.refuse, s.streams, s.bookmark, s.ended
	if s.allow != nil && (!strings.HasSuffix(r.URL.Path, "/endpointslices") || !slices.Contains(s.allow, namespaceOf(r.URL.Path))) {
		refuse = http.StatusForbidden
	}
	expired := s.expired != "" && s.expired == namespaceOf(r.URL.Path) && q.Get("watch") != "" && q.Get("sendInitialEvents") == ""
	if strings.HasSuffix(r.URL.Path, "/endpointslices") {
		s.asked = append(s.asked, q)
	}
	s.mu.Unlock()
	s.api.mu.Lock()
	down, uid := s.down, s.uid
	s.api.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case refuse != 0:
		status(w, refuse, metav1.StatusReasonForbidden)
	case expired:
		s.change(func() { s.expired = "" })
		status(w, http.StatusGone, metav1.StatusReasonExpired)
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		answer(w, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system", "uid": uid}})
	case !strings.HasSuffix(r.URL.Path, "/endpointslices"):
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case q.Get("watch") == "":
		s.list(w, q, namespaceOf(r.URL.Path))
	case q.Get("sendInitialEvents") != "" && !streams:
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	default:
		s.watch(w, r, q, bookmark, ended)
	}
}

func namespaceOf(path string) string {
	_, rest, ok := strings.Cut(path, "/namespaces/")
	if !ok {
		return ""
	}
	ns, _, _ := strings.Cut(rest, "/")
	return ns
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: string(reason)})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (s *server) matching(q url.Values, ns string) (out []discoveryv1.EndpointSlice, version int) {
	sel, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
	}
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(s.now), func(a, b object) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	}) {
		if es := s.now[id]; sel.Matches(labels.Set(es.Labels)) && (ns == "" || ns == id.namespace) {
			out = append(out, *es)
		}
	}
	return out, s.version
}

func (s *server) list(w http.ResponseWriter, q url.Values, ns string) {
	items, version := s.matching(q, ns)
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: sliceAPI, Kind: "EndpointSliceList"}}
	list.ResourceVersion = strconv.Itoa(version)
	list.Items = items[min(from, len(items)):]
	if limit > 0 && len(list.Items) > limit {
		list.Items, list.Continue = list.Items[:limit], strconv.Itoa(from+limit)
	}
	answer(w, list)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, q url.Values, every time.Duration, ended chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	flush := w.(http.Flusher)
	send := func(kind string, es discoveryv1.EndpointSlice) {
		es.TypeMeta = metav1.TypeMeta{APIVersion: sliceAPI, Kind: sliceKind}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": es})
		flush.Flush()
	}
	mark := func(version int, end bool) {
		es := discoveryv1.EndpointSlice{}
		es.ResourceVersion = strconv.Itoa(version)
		if end {
			es.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		send("BOOKMARK", es)
	}
	at, _ := strconv.Atoi(q.Get("resourceVersion"))
	if q.Get("sendInitialEvents") != "" {
		items, version := s.matching(q, namespaceOf(r.URL.Path))
		for _, es := range items {
			send("ADDED", es)
		}
		mark(version, true)
		at = version
	} else {
		flush.Flush()
	}
	var tick <-chan time.Time
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		tick = ticker.C
	}
	ns := namespaceOf(r.URL.Path)
	src := &apiSource{a: s.api}
	for {
		s.api.mu.Lock()
		moved, version := s.moved, s.version
		s.api.mu.Unlock()
		if c, ok := src.next(at); ok {
			at = c.version
			es := *c.es.DeepCopy()
			es.ResourceVersion = strconv.Itoa(c.version)
			kind := "MODIFIED"
			if c.gone {
				kind = "DELETED"
			}
			if ns == "" || ns == es.Namespace {
				send(kind, es)
			}
			continue
		}
		select {
		case <-moved:
		case <-tick:
			mark(version, false)
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}
