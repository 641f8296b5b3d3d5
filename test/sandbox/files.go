package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Files is a ControlPlane that rolls pods as a Deployment does and writes EndpointSlice manifests into a folder.
type Files struct {
	kubelet *kubelet
	dir     string
	// commands are run, one after the other, by the goroutine that owns the deployment.
	commands chan func(*deployment)
	ended    chan struct{} // Closed when that goroutine has ended.
}

// deployment is a Workload's state; the goroutine of Files.run owns it.
type deployment struct {
	files    *Files
	workload Workload
	restarts int
	versions []string // Each template that ever was, with the restarts: an earlier one that returns keeps its pods.
	version  int      // The wanted one: index into versions.
	created  int      // Pods so far.
	used     int      // Slices so far.
	pods     map[string]*filePod
	slices   []discoveryv1.EndpointSlice // As last written; replaced, never changed.
	waiting  []chan error                // Told when the rollout is over or failed.
}

// filePod is a pod of a deployment.
type filePod struct {
	slicePod
	number, version int
	handle          *pod
}

// NewFiles makes the control plane with its folder of manifests and applies the Workload. cluster is the name that slicecast is
// to know it by.
func NewFiles(ctx context.Context, sb *Sandbox, cluster string, w Workload) (*Files, error) {
	f := &Files{
		kubelet: newKubelet(sb, cluster), dir: filepath.Join(sb.dir, "slices"),
		commands: make(chan func(*deployment)), ended: make(chan struct{}),
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	go f.run(running)
	sb.onClose(func() error {
		stop()
		<-f.ended
		f.kubelet.wait()
		return nil
	})
	return f, f.Apply(ctx, w)
}

// Source is the folder of manifests.
func (f *Files) Source() string { return "dir:" + f.dir }

// Pods tells what happened to each pod so far, oldest first.
func (f *Files) Pods() []PodRecord { return f.kubelet.pods() }

// Slices are the manifests as last written.
func (f *Files) Slices(ctx context.Context) ([]discoveryv1.EndpointSlice, error) {
	answer := make(chan []discoveryv1.EndpointSlice, 1)
	f.do(func(d *deployment) { answer <- d.slices })
	select {
	case s := <-answer:
		return s, nil
	case <-f.ended:
		return nil, errEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Apply is Deployer's.
func (f *Files) Apply(ctx context.Context, w Workload) error {
	w = w.withDefaults()
	err := f.change(ctx, w.Template.ReadyAfter < 0, func(d *deployment) { d.workload = w })
	if err != nil {
		return fmt.Errorf("apply %s: %w", w.Name, err)
	}
	return nil
}

// RolloutRestart is Deployer's.
func (f *Files) RolloutRestart(ctx context.Context) error {
	if err := f.change(ctx, false, func(d *deployment) { d.restarts++ }); err != nil {
		return fmt.Errorf("rollout restart: %w", err)
	}
	return nil
}

// change makes a change and waits until its rollout is over, unless it cannot end.
func (f *Files) change(ctx context.Context, neverReady bool, do func(*deployment)) error {
	done := make(chan error, 1)
	f.do(func(d *deployment) {
		do(d)
		d.waiting = append(d.waiting, done)
	})
	if neverReady {
		return ErrNeverReady
	}
	select {
	case err := <-done:
		return err
	case <-f.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEnded = fmt.Errorf("the control plane has ended: %w", os.ErrClosed)

func (f *Files) do(command func(*deployment)) {
	select {
	case f.commands <- command:
	case <-f.ended:
	}
}

func (f *Files) run(ctx context.Context) {
	defer close(f.ended)
	d := &deployment{files: f, pods: make(map[string]*filePod)}
	for {
		select {
		case command := <-f.commands:
			command(d)
		case <-ctx.Done():
			return
		}
		err := d.reconcile(ctx)
		if err != nil {
			f.kubelet.sb.log.Error("manifests not written", "err", err)
		}
		if err != nil || d.settled() {
			for _, w := range d.waiting {
				w <- err
			}
			d.waiting = nil
		}
	}
}

// reconcile does what plan says until it says no more, and writes the slices that changed.
func (d *deployment) reconcile(ctx context.Context) error {
	if d.workload.Name == "" {
		return nil // Nothing was applied yet.
	}
	if err := d.setVersion(); err != nil {
		return err
	}
	now, deleted := time.Now(), false
	for {
		// What a step deletes makes room for the next one at once: a leaving pod does not count.
		create, remove := plan(d.workload, d.states())
		if create == 0 && len(remove) == 0 {
			break
		}
		for _, name := range remove {
			p := d.pods[name]
			p.terminating, deleted = true, true
			p.handle.delete(now) // As in a cluster, the kubelet does not wait for the slices.
		}
		for range create {
			d.create(ctx)
		}
	}
	if deleted {
		if err := pause(ctx, controllerLag); err != nil {
			return err
		}
	}
	return d.write(now)
}

// controllerLag is how long after the kubelet has learnt of a deletion the slice says so: 3.5 to 7 ms (12 pods, all but
// two) with the real API server and its EndpointSlice controller on two idle cores.
const controllerLag = 5 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pause: %w", ctx.Err())
	}
}

func (d *deployment) setVersion() error {
	text, err := d.workload.Template.encode()
	if err != nil {
		return err
	}
	text = fmt.Sprintf("%d %s", d.restarts, text)
	if d.version = slices.Index(d.versions, text); d.version < 0 {
		d.version = len(d.versions)
		d.versions = append(d.versions, text)
	}
	return nil
}

func (d *deployment) states() []podState {
	var all []podState
	for _, p := range d.pods {
		all = append(all, podState{
			name: p.name, number: p.number, current: p.version == d.version, ready: p.ready, terminating: p.terminating,
		})
	}
	slices.SortFunc(all, func(a, b podState) int { return a.number - b.number })
	return all
}

func (d *deployment) create(ctx context.Context) {
	d.created++
	name := fmt.Sprintf("%s-%d-%d", d.workload.Name, d.version, d.created)
	uid := string(uuid.NewUUID())
	p := &filePod{
		slicePod: slicePod{name: name, uid: uid}, number: d.created, version: d.version,
	}
	d.pods[name] = p
	spec := podSpec{namespace: d.workload.Namespace, name: name, uid: uid, template: d.workload.Template}
	p.handle = d.files.kubelet.start(ctx, spec, &filePodEvents{files: d.files, pod: p})
}

// settled says that the pods are those that the workload asks for.
func (d *deployment) settled() bool {
	if len(d.pods) != d.workload.Replicas {
		return false
	}
	for _, p := range d.pods {
		if p.version != d.version || p.terminating || !p.ready {
			return false
		}
	}
	return true
}

func (d *deployment) write(now time.Time) error {
	var pods []slicePod
	for _, p := range d.pods {
		if p.ip.IsValid() {
			pods = append(pods, p.slicePod)
		}
	}
	next := slicesOf(d.workload, pods, d.used, now)
	for i := range next {
		if i < len(d.slices) && equality.Semantic.DeepEqual(d.slices[i].Endpoints, next[i].Endpoints) {
			next[i] = d.slices[i]
			continue
		}
		if err := writeManifest(d.files.dir, next[i]); err != nil {
			return err
		}
	}
	d.slices = next
	return nil
}

// place gives a pod its slice: the first with room.
func (d *deployment) place(p *filePod) {
	sizes := make(map[int]int)
	for _, o := range d.pods {
		if o != p && o.ip.IsValid() {
			sizes[o.slice]++
		}
	}
	for p.slice = 0; sizes[p.slice] >= maxEndpointsPerSlice; p.slice++ {
	}
	d.used = max(d.used, p.slice+1)
}

// filePodEvents carries what the kubelet tells of a pod to the goroutine that owns the deployment.
type filePodEvents struct {
	files *Files
	pod   *filePod
}

func (e *filePodEvents) podAddressed(_ context.Context, ip netip.Addr) {
	e.files.do(func(d *deployment) { e.pod.ip = ip; d.place(e.pod) })
}

func (e *filePodEvents) podReady(context.Context) {
	e.files.do(func(*deployment) { e.pod.ready = true })
}

func (e *filePodEvents) podStopped(context.Context) {
	e.files.do(func(d *deployment) { delete(d.pods, e.pod.name) })
}
