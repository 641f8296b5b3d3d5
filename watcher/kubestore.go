package watcher

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// kubeRound is one time of listing all namespaces of the extent and watching them from there. What it learns it
// translates and hands on; it keeps no object once all are listed.
type kubeRound struct {
	k      *Kube
	scope  Scope
	handle func(Update)
	end    func() // ends the round

	mu     sync.Mutex // guards all below and the stores, and that handle is called by one goroutine at a time
	begun  bool       // the list was announced
	listed int        // stores that are listed
	stores []*kubeStore
}

// kubeStore is where the reflector of a namespace puts what it learns.
type kubeStore struct {
	r         *kubeRound
	namespace string                    // "" for all
	first     map[object]endpoint.Slice // its content, until all namespaces are listed; nil then, and before its own list
	skips     Skips                     // of its list
	versions  map[object]uint64         // of every object, published or not
	hidden    map[object]uint64         // of those that are not
	refused   map[object]string         // why it is not published, or not whole; logged when it changes
	asOf      uint64
	wanted    *probe // what the cache must reach to be complete as of a probe
}

// probe is a consistent list of names and versions.
type probe struct {
	at       uint64
	versions map[object]uint64
}

func newKubeRound(k *Kube, scope Scope, handle func(Update), end func()) *kubeRound {
	r := &kubeRound{k: k, scope: scope, handle: handle, end: end}
	for _, n := range k.namespaces {
		r.stores = append(r.stores, &kubeStore{
			r: r, namespace: n, versions: map[object]uint64{}, hidden: map[object]uint64{}, refused: map[object]string{},
		})
	}
	return r
}

// all reports whether every namespace is listed.
func (r *kubeRound) all() bool { return r.listed == len(r.stores) }

// list hands on all that the namespaces hold, as of the lowest of their versions.
func (r *kubeRound) list() {
	u := Update{Kind: Listed, Hidden: map[object]uint64{}}
	for i, st := range r.stores {
		for _, sl := range st.first {
			u.Slices = append(u.Slices, sl)
		}
		maps.Copy(u.Hidden, st.hidden)
		u.Skips.Merge(st.skips)
		if st.first = nil; i == 0 || st.asOf < u.AsOf {
			u.AsOf = st.asOf
		}
		if st.namespace != "" {
			if u.Parts == nil {
				u.Parts = map[string]uint64{}
			}
			u.Parts[st.namespace] = st.asOf
		}
	}
	r.handle(u)
	for _, st := range r.stores {
		st.reach()
	}
}

// lose notes that the server did not answer, unless that is because ctx has ended.
func (r *kubeRound) lose(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handle(Update{Kind: Lost, Err: err})
}

var (
	_ cache.ReflectorStore         = (*kubeStore)(nil)
	_ cache.ReflectorBookmarkStore = (*kubeStore)(nil)
	_ cache.TransformingStore      = (*kubeStore)(nil)
)

// Transformer trims what the reflector holds while it streams a list.
func (st *kubeStore) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if es, ok := o.(*discoveryv1.EndpointSlice); ok {
			trim(es)
		}
		return o, nil
	}
}

// trim drops what Translate does not read.
func trim(es *discoveryv1.EndpointSlice) {
	es.ManagedFields, es.OwnerReferences, es.Finalizers = nil, nil, nil
	for key := range es.Annotations {
		if key != annotationTrigger {
			delete(es.Annotations, key)
		}
	}
	for i := range es.Endpoints {
		es.Endpoints[i].DeprecatedTopology = nil
	}
}

// errRound says that a namespace has to be listed again, so that a new round begins.
var errRound = errors.New("all namespaces are listed again")

// begin announces a consistent list.
func (st *kubeStore) begin() error {
	st.r.mu.Lock()
	defer st.r.mu.Unlock()
	if st.r.listed > 0 && st.listed() {
		st.r.end()
		return errRound
	}
	if !st.r.begun {
		st.r.begun = true
		st.r.handle(Update{Kind: Listing})
	}
	return nil
}

func (st *kubeStore) listed() bool { return st.asOf != 0 }

// where names the namespace in an error.
func (st *kubeStore) where() string {
	if st.namespace == "" {
		return ""
	}
	return " of namespace " + st.namespace
}

// Replace takes a whole, consistent list.
func (st *kubeStore) Replace(items []any, version string) error {
	at, err := parseVersion(version)
	if err != nil {
		return err
	}
	st.r.mu.Lock()
	defer st.r.mu.Unlock()
	if st.listed() {
		st.r.end()
		return errRound
	}
	st.first, st.asOf = map[object]endpoint.Slice{}, at
	now := time.Now()
	for _, item := range items {
		es, ok := item.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		st.note(es)
		if sl, ok := st.translate(es, now, &st.skips); ok {
			st.first[objectOf(&sl)] = sl
		}
	}
	if st.r.listed++; st.r.all() {
		st.r.list()
	}
	return nil
}

// Add and Update take a new content.
func (st *kubeStore) Add(o any) error    { return st.change(o) }
func (st *kubeStore) Update(o any) error { return st.change(o) }

