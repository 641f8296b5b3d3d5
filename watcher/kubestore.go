package watcher

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// kubeStore is where the reflector puts what it learns: it translates and hands on, and keeps no object.
type kubeStore struct {
	k      *Kube
	scope  Scope
	handle func(Update)

	mu       sync.Mutex        // guards all below, and that handle is called by one goroutine at a time
	versions map[object]uint64 // of every object in scope, published or not
	refused  map[object]string // why it is not published, or not whole; logged when it changes
	asOf     uint64
	wanted   *probe // what the cache must reach to be complete as of a probe
}

// probe is a consistent list of names and versions.
type probe struct {
	at       uint64
	versions map[object]uint64
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

// Replace takes a whole, consistent list.
func (st *kubeStore) Replace(items []any, version string) error {
	at, err := parseVersion(version)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	u := Update{Kind: Listed, AsOf: at}
	clear(st.versions)
	now := time.Now()
	for _, item := range items {
		es, ok := item.(*discoveryv1.EndpointSlice)
		if !ok || !st.inScope(es) {
			continue
		}
		st.note(es)
		if sl, ok := st.translate(es, now, &u); ok {
			u.Slices = append(u.Slices, sl)
		}
	}
	for o := range st.refused {
		if _, there := st.versions[o]; !there {
			delete(st.refused, o)
		}
	}
	st.asOf = at
	st.handle(u)
	st.reach()
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
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.inScope(es) {
		return nil
	}
	at := st.note(es)
	u := Update{Kind: Changed, Namespace: es.Namespace, Name: es.Name, AsOf: at}
	if u.Slice, ok = st.translate(es, time.Now(), &u); !ok {
		u.Kind = Removed
	}
	st.asOf = max(st.asOf, at)
	st.handle(u)
	st.reach()
	return nil
}

// Delete takes a deletion, whose object carries the version of the deletion.
func (st *kubeStore) Delete(o any) error {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	id := object{es.Namespace, es.Name}
	delete(st.versions, id)
	delete(st.refused, id)
	at, _ := parseVersion(es.ResourceVersion)
	st.asOf = max(st.asOf, at)
	st.handle(Update{Kind: Removed, Namespace: es.Namespace, Name: es.Name, AsOf: at})
	st.reach()
	return nil
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
	st.mu.Lock()
	defer st.mu.Unlock()
	st.asOf = max(st.asOf, at)
	st.handle(Update{Kind: Heard, AsOf: at})
	st.reach()
}

// lose notes that the server did not answer, unless that is because ctx has ended.
func (st *kubeStore) lose(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.handle(Update{Kind: Lost, Err: err})
}

// begin announces a consistent list.
func (st *kubeStore) begin() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.handle(Update{Kind: Listing})
}

func (st *kubeStore) inScope(es *discoveryv1.EndpointSlice) bool {
	return st.k.only == nil || st.k.only[es.Namespace]
}

// note remembers the version of an object.
func (st *kubeStore) note(es *discoveryv1.EndpointSlice) uint64 {
	at, _ := parseVersion(es.ResourceVersion)
	st.versions[object{es.Namespace, es.Name}] = at
	return at
}

// translate gives the slice of an object, and logs once what was wrong with it.
func (st *kubeStore) translate(es *discoveryv1.EndpointSlice, now time.Time, u *Update) (sl endpoint.Slice, ok bool) {
	sl, skips, err := Translate(st.scope.Cluster, st.scope.Generation, es)
	sl.Observed = now
	u.Skips.Merge(skips)
	id := object{es.Namespace, es.Name}
	switch {
	case skips.Refused == "":
		delete(st.refused, id)
	case st.refused[id] != skips.Refused:
		st.refused[id] = skips.Refused
		st.k.cfg.Log.Warn("a part of an EndpointSlice is refused", "cluster", st.scope.Cluster,
			"slice", clip(es.Namespace)+"/"+clip(es.Name), "whole", err != nil, "err", skips.Refused)
	}
	return sl, err == nil
}

// probes brings the as-of forward when a query asks for it: an API server tells a quiet watch only once a minute how
// far it is. The names and versions of a consistent list show what the cache must reach to be complete as of it.
func (k *Kube) probes(ctx context.Context, st *kubeStore) {
	for {
		select {
		case at := <-k.probe:
			st.mu.Lock()
			reached := st.asOf >= at
			st.mu.Unlock()
			if reached {
				continue
			}
		case <-ctx.Done():
			return
		}
		p, err := k.readProbe(ctx, st)
		if err != nil {
			k.cfg.Log.Debug("no consistent list of versions", "err", err)
			continue
		}
		st.mu.Lock()
		st.wanted = p
		st.reach()
		st.mu.Unlock()
	}
}

func (k *Kube) readProbe(ctx context.Context, st *kubeStore) (*probe, error) {
	p := &probe{versions: map[object]uint64{}}
	o := metav1.ListOptions{Limit: 500, LabelSelector: k.cfg.Selector}
	for {
		list, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		if p.at == 0 {
			if p.at, err = parseVersion(list.ResourceVersion); err != nil {
				return nil, err
			}
		}
		for i := range list.Items {
			if es := &list.Items[i]; st.inScope(es) {
				p.versions[object{es.Namespace, es.Name}], _ = parseVersion(es.ResourceVersion)
			}
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
	if p == nil {
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
		st.handle(Update{Kind: Heard, AsOf: p.at})
	}
	st.wanted = nil
}
