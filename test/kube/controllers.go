package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

const (
	resync     = 12 * time.Hour
	gcPeriod   = 30 * time.Second // how often the garbage collector looks for new resource types
	pollPeriod = 50 * time.Millisecond

	// readyFD is the file that up hands to the controllers, to be told that they run.
	readyFD = 3
)

// runControllers runs the controllers until SIGTERM or SIGINT. Numbers of workers and
// sizes are the defaults of kube-controller-manager; the client's own rate limit is off
// unless --qps sets one, since a rollout here has nobody to share the API server with.
func runControllers(args []string) error {
	flags := flag.NewFlagSet("controllers", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of the kubeconfig (required)")
	qps := flags.Float64("qps", -1, "requests per second of each controller; negative: no limit")
	maxEndpoints := flags.Int("max-endpoints-per-slice", 100, "endpoints per EndpointSlice")
	batch := flags.Duration("endpoint-updates-batch-period", 0, "how long changes of pods are gathered before slices are written")
	tellReady := flags.Bool("tell-ready", false, "write a byte to file descriptor 3 when all controllers run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = float32(*qps), max(1, int(2**qps))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	m := manager{config: config, maxEndpoints: int32(*maxEndpoints), batch: *batch}
	ready := func() error { return nil }
	if *tellReady {
		ready = writeReady
	}
	return m.run(ctx, ready)
}

func writeReady() error {
	f := os.NewFile(readyFD, "ready")
	defer f.Close()
	if _, err := f.Write([]byte{'1'}); err != nil {
		return fmt.Errorf("tell ready: %w", err)
	}
	return nil
}

// manager holds the settings of the controllers.
type manager struct {
	config       *rest.Config
	maxEndpoints int32
	batch        time.Duration
}

// client returns a client of its own for one controller, as kube-controller-manager does,
// so that the user agents in the API server's log tell them apart.
func (m manager) client(controller string) (*rest.Config, kubernetes.Interface, error) {
	config := rest.AddUserAgent(rest.CopyConfig(m.config), controller)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", controller, err)
	}
	return config, client, nil
}

// run starts every controller, calls ready when all caches are filled, and returns when
// ctx has ended and every controller has returned.
func (m manager) run(ctx context.Context, ready func() error) error {
	_, client, err := m.client("informers")
	if err != nil {
		return err
	}
	if err := waitForAPI(ctx, client); err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, resync)
	loops, err := m.workloads(ctx, factory)
	if err != nil {
		return err
	}
	gc, err := m.newCollector(ctx, factory)
	if err != nil {
		return err
	}
	loops = append(loops, gc.run)

	factory.Start(ctx.Done())
	gc.metadata.Start(ctx.Done())
	close(gc.started)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	factory.WaitForCacheSync(ctx.Done())
	err = wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		return gc.collector.IsSynced(klog.FromContext(ctx)), nil
	})
	if err != nil {
		return nil // ctx has ended: asked to stop before ready
	}
	if err := ready(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// workloads makes the controllers that need nothing but informers.
func (m manager) workloads(ctx context.Context, factory informers.SharedInformerFactory) ([]func(context.Context), error) {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	_, dClient, err1 := m.client("deployment-controller")
	_, rClient, err2 := m.client("replicaset-controller")
	_, eClient, err3 := m.client("endpointslice-controller")
	nConfig, nClient, err4 := m.client("namespace-controller")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	d, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), dClient)
	if err != nil {
		return nil, fmt.Errorf("deployment controller: %w", err)
	}
	nMetadata, err := metadata.NewForConfig(nConfig)
	if err != nil {
		return nil, fmt.Errorf("namespace controller: %w", err)
	}
	r := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), rClient, replicaset.BurstReplicas)
	e := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(),
		factory.Discovery().V1().EndpointSlices(), m.maxEndpoints, eClient, m.batch)
	n := namespace.NewNamespaceController(ctx, nClient, nMetadata, nClient.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	return []func(context.Context){
		func(ctx context.Context) { d.Run(ctx, 5) },
		func(ctx context.Context) { r.Run(ctx, 5) },
		func(ctx context.Context) { e.Run(ctx, 5) },
		func(ctx context.Context) { n.Run(ctx, 10) },
	}, nil
}

// collector is the garbage collector with what it needs to follow the resource types of
// the server.
type collector struct {
	collector *garbagecollector.GarbageCollector
	client    kubernetes.Interface
	metadata  metadatainformer.SharedInformerFactory
	started   chan struct{} // closed when the informers have been started
}

func (m manager) newCollector(ctx context.Context, factory informers.SharedInformerFactory) (*collector, error) {
	config, client, err := m.client("generic-garbage-collector")
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("garbage collector: %w", err)
	}
	c := &collector{
		client:   client,
		metadata: metadatainformer.NewSharedInformerFactory(objects, resync),
		started:  make(chan struct{}),
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, objects, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(factory, c.metadata), c.started)
	c.collector, err = garbagecollector.NewComposedGarbageCollector(ctx, client, objects, mapper, graph)
	if err != nil {
		return nil, fmt.Errorf("garbage collector: %w", err)
	}
	return c, nil
}

func (c *collector) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.collector.Run(ctx, 20, gcPeriod) })
	wg.Go(func() { c.collector.Sync(ctx, c.client.Discovery(), gcPeriod) })
}

// waitForAPI returns when the API server is ready and the namespace "default", which it
// makes a moment later, is there. It polls: a server that does not listen yet has no
// other way to tell.
func waitForAPI(ctx context.Context, client kubernetes.Interface) error {
	return wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		var status int
		client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		if status != http.StatusOK {
			return false, nil
		}
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}
