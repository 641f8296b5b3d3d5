package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// App is how a pod's program behaves on SIGTERM.
type App string

const (
	// Abrupt dies at once; the kernel cuts its connections. It is what a program without shutdown code does.
	Abrupt App = "abrupt"
	// Graceful closes its listener, finishes the requests in flight, then exits.
	Graceful App = "graceful"
	// Stubborn ignores SIGTERM, so that only SIGKILL at the end of the grace period ends it.
	Stubborn App = "stubborn"
)

// PreStop is what runs between a pod's deletion and SIGTERM.
type PreStop string

const (
	// NoPreStop sends SIGTERM at once.
	NoPreStop PreStop = "none"
	// SleepPreStop waits for Template.Sleep.
	SleepPreStop PreStop = "sleep"
	// DrainWaitPreStop runs the real drain-wait as a process.
	DrainWaitPreStop PreStop = "drain-wait"
)

// A Template is what all pods of one version of a Workload have in common.
type Template struct {
	// App is the behaviour on SIGTERM. Default: Abrupt.
	App App `json:"app,omitempty"`
	// PreStop is the kind of hook. Default: NoPreStop.
	PreStop PreStop `json:"preStop,omitempty"`
	// Sleep is the time of SleepPreStop.
	Sleep time.Duration `json:"sleep,omitempty"`
	// DrainWaitArgs are appended to drain-wait's command line.
	DrainWaitArgs []string `json:"drainWaitArgs,omitempty"`
	// ReadyAfter is the time from the program's start to ready. Default: 300 ms. Negative: never ready.
	ReadyAfter time.Duration `json:"readyAfter,omitempty"`
	// ResponseMax bounds the random time of a response. Default: 20 ms. Negative: answers at once.
	ResponseMax time.Duration `json:"responseMax,omitempty"`
	// Grace is terminationGracePeriodSeconds, whole seconds. Default: 30 s.
	Grace time.Duration `json:"grace,omitempty"`
}

// A Workload is a Deployment with a Service of the same name in front of it.
type Workload struct {
	// Namespace and Name name both. Default: shop and web.
	Namespace, Name string
	// Replicas is the number of pods. Default: 3. Negative: none.
	Replicas int
	// MaxSurge and MaxUnavailable bound a rolling update, in pods. Default, when both are 0: 1 and 0.
	MaxSurge, MaxUnavailable int
	// Recreate stops all old pods before the first new one starts.
	Recreate bool
	// Template is what the pods are like; a change of it is a rollout.
	Template Template
}

// Port is where every pod listens; the port's name in slices is PortName.
const (
	Port     = 8080
	PortName = "http"
)

func (w Workload) withDefaults() Workload {
	orText(&w.Namespace, "shop")
	orText(&w.Name, "web")
	orText(&w.Template.App, Abrupt)
	orText(&w.Template.PreStop, NoPreStop)
	w.Replicas = orNumber(w.Replicas, 3)
	if w.MaxSurge == 0 && w.MaxUnavailable == 0 {
		w.MaxSurge = 1
	}
	if w.Template.ReadyAfter == 0 { // Negative stays: it means never.
		w.Template.ReadyAfter = 300 * time.Millisecond
	}
	w.Template.ResponseMax = orNumber(w.Template.ResponseMax, 20*time.Millisecond)
	w.Template.Grace = orNumber(w.Template.Grace, 30*time.Second)
	return w
}

func orText[T ~string](v *T, value T) {
	if *v == "" {
		*v = value
	}
}

func orNumber[T int | time.Duration](v, value T) T {
	if v == 0 {
		return value
	}
	return max(v, 0)
}

// EnvoyService is the name under which slicecast serves the Workload: design section 6.
func (w Workload) EnvoyService() string {
	w = w.withDefaults()
	return w.Name + "." + w.Namespace + ":" + PortName
}

func (t Template) encode() (string, error) {
	data, err := json.Marshal(t)
	return string(data), err
}

func decodeTemplate(text string) (t Template, err error) {
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("decode the pod template: %w", err)
	}
	return t, nil
}

// ErrNeverReady is returned when a Workload was told to wait for pods that never become ready.
var ErrNeverReady = errors.New("the template's pods never become ready")

// A Deployer changes what should run.
type Deployer interface {
	// Apply creates or changes the Workload and returns when exactly its pods exist and are ready, and every other pod is gone.
	// With a template that never becomes ready it starts the rollout and returns ErrNeverReady without waiting.
	Apply(ctx context.Context, w Workload) error
	// RolloutRestart replaces all pods as `kubectl rollout restart` does and waits as Apply does.
	RolloutRestart(ctx context.Context) error
}

// An Observer tells what is running.
type Observer interface {
	// Source is the SOURCE of slicecast's --cluster flag.
	Source() string
	// Slices are the Workload's EndpointSlices as they are now.
	Slices(ctx context.Context) ([]discoveryv1.EndpointSlice, error)
	// Pods tells what happened to each pod so far, oldest first.
	Pods() []PodRecord
}

// A ControlPlane is a Kubernetes with one Workload on it: Files or Kube.
type ControlPlane interface {
	Deployer
	Observer
}
