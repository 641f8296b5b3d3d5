package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeTool is the control plane and kubectl in one program; test/kube builds it.
const kubeTool = ".tools/kube"

// Kube is a ControlPlane of the real etcd, API server and controllers; pods run in the same kubelet as those of Files.
type Kube struct {
	sb      *Sandbox
	kubelet *kubelet
	client  kubernetes.Interface
	dir     string
	server  *Process
	agent   *kubeAgent

	mu      sync.Mutex
	current Workload // As last applied, guarded by mu.
}

// NewKube starts the control plane and the kubelet, and applies the Workload. cluster is the name that slicecast is to know it by.
func NewKube(ctx context.Context, sb *Sandbox, cluster string, w Workload) (*Kube, error) {
	k := &Kube{sb: sb, kubelet: newKubelet(sb, cluster)}
	if err := k.startServer(ctx); err != nil {
		return nil, err
	}
	if err := k.prepare(ctx, w.withDefaults().Namespace); err != nil {
		return nil, fmt.Errorf("prepare the cluster: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.agent = newKubeAgent(k.client, k.kubelet)
	ended := make(chan error, 1)
	go func() { ended <- k.agent.run(running) }()
	sb.onClose(func() error {
		stop()
		return <-ended
	})
	return k, k.Apply(ctx, w)
}

func (k *Kube) startServer(ctx context.Context) error {
	path, err := k.sb.Tool(kubeTool)
	if err != nil {
		return err
	}
	k.dir = filepath.Join(k.sb.dir, "kube")
	ready := make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	k.server, err = command{
		name: "kube", path: path, args: []string{"up", "--dir", k.dir}, log: k.sb.logFile("kube"),
		onLine: func(string) { once() }, // The only line says that all of it is ready.
	}.start()
	if err != nil {
		return err
	}
	k.sb.onClose(func() error { return k.server.Stop(20 * time.Second) })
	select {
	case <-ready:
	case <-k.server.Done():
		return k.server.endedError()
	case <-ctx.Done():
		return fmt.Errorf("wait for the API server: %w", ctx.Err())
	}
	config, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	k.client, err = kubernetes.NewForConfig(config)
	return err
}

// Kubeconfig is the path of an administrator's kubeconfig.
func (k *Kube) Kubeconfig() string { return filepath.Join(k.dir, "kubeconfig") }

// prepare makes what pods need before they can be made: namespace, service account, and the node that they run on.
func (k *Kube) prepare(ctx context.Context, namespace string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := k.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err := ignoreExists(err); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = k.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err := ignoreExists(err); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: zoneName, corev1.LabelHostname: nodeName},
	}}
	_, err = k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return ignoreExists(err)
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Source is the kubeconfig.
func (k *Kube) Source() string { return "kubeconfig:" + k.Kubeconfig() }

// Pods tells what happened to each pod so far, oldest first.
func (k *Kube) Pods() []PodRecord { return k.kubelet.pods() }

func (k *Kube) workload() Workload {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// Slices are the EndpointSlices that the API server has.
func (k *Kube) Slices(ctx context.Context) ([]discoveryv1.EndpointSlice, error) {
	w := k.workload()
	list, err := k.client.DiscoveryV1().EndpointSlices(w.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + w.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("list the slices: %w", err)
	}
	return list.Items, nil
}

// Apply is Deployer's.
func (k *Kube) Apply(ctx context.Context, w Workload) error {
	w = w.withDefaults()
	if err := k.apply(ctx, w); err != nil {
		return fmt.Errorf("apply %s: %w", w.Name, err)
	}
	k.mu.Lock()
	k.current = w
	k.mu.Unlock()
	if w.Template.ReadyAfter < 0 {
		return fmt.Errorf("apply %s: %w", w.Name, ErrNeverReady)
	}
	return k.waitSettled(ctx)
}

func (k *Kube) apply(ctx context.Context, w Workload) error {
	deployments := k.client.AppsV1().Deployments(w.Namespace)
	want, err := deploymentOf(w)
	if err != nil {
		return err
	}
	have, err := deployments.Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = k.client.CoreV1().Services(w.Namespace).Create(ctx, serviceOf(w), metav1.CreateOptions{})
		if err := ignoreExists(err); err != nil {
			return err
		}
		_, err = deployments.Create(ctx, want, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	if at, ok := have.Spec.Template.Annotations[restartedAt]; ok { // A later apply keeps it, as kubectl's does.
		want.Spec.Template.Annotations[restartedAt] = at
	}
	want.ResourceVersion = "" // Whoever wrote last, the controllers' status included, this is what is wanted.
	_, err = deployments.Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// RolloutRestart runs `kubectl rollout restart` and waits until the rollout is over.
func (k *Kube) RolloutRestart(ctx context.Context) error {
	w := k.workload()
	out, err := k.Kubectl(ctx, "--namespace", w.Namespace, "rollout", "restart", "deployment/"+w.Name)
	if err != nil {
		return fmt.Errorf("rollout restart: %w: %s", err, out)
	}
	return k.waitSettled(ctx)
}

// Kubectl runs kubectl against the cluster and returns what it printed.
func (k *Kube) Kubectl(ctx context.Context, args ...string) (string, error) {
	return k.tool(ctx, append([]string{"kubectl", "--kubeconfig", k.Kubeconfig()}, args...)...)
}

// Control does "stop", "kill" or "start" to one part of the control plane: "etcd", "kube-apiserver" or "controllers".
func (k *Kube) Control(ctx context.Context, verb, part string) error {
	out, err := k.tool(ctx, verb, "--dir", k.dir, part)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", verb, part, err, out)
	}
	return nil
}

func (k *Kube) tool(ctx context.Context, args ...string) (string, error) {
	path, err := k.sb.Tool(kubeTool)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// waitSettled waits until the controllers have seen the last change and exactly the wanted pods are left.
func (k *Kube) waitSettled(ctx context.Context) error {
	for {
		changed := k.agent.changes()
		err := k.settled(ctx)
		if err == nil {
			return nil
		}
		// A deployment's status also changes without its pods, so the agent's signal alone is not enough.
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-changed:
		case <-timer.C:
		case <-k.server.Done():
			return k.server.endedError()
		case <-ctx.Done():
			return fmt.Errorf("wait for the rollout: %w (%w)", err, ctx.Err())
		}
		timer.Stop()
	}
}

func (k *Kube) settled(ctx context.Context) error {
	w := k.workload()
	d, err := k.client.AppsV1().Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := int32(w.Replicas)
	if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.Replicas != want || s.AvailableReplicas != want {
		return fmt.Errorf("the deployment has %d pods, %d updated, %d available", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
	}
	if n := k.agent.count(); n != w.Replicas {
		return fmt.Errorf("%d pods exist", n)
	}
	all, err := k.Slices(ctx)
	if err != nil {
		return err
	}
	if n := len(UsableEndpoints(all, PortName)); n != w.Replicas || len(AllEndpoints(all)) != n {
		return fmt.Errorf("the slices are behind: %d usable of %d endpoints", n, len(AllEndpoints(all)))
	}
	return nil
}
