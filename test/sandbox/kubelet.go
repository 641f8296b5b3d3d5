package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// shortestGrace is what a pod gets between SIGTERM and SIGKILL even when its preStop took all of the grace period.
const shortestGrace = 2 * time.Second

// A PodRecord is what happened to one pod; times that have not come yet are zero.
type PodRecord struct {
	Name, UID string
	IP        netip.Addr
	// Ready is when the pod became ready; Deleted when the kubelet learnt of the deletion; Signalled when SIGTERM was sent;
	// Gone when its process had ended.
	Ready, Deleted, Signalled, Gone time.Time
	// PreStopLine is the last line that the preStop process printed.
	PreStopLine string
	// Killed is true if the process had to be ended by SIGKILL at the end of the grace period.
	Killed bool
	// Crashed is true if the process ended without having been told to.
	Crashed bool
}

// ToSignal is the time from deletion to SIGTERM, and false if SIGTERM was not sent yet.
func (r PodRecord) ToSignal() (time.Duration, bool) {
	return r.Signalled.Sub(r.Deleted), !r.Signalled.IsZero()
}

// podSpec is one pod to be run.
type podSpec struct {
	namespace, name, uid string
	template             Template
}

// podEvents is told of a pod's life, in this order, from the pod's goroutine.
type podEvents interface {
	podAddressed(ctx context.Context, ip netip.Addr)
	podReady(ctx context.Context)
	// podStopped says that the process has ended, perhaps because ctx has.
	podStopped(ctx context.Context)
}

// A pod is the handle on a running pod.
type pod struct {
	podSpec
	once    sync.Once
	deleted chan struct{}
	at      time.Time // When; written before deleted is closed.
}

// delete tells the kubelet that the pod has got a deletion timestamp. More calls than one do nothing.
func (p *pod) delete(at time.Time) {
	p.once.Do(func() { p.at = at; close(p.deleted) })
}

// kubelet runs pods as processes.
type kubelet struct {
	sb *Sandbox
	// cluster is the name that drain-wait asks with.
	cluster string

	mu      sync.Mutex
	lastIP  netip.Addr   // Guarded by mu.
	records []*PodRecord // Guarded by mu, contents too.
	wg      sync.WaitGroup
}

func newKubelet(sb *Sandbox, cluster string) *kubelet {
	return &kubelet{sb: sb, cluster: cluster, lastIP: netip.MustParsePrefix(PodCIDR).Addr().Next()}
}

// start runs a pod in its own goroutine until it was deleted and is gone, or ctx ends, which kills it.
func (k *kubelet) start(ctx context.Context, spec podSpec, events podEvents) *pod {
	p := &pod{podSpec: spec, deleted: make(chan struct{})}
	k.mu.Lock()
	// Addresses are not used again: a sandbox does not live long enough to run out of 65,000.
	k.lastIP = k.lastIP.Next()
	rec := &PodRecord{Name: spec.name, UID: spec.uid, IP: k.lastIP}
	k.records = append(k.records, rec)
	k.mu.Unlock()
	k.wg.Go(func() {
		if err := k.live(ctx, p, rec, events); err != nil {
			k.sb.log.Error("pod failed", "pod", spec.name, "err", err)
		}
	})
	return p
}

// wait returns when all pods are gone.
func (k *kubelet) wait() { k.wg.Wait() }

func (k *kubelet) pods() []PodRecord {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]PodRecord, 0, len(k.records))
	for _, r := range k.records {
		all = append(all, *r)
	}
	return all
}

func (k *kubelet) note(rec *PodRecord, change func(*PodRecord)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(rec)
}

