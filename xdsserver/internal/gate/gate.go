package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// ErrBusy is returned by Drain when too many waits are open, in all or for one pod.
var ErrBusy = errors.New("too many drain waits are open")

// RequestError is returned by Drain for a question that has no answer: it names the parameter.
type RequestError struct{ err error }

func (e RequestError) Error() string { return e.err.Error() }
func (e RequestError) Unwrap() error { return e.err }

// Config is what a Gate needs.
type Config struct {
	Name     string          // of this replica, for the answers
	Replica  Replica         // required
	Clusters func() []string // the clusters that the bus knows; required
	Peers    Peers           // the other replicas; nil: there can be none
	// Floor asks a watcher of the cluster for the API server's version by a consistent read that is made after the
	// call. It returns at the latest when ctx ends; an error is tried again. Required.
	Floor func(ctx context.Context, cluster string) (endpoint.Version, error)
	// Restarted is when this process began, if there may have been one before it that had clients: they count as lost
	// for ProxyLostAfter, since nothing tells which they were. Zero when there was none.
	Restarted time.Time

	LeavingWithin  time.Duration // how long a pod may stay ready and not terminating; default 2 s
	FallbackWait   time.Duration // how long to wait for the successor of the last endpoint; default 10 s, below 0 none
	FreshFor       time.Duration // how long a stream without its first acknowledgement blocks; default 5 s
	ProxyLostAfter time.Duration // how long a stream that ended blocks; default 10 s
	MaxWaits       int           // open waits; default 10,000
	MaxWaitsPerPod int           // open waits of one pod; default 4

	Log        *slog.Logger          // required
	Registerer prometheus.Registerer // required
}

// Gate answers whether pods may stop. Its methods may be called by any number of goroutines at once.
type Gate struct {
	cfg     Config
	metrics *metrics

	mu   sync.Mutex     // guards what follows
	open int            // waits
	pods map[string]int // waits by pod, only those above 0
}

// New fills the defaults of cfg, checks it and gives a Gate. It starts nothing.
func New(cfg Config) (*Gate, error) {
	cfg.LeavingWithin = cmp.Or(cfg.LeavingWithin, 2*time.Second)
	cfg.FallbackWait = cmp.Or(cfg.FallbackWait, 10*time.Second)
	cfg.FreshFor = cmp.Or(cfg.FreshFor, 5*time.Second)
	cfg.ProxyLostAfter = cmp.Or(cfg.ProxyLostAfter, 10*time.Second)
	cfg.MaxWaits = cmp.Or(cfg.MaxWaits, 10_000)
	cfg.MaxWaitsPerPod = cmp.Or(cfg.MaxWaitsPerPod, 4)
	switch {
	case cfg.Replica == nil || cfg.Clusters == nil || cfg.Floor == nil:
		return nil, errors.New("drain gate: Replica, Clusters and Floor are required")
	case cfg.Log == nil || cfg.Registerer == nil:
		return nil, errors.New("drain gate: Log and Registerer are required")
	case cfg.LeavingWithin < 0 || cfg.FreshFor < 0 || cfg.ProxyLostAfter < 0:
		return nil, errors.New("drain gate: a duration is below 0")
	case cfg.MaxWaits < 0 || cfg.MaxWaitsPerPod < 0:
		return nil, errors.New("drain gate: a limit of waits is below 0")
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("drain gate: %w", err)
	}
	return &Gate{cfg: cfg, metrics: m, pods: map[string]int{}}, nil
}

// Drain waits until the pod of r is drained, or until it is certain that it will not be, or r.Timeout has passed, and
// says so. The error is a RequestError, ErrBusy, or that of ctx.
func (g *Gate) Drain(ctx context.Context, r Request) (Answer, error) {
	began := time.Now()
	pod, err := r.pod()
	if err == nil && r.Cluster == "" && len(g.cfg.Clusters()) > 1 {
		err = errors.New("parameter cluster is missing, and the bus knows more than one")
	}
	if err != nil {
		g.metrics.refuse(refusedBad)
		return Answer{}, RequestError{err}
	}
	leave, ok := g.enter(pod)
	if !ok {
		g.metrics.refuse(refusedBusy)
		return Answer{}, ErrBusy
	}
	defer leave()
	a := g.wait(ctx, began, pod, r)
	g.metrics.observe(a, time.Since(began))
	g.cfg.Log.Info("drain", "namespace", pod.Namespace, "pod", pod.Name, "drained", a.Drained, "reason", string(a.Reason),
		"missing", len(a.Missing), "took", time.Since(began))
	if a.Reason == Cancelled {
		return a, context.Cause(ctx)
	}
	return a, nil
}

// Query is Drain for the query "drain" on the bus: both body and answer are JSON.
func (g *Gate) Query(ctx context.Context, body []byte) ([]byte, error) {
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		g.metrics.refuse(refusedBad)
		return nil, RequestError{fmt.Errorf("body of the drain query: %w", err)}
	}
	a, err := g.Drain(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// enter counts a wait of the pod, unless there are too many; leave ends it.
func (g *Gate) enter(p Pod) (leave func(), ok bool) {
	key := p.Cluster + "/" + p.UID
	if p.UID == "" {
		key = p.Cluster + "/" + p.Addrs[0].String()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= g.cfg.MaxWaits || g.pods[key] >= g.cfg.MaxWaitsPerPod {
		return nil, false
	}
	g.open++
	g.pods[key]++
	g.metrics.waits.Set(float64(g.open))
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open--
		if g.pods[key]--; g.pods[key] == 0 {
			delete(g.pods, key)
		}
		g.metrics.waits.Set(float64(g.open))
	}, true
}
