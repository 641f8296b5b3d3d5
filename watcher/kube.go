package watcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// KubeConfig says which API server a Kube source reads, and how much of it.
type KubeConfig struct {
	InCluster  bool     // the configuration that a pod has, instead of a kubeconfig
	Kubeconfig string   // path of a kubeconfig; "" means the one that kubectl would use
	Context    string   // of the kubeconfig; "" means its current one
	Namespaces []string // publish these only; none means all
	Selector   string   // label selector that slices must match; "" means all

	Client kubernetes.Interface // a real one, instead of what is above; nil: made from it

	// Identity is the identity of the cluster where the API server does not let the watcher read the namespace
	// kube-system, as CAIdentity gives it; "" for none. With a client made here it is filled in.
	Identity string

	Log *slog.Logger // nil: discarded
}

// Kube is the Source that watches an API server. It lists with resourceVersion unset always, so that every list is
// consistent; one list and watch covers the scope.
type Kube struct {
	cfg        KubeConfig
	client     kubernetes.Interface
	extent     extent
	namespaces []string    // each listed and watched by itself; "" for all of them at once
	probe      chan uint64 // Floor wants Watch to say soon that it has reached a version; capacity 1

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
	x, err := parseExtent(cfg.Namespaces, cfg.Selector)
	if err != nil {
		return nil, err
	}
	k := &Kube{cfg: cfg, client: cfg.Client, extent: x, namespaces: x.namespaces, probe: make(chan uint64, 1)}
	if len(k.namespaces) == 0 {
		k.namespaces = []string{metav1.NamespaceAll}
	}
	if k.client == nil {
		rc, err := restConfig(cfg)
		if err != nil {
			return nil, err
		}
		if k.cfg.Identity == "" {
			k.cfg.Identity = CAIdentity(rc)
		}
		if k.client, err = kubernetes.NewForConfig(rc); err != nil {
			return nil, fmt.Errorf("client of %s: %w", rc.Host, err)
		}
	}
	return k, nil
}

// Extent is what of the cluster the source gives, for Config.Extent.
func (k *Kube) Extent() string { return k.extent.String() }

// CAIdentity gives an identity of the cluster that a client configuration leads to: the hash of the certificates that the
// API server's is checked against. It stands in for the uid of the namespace kube-system where that may not be read. It is
// "" where the configuration names none.
func CAIdentity(rc *rest.Config) string {
	data := rc.CAData
	if len(data) == 0 && rc.CAFile != "" {
		data, _ = os.ReadFile(rc.CAFile) // a client that cannot read it says so itself
	}
	var certs []string
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certs = append(certs, string(block.Bytes))
	}
	if len(certs) == 0 {
		return ""
	}
	slices.Sort(certs)
	sum := sha256.Sum256([]byte(strings.Join(certs, "")))
	return "ca-" + hex.EncodeToString(sum[:16])
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
	uid := string(ns.UID)
	switch {
	case apierrors.IsForbidden(err) && k.cfg.Identity != "":
		uid = k.cfg.Identity // whoever answers has shown a certificate of it
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("read the identity of the cluster, which is the uid of the namespace kube-system: permit to get that one: %w", err)
	case err != nil:
		return "", fmt.Errorf("read the identity of the cluster: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
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

func (k *Kube) version(ctx context.Context) (uint64, error) { return k.versionOf(ctx, k.namespaces[0]) }

// versionOf is the version of the store, which is one for all namespaces, asked in a namespace that may be listed.
func (k *Kube) versionOf(ctx context.Context, namespace string) (uint64, error) {
	list := &discoveryv1.EndpointSliceList{}
	o := metav1.ListOptions{Limit: 1, LabelSelector: k.extent.query()}
	err := k.client.DiscoveryV1().RESTClient().Get().NamespaceIfScoped(namespace, namespace != "").Resource("endpointslices").
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

// unsupported reports whether the server refused to stream a list.
func unsupported(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// opaque hides what kind of error it is from the reflector, which would wait on some without looking at ctx.
func opaque(err error) error { return errors.New(err.Error()) }
