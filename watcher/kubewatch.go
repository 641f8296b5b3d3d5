package watcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Watch implements Source. Each namespace of the extent is listed and watched by itself, so that nothing more has to be
// permitted. One of them that must be listed again begins a new round for all, so that what is handed on is always one
// list of everything, then changes.
func (k *Kube) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	for short := 0; ctx.Err() == nil; short++ {
		began := time.Now()
		rctx, end := context.WithCancel(ctx)
		r := newKubeRound(k, scope, handle, end)
		var wg sync.WaitGroup
		for _, st := range r.stores {
			wg.Go(func() { k.reflect(rctx, st) })
		}
		wg.Go(func() { k.probes(rctx, r) })
		wg.Wait()
		end()
		if time.Since(began) > time.Minute {
			short = 0
		}
		timer := time.NewTimer(backoff(short, 100*time.Millisecond, 10*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// reflect lists and watches one namespace until ctx ends.
func (k *Kube) reflect(ctx context.Context, st *kubeStore) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return k.list(ctx, st, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k.watch(ctx, st, o)
		},
	}
	// Its own words are for developers of reflectors; what an operator needs is reported by the functions above.
	quiet := klog.Logger{}
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, k.client), &discoveryv1.EndpointSlice{}, st, cache.ReflectorOptions{
		Name: "endpointslices of " + st.r.scope.Cluster, Logger: &quiet,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 7, Cap: 10 * time.Second},
	})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

// list is a page of a consistent list, whatever the reflector asked for.
func (k *Kube) list(ctx context.Context, st *kubeStore, o metav1.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		if err := k.begin(ctx, st); err != nil {
			return nil, err
		}
	}
	o.ResourceVersion, o.ResourceVersionMatch, o.LabelSelector = "", "", k.extent.query()
	list, err := k.client.DiscoveryV1().EndpointSlices(st.namespace).List(ctx, o)
	if err != nil {
		st.r.lose(ctx, fmt.Errorf("list EndpointSlices%s: %w", st.where(), err))
		return nil, err
	}
	for i := range list.Items {
		trim(&list.Items[i])
	}
	return list, nil
}

// watch opens a watch. One that streams the list first (WatchList) is consistent as a list is. One that resumes
// first makes sure that the same cluster answers and that its history is not behind: such a watch would be silent.
func (k *Kube) watch(ctx context.Context, st *kubeStore, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = k.extent.query()
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents
	if streams {
		o.ResourceVersion = ""
		if err := k.begin(ctx, st); err != nil {
			return nil, opaque(err)
		}
	} else if err := k.verify(ctx, st, o.ResourceVersion); err != nil {
		st.r.lose(ctx, err)
		return nil, err
	}
	w, err := k.client.DiscoveryV1().EndpointSlices(st.namespace).Watch(ctx, o)
	switch {
	case err != nil && streams && unsupported(err):
		return nil, err // the reflector lists instead
	case err != nil && streams:
		st.r.lose(ctx, fmt.Errorf("watch EndpointSlices%s: %w", st.where(), err))
		return nil, opaque(err)
	case err != nil:
		st.r.lose(ctx, fmt.Errorf("watch EndpointSlices%s: %w", st.where(), err))
		return nil, err
	}
	if !streams {
		st.heard(0)
	}
	return w, nil
}

// begin announces a list, once it is known that the same cluster answers.
func (k *Kube) begin(ctx context.Context, st *kubeStore) error {
	if _, err := k.UID(ctx); err != nil {
		st.r.lose(ctx, err)
		return err
	}
	return st.begin()
}

// verify asks whether the server is that of the same cluster, and not behind the version that a watch resumes from.
func (k *Kube) verify(ctx context.Context, st *kubeStore, from string) error {
	if _, err := k.UID(ctx); err != nil {
		return err
	}
	at, err := k.versionOf(ctx, st.namespace)
	if err != nil {
		return fmt.Errorf("consistent read%s: %w", st.where(), err)
	}
	if known, err := parseVersion(from); err == nil && at < known {
		return apierrors.NewResourceExpired(fmt.Sprintf("the store is at %d, behind %d", at, known))
	}
	return nil
}