// live is the whole life of one pod.
func (k *kubelet) live(ctx context.Context, p *pod, rec *PodRecord, events podEvents) error {
	defer func() {
		k.note(rec, func(r *PodRecord) { r.Gone = time.Now() })
		events.podStopped(ctx)
	}()
	listening := make(chan struct{})
	process, err := k.startProcess(p, rec.IP, listening)
	if err != nil {
		backOff(ctx)
		return err
	}
	events.podAddressed(ctx, rec.IP)
	if alive := k.serve(ctx, p, process, rec, listening, events); !alive {
		err := process.Kill()
		backOff(ctx)
		return err
	}
	k.note(rec, func(r *PodRecord) { r.Deleted = p.at })
	line := k.preStop(ctx, p, rec.IP)
	k.note(rec, func(r *PodRecord) { r.PreStopLine, r.Signalled = line, time.Now() })
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(max(p.template.Grace-time.Since(p.at), shortestGrace))
	defer timer.Stop()
	select {
	case <-process.Done():
		return nil
	case <-timer.C:
		k.note(rec, func(r *PodRecord) { r.Killed = true })
	case <-ctx.Done():
	}
	return process.Kill()
}

// backOff keeps a pod that failed by itself for a second, so that a program that cannot start is not started in a busy loop.
func backOff(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (k *kubelet) startProcess(p *pod, ip netip.Addr, listening chan struct{}) (*Process, error) {
	first := sync.OnceFunc(func() { close(listening) })
	return command{
		name: "pod " + p.name, path: k.sb.self, log: k.sb.logFile("pods"),
		args: []string{
			podCommand, "--addr", netip.AddrPortFrom(ip, Port).String(), "--name", p.name,
			"--delay-max", p.template.ResponseMax.String(), "--app", string(p.template.App),
		},
		onLine: func(line string) {
			if line == listeningLine {
				first()
			}
		},
	}.start()
}

// serve lasts from the start to the deletion. It is false when the pod ended otherwise: by itself, or with ctx.
func (k *kubelet) serve(ctx context.Context, p *pod, process *Process, rec *PodRecord, listening <-chan struct{}, events podEvents) bool {
	var ready <-chan time.Time
	for {
		select {
		case <-listening:
			listening = nil
			if p.template.ReadyAfter >= 0 {
				timer := time.NewTimer(p.template.ReadyAfter)
				defer timer.Stop()
				ready = timer.C
			}
		case <-ready:
			ready = nil
			k.note(rec, func(r *PodRecord) { r.Ready = time.Now() })
			events.podReady(ctx)
		case <-p.deleted:
			return true
		case <-process.Done():
			k.note(rec, func(r *PodRecord) { r.Crashed = true })
			k.sb.log.Error("pod ended by itself", "pod", p.name, "err", process.endedError())
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// preStop runs the pod's hook, at most for the grace period, and returns the last line that it printed.
func (k *kubelet) preStop(ctx context.Context, p *pod, ip netip.Addr) string {
	ctx, cancel := context.WithTimeout(ctx, p.template.Grace)
	defer cancel()
	switch p.template.PreStop {
	case SleepPreStop:
		timer := time.NewTimer(p.template.Sleep)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ""
	case DrainWaitPreStop:
		return k.drainWait(ctx, p, ip)
	default:
		return ""
	}
}

func (k *kubelet) drainWait(ctx context.Context, p *pod, ip netip.Addr) string {
	binary, err := k.sb.Tool(drainWaitBinary)
	if err != nil {
		return err.Error()
	}
	args := []string{
		"--url", "http://" + DrainAddress, "--cluster", k.cluster, "--namespace", p.namespace,
		"--pod", p.name, "--uid", p.uid, "--ip", ip.String(), "--port", fmt.Sprint(Port), "--timeout", "15s",
		"--grace", p.template.Grace.String(),
	}
	cmd := exec.CommandContext(ctx, binary, slices.Concat(args, p.template.DrainWaitArgs)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	line := lines[len(lines)-1]
	if err != nil { // drain-wait promises to end with 0 whatever happens.
		return fmt.Sprintf("drain-wait failed: %v: %s", err, line)
	}
	return line
}
