package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kubeAgent is scheduler and kubelet of the only node: it binds pods, runs them and writes their status.
type kubeAgent struct {
	client  kubernetes.Interface
	kubelet *kubelet

	mu      sync.Mutex
	running map[types.UID]*pod // Guarded by mu: all pods that the API server has.
	changed chan struct{}      // Guarded by mu: closed and replaced when the pods changed.
}

func newKubeAgent(client kubernetes.Interface, k *kubelet) *kubeAgent {
	return &kubeAgent{client: client, kubelet: k, running: make(map[types.UID]*pod), changed: make(chan struct{})}
}

// run returns when ctx has ended and all pods are gone.
func (a *kubeAgent) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(a.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	handle := func(obj any) {
		if p, ok := obj.(*corev1.Pod); ok {
			a.handle(ctx, p)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: a.forget,
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	a.kubelet.wait()
	return nil
}

// changes is closed at the next change of the pods.
func (a *kubeAgent) changes() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// count is the number of pods that the API server has, as far as it is known here.
func (a *kubeAgent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.running)
}

func (a *kubeAgent) handle(ctx context.Context, p *corev1.Pod) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.signal()
	running, known := a.running[p.UID]
	switch {
	case p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
		a.kubelet.wg.Go(func() { a.report(ctx, "bind", p.Name, func() error { return a.bind(ctx, p) }) })
		return
	case !known && p.DeletionTimestamp == nil:
		a.running[p.UID] = a.start(ctx, p)
	case known && running != nil && p.DeletionTimestamp != nil:
		running.delete(now)
	}
}

func (a *kubeAgent) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, ok := obj.(*corev1.Pod); ok {
		if running := a.running[p.UID]; running != nil {
			running.delete(time.Now()) // Deleted by force.
		}
		delete(a.running, p.UID)
	}
	a.signal()
}

// signal tells that the pods changed. The caller holds mu.
func (a *kubeAgent) signal() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *kubeAgent) bind(ctx context.Context, p *corev1.Pod) error {
	err := a.client.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // Bound already, or gone.
	}
	return err
}

func (a *kubeAgent) start(ctx context.Context, p *corev1.Pod) *pod {
	template, err := decodeTemplate(p.Annotations[templateAnnotation])
	if err != nil {
		a.kubelet.sb.log.Error("pod not started", "pod", p.Name, "err", err)
		return nil
	}
	spec := podSpec{namespace: p.Namespace, name: p.Name, uid: string(p.UID), template: template}
	return a.kubelet.start(ctx, spec, &kubePodEvents{agent: a, pod: p})
}

func (a *kubeAgent) report(ctx context.Context, what, name string, do func() error) {
	if err := do(); err != nil && ctx.Err() == nil {
		a.kubelet.sb.log.Error("pod not updated", "doing", what, "pod", name, "err", err)
	}
}

// kubePodEvents writes the status of a pod as a kubelet does.
type kubePodEvents struct {
	agent *kubeAgent
	pod   *corev1.Pod // As it was when it was started.
	ip    netip.Addr
	since metav1.Time
}

func (e *kubePodEvents) podAddressed(ctx context.Context, ip netip.Addr) {
	e.ip, e.since = ip, metav1.Now()
	e.setStatus(ctx, corev1.PodRunning, corev1.ConditionFalse)
}

func (e *kubePodEvents) podReady(ctx context.Context) {
	e.setStatus(ctx, corev1.PodRunning, corev1.ConditionTrue)
}

func (e *kubePodEvents) podStopped(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if e.ip.IsValid() {
		e.setStatus(ctx, corev1.PodFailed, corev1.ConditionFalse)
	}
	e.agent.report(ctx, "delete", e.pod.Name, func() error {
		err := e.agent.client.CoreV1().Pods(e.pod.Namespace).Delete(ctx, e.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(e.pod.UID)),
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (e *kubePodEvents) setStatus(ctx context.Context, phase corev1.PodPhase, ready corev1.ConditionStatus) {
	now := metav1.Now()
	condition := func(t corev1.PodConditionType, s corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: s, LastTransitionTime: now}
	}
	status := corev1.PodStatus{
		Phase: phase, PodIP: e.ip.String(), PodIPs: []corev1.PodIP{{IP: e.ip.String()}}, HostIP: "127.0.0.1", StartTime: &e.since,
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionTrue), condition(corev1.PodInitialized, corev1.ConditionTrue),
			condition(corev1.ContainersReady, ready), condition(corev1.PodReady, ready),
		},
	}
	container := corev1.ContainerStatus{Name: containerName, Image: containerImage, Ready: ready == corev1.ConditionTrue}
	if phase == corev1.PodRunning {
		container.Started = new(true)
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: e.since}
	} else {
		container.State.Terminated = &corev1.ContainerStateTerminated{StartedAt: e.since, FinishedAt: now, Reason: "Stopped"}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{container}
	e.agent.report(ctx, "status", e.pod.Name, func() error {
		patch, err := json.Marshal(object{"metadata": object{"uid": e.pod.UID}, "status": status})
		if err != nil {
			return err
		}
		_, err = e.agent.client.CoreV1().Pods(e.pod.Namespace).Patch(ctx, e.pod.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