func (st *kubeStore) change(o any) error {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	st.r.mu.Lock()
	defer st.r.mu.Unlock()
	at := st.note(es)
	u := Update{Kind: Changed, Namespace: es.Namespace, Name: es.Name, AsOf: at}
	if u.Slice, ok = st.translate(es, time.Now(), &u.Skips); !ok {
		u.Kind, u.There = Removed, true
	}
	st.tell(u)
	return nil
}

// Delete takes a deletion, whose object carries the version of the deletion.
func (st *kubeStore) Delete(o any) error {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	st.r.mu.Lock()
	defer st.r.mu.Unlock()
	id := object{es.Namespace, es.Name}
	delete(st.versions, id)
	delete(st.hidden, id)
	delete(st.refused, id)
	at, _ := parseVersion(es.ResourceVersion)
	st.tell(Update{Kind: Removed, Namespace: es.Namespace, Name: es.Name, AsOf: at})
	return nil
}

// tell hands on a change, or keeps it while other namespaces are not listed yet. The lock is held.
func (st *kubeStore) tell(u Update) {
	st.asOf = max(st.asOf, u.AsOf)
	switch id := (object{u.Namespace, u.Name}); {
	case st.r.all():
		st.r.handle(u)
		st.reach()
	case u.Kind == Changed:
		st.first[id] = u.Slice
		st.skips.Merge(u.Skips)
	case u.Kind == Removed:
		delete(st.first, id)
		st.skips.Merge(u.Skips)
	}
}

// Bookmark moves the as-of.
func (st *kubeStore) Bookmark(version string) error {
	at, err := parseVersion(version)
	if err == nil {
		st.heard(at)
	}
	return err
}

// Resync has no meaning here.
func (st *kubeStore) Resync() error { return nil }

// heard notes that the server answered, and how far the watch is.
func (st *kubeStore) heard(at uint64) {
	st.r.mu.Lock()
	defer st.r.mu.Unlock()
	if !st.listed() {
		return
	}
	st.tell(Update{Kind: Heard, Namespace: st.namespace, AsOf: at})
}

// note remembers the version of an object.
func (st *kubeStore) note(es *discoveryv1.EndpointSlice) uint64 {
	at, _ := parseVersion(es.ResourceVersion)
	st.versions[object{es.Namespace, es.Name}] = at
	return at
}

// translate gives the slice of an object, and logs once what was wrong with it.
func (st *kubeStore) translate(es *discoveryv1.EndpointSlice, now time.Time, skipped *Skips) (sl endpoint.Slice, ok bool) {
	sl, skips, err := Translate(st.r.scope.Cluster, st.r.scope.Generation, es)
	sl.Observed = now
	skipped.Merge(skips)
	id := object{es.Namespace, es.Name}
	if delete(st.hidden, id); err != nil {
		st.hidden[id] = st.versions[id]
	}
	switch {
	case skips.Refused == "":
		delete(st.refused, id)
	case st.refused[id] != skips.Refused:
		st.refused[id] = skips.Refused
		st.r.k.cfg.Log.Warn("a part of an EndpointSlice is refused", "cluster", st.r.scope.Cluster,
			"slice", clip(es.Namespace)+"/"+clip(es.Name), "whole", err != nil, "err", skips.Refused)
	}
	return sl, err == nil
}

// probes brings the as-of forward when a query asks for it: an API server tells a quiet watch only once a minute how
// far it is. The names and versions of a consistent list show what the cache must reach to be complete as of it.
func (k *Kube) probes(ctx context.Context, r *kubeRound) {
	for {
		var at uint64
		select {
		case at = <-k.probe:
		case <-ctx.Done():
			return
		}
		for _, st := range r.stores {
			r.mu.Lock()
			reached := st.asOf >= at
			r.mu.Unlock()
			if reached {
				continue
			}
			p, err := k.readProbe(ctx, st.namespace)
			if err != nil {
				k.cfg.Log.Debug("no consistent list of versions", "err", err)
				continue
			}
			r.mu.Lock()
			st.wanted = p
			st.reach()
			r.mu.Unlock()
		}
	}
}

func (k *Kube) readProbe(ctx context.Context, namespace string) (*probe, error) {
	p := &probe{versions: map[object]uint64{}}
	o := metav1.ListOptions{Limit: 500, LabelSelector: k.extent.query()}
	for {
		list, err := k.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		if p.at == 0 {
			if p.at, err = parseVersion(list.ResourceVersion); err != nil {
				return nil, err
			}
		}
		for i := range list.Items {
			es := &list.Items[i]
			p.versions[object{es.Namespace, es.Name}], _ = parseVersion(es.ResourceVersion)
		}
		acc, err := meta.ListAccessor(list)
		if err != nil {
			return nil, err
		}
		if o.Continue = acc.GetContinue(); o.Continue == "" {
			return p, nil
		}
	}
}

// reach reports the version of the probe when the cache holds all that it shows and nothing that it shows gone.
func (st *kubeStore) reach() {
	p := st.wanted
	if p == nil || !st.r.all() {
		return
	}
	if st.asOf < p.at {
		for o, v := range p.versions {
			if st.versions[o] < v {
				return
			}
		}
		for o, v := range st.versions {
			if _, there := p.versions[o]; !there && v <= p.at {
				return
			}
		}
		st.asOf = p.at
		st.r.handle(Update{Kind: Heard, Namespace: st.namespace, AsOf: p.at})
	}
	st.wanted = nil
}
