package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// KubeConfig says which API server a Kube source reads, and how much of it.
type KubeConfig struct {
	InCluster  bool     // the configuration that a pod has, instead of a kubeconfig
	Kubeconfig string   // path of a kubeconfig; "" means the one that kubectl would use
	Context    string   // of the kubeconfig; "" means its current one
	Namespaces []string // publish these only; none means all
	Selector   string   // label selector that slices must match; "" means all

	Client kubernetes.Interface // a real one, instead of what is above; nil: made from it
	Log    *slog.Logger         // nil: discarded
}

// Kube is the Source that watches an API server. It lists with resourceVersion unset always, so that every list is
// consistent; one list and watch covers the scope.
type Kube struct {
	cfg       KubeConfig
	client    kubernetes.Interface
	namespace string          // the only one, or "" for all
	only      map[string]bool // the namespaces, when there are several
	probe     chan uint64     // Floor wants Watch to say soon that it has reached a version; capacity 1

	mu  sync.Mutex // guards uid
	uid string     // of kube-system, once known
}

// errIdentity says that another cluster answers at the same address.
var errIdentity = errors.New("another cluster answers at this address")

// NewKube makes a source from a kubeconfig, or from the configuration that a pod has. It does not ask the API server.
func NewKube(cfg KubeConfig) (*Kube, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := labels.Parse(cfg.Selector); err != nil {
		return nil, fmt.Errorf("selector %q: %w", clip(cfg.Selector), err)
	}
	k := &Kube{cfg: cfg, client: cfg.Client, probe: make(chan uint64, 1)}
	if k.client == nil {
		rc, err := restConfig(cfg)
		if err != nil {
			return nil, err
		}
		if k.client, err = kubernetes.NewForConfig(rc); err != nil {
			return nil, fmt.Errorf("client of %s: %w", rc.Host, err)
		}
	}
	switch len(cfg.Namespaces) {
	case 0:
	case 1:
		k.namespace = cfg.Namespaces[0]
	default:
		k.only = map[string]bool{}
		for _, n := range cfg.Namespaces {
			k.only[n] = true
		}
	}
	return k, nil
}

func restConfig(cfg KubeConfig) (*rest.Config, error) {
	var rc *rest.Config
	var err error
	if cfg.InCluster {
		if rc, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("configuration of the pod: %w", err)
		}
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = cfg.Kubeconfig
		rc, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %q: %w", cfg.Kubeconfig, err)
		}
	}
	// A handful of requests at start, then one watch: the client-side limiter has nothing to protect.
	rc.QPS = -1
	rc.UserAgent = "slicecast"
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rc, nil
}

// UID implements Source: the uid of the namespace kube-system.
func (k *Kube) UID(ctx context.Context) (string, error) {
	// Without the client's own retries, which would hide an outage for ten seconds.
	ns := &corev1.Namespace{}
	err := k.client.CoreV1().RESTClient().Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).Do(ctx).Into(ns)
	if err != nil {
		return "", fmt.Errorf("read the identity of the cluster: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch uid := string(ns.UID); {
	case uid == "":
		return "", errors.New("read the identity of the cluster: namespace kube-system has no uid")
	case k.uid != "" && k.uid != uid:
		return "", fmt.Errorf("%w: uid of kube-system was %s, is %s", errIdentity, k.uid, uid)
	default:
		k.uid = uid
		return uid, nil
	}
}

// Floor implements Source: the resourceVersion of a list of one slice, read from the store itself.
func (k *Kube) Floor(ctx context.Context) (uint64, error) {
	at, err := k.version(ctx)
	if err != nil {
		return 0, fmt.Errorf("consistent read: %w", err)
	}
	select {
	case k.probe <- at:
	default: // a probe is due anyway, and it will read a later version than this one
	}
	return at, nil
}

func (k *Kube) version(ctx context.Context) (uint64, error) {
	list := &discoveryv1.EndpointSliceList{}
	o := metav1.ListOptions{Limit: 1, LabelSelector: k.cfg.Selector}
	err := k.client.DiscoveryV1().RESTClient().Get().NamespaceIfScoped(k.namespace, k.namespace != "").Resource("endpointslices").
		VersionedParams(&o, scheme.ParameterCodec).MaxRetries(0).Do(ctx).Into(list)
	if err != nil {
		return 0, err
	}
	return parseVersion(list.ResourceVersion)
}

func parseVersion(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not an integer", clip(text))
	}
	return v, nil
}

// Watch implements Source.
func (k *Kube) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	st := &kubeStore{k: k, scope: scope, handle: handle, versions: map[object]uint64{}, refused: map[object]string{}}
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
		Name: "endpointslices of " + scope.Cluster, Logger: &quiet,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 7, Cap: 10 * time.Second},
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { k.probes(ctx, st) })
	r.RunWithContext(klog.NewContext(ctx, quiet))
	return nil
}

// list is a page of a consistent list, whatever the reflector asked for.
func (k *Kube) list(ctx context.Context, st *kubeStore, o metav1.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		if err := k.begin(ctx, st); err != nil {
			return nil, err
		}
	}
	o.ResourceVersion, o.ResourceVersionMatch, o.LabelSelector = "", "", k.cfg.Selector
	list, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).List(ctx, o)
	if err != nil {
		st.lose(ctx, fmt.Errorf("list EndpointSlices: %w", err))
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
	o.LabelSelector = k.cfg.Selector
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents
	if streams {
		o.ResourceVersion = ""
		if err := k.begin(ctx, st); err != nil {
			return nil, opaque(err)
		}
	} else if err := k.verify(ctx, o.ResourceVersion); err != nil {
		st.lose(ctx, err)
		return nil, err
	}
	w, err := k.client.DiscoveryV1().EndpointSlices(k.namespace).Watch(ctx, o)
	switch {
	case err != nil && streams && unsupported(err):
		return nil, err // the reflector lists instead
	case err != nil && streams:
		st.lose(ctx, fmt.Errorf("watch EndpointSlices: %w", err))
		return nil, opaque(err)
	case err != nil:
		st.lose(ctx, fmt.Errorf("watch EndpointSlices: %w", err))
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
		st.lose(ctx, err)
		return err
	}
	st.begin()
	return nil
}

// verify asks whether the server is that of the same cluster, and not behind the version that a watch resumes from.
func (k *Kube) verify(ctx context.Context, from string) error {
	if _, err := k.UID(ctx); err != nil {
		return err
	}
	at, err := k.version(ctx)
	if err != nil {
		return fmt.Errorf("consistent read: %w", err)
	}
	if known, err := parseVersion(from); err == nil && at < known {
		return apierrors.NewResourceExpired(fmt.Sprintf("the store is at %d, behind %d", at, known))
	}
	return nil
}

// unsupported reports whether the server refused to stream a list.
func unsupported(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// opaque hides what kind of error it is from the reflector, which would wait on some without looking at ctx.
func opaque(err error) error { return errors.New(err.Error()) }
