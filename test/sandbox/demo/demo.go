package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// ErrVoid is returned when acts (a) and (b) together lost no request.
var ErrVoid = errors.New("acts (a) and (b) lost no request, so this run proves nothing")

// ErrLost is returned when act (c) lost a request.
var ErrLost = errors.New("act (c) lost requests")

// Config says what to show.
type Config struct {
	// ControlPlane is "files" or "kube". Default: files.
	ControlPlane string
	// Rate is the load in requests a second. Default: 500.
	Rate int
	// Rollouts is the least number of rollouts of an act, Requests the least number of requests of act (c). Default: 3 and 5,000.
	Rollouts, Requests int
	// Keep leaves everything running, after the table, until the context ends. A value received from Again starts a rollout.
	Keep  bool
	Again <-chan os.Signal
	// Root is the folder of bin and .tools. Default: as sandbox.Config's.
	Root string
	// Out gets progress and result.
	Out io.Writer
}

// cluster is the name that slicecast knows the control plane by.
const cluster = "demo"

// busAddress is where slicecast lets others subscribe.
const busAddress = "127.0.0.1:4222"

// batchPeriod is how long the imitation gathers changes.
const batchPeriod = time.Second

// pause lies between two rollouts.
const pause = 500 * time.Millisecond

// stage is what all acts share.
type stage struct {
	cfg Config
	sb  *sandbox.Sandbox
	cp  sandbox.ControlPlane
	// slicecast runs from act (b) on.
	slicecast *sandbox.Slicecast
	envoy     *sandbox.Envoy
}

// Run plays the three acts. The process must be inside the sandbox's namespace.
func Run(ctx context.Context, cfg Config) error {
	setDefaults(&cfg)
	sb, err := sandbox.New(sandbox.Config{Root: cfg.Root, Log: slog.New(slog.NewTextHandler(cfg.Out, nil))})
	if err != nil {
		return err
	}
	s := &stage{cfg: cfg, sb: sb}
	err = s.play(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrVoid) && !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w\n%s", err, sb.Logs(5))
	}
	return errors.Join(err, sb.Close())
}

func setDefaults(cfg *Config) {
	if cfg.ControlPlane == "" {
		cfg.ControlPlane = "files"
	}
	if cfg.Rate == 0 {
		cfg.Rate = 500
	}
	if cfg.Rollouts == 0 {
		cfg.Rollouts = 3
	}
	if cfg.Requests == 0 {
		cfg.Requests = 5000
	}
}

func (s *stage) play(ctx context.Context) error {
	if err := s.setUp(ctx); err != nil {
		return err
	}
	var acts []*act
	for _, play := range []func(context.Context) (*act, error){s.imitation, s.withoutGate, s.withGate} {
		a, err := play(ctx)
		if err != nil {
			return err
		}
		acts = append(acts, a)
	}
	printTable(s.cfg.Out, acts)
	verdict := judge(acts)
	if s.cfg.Keep {
		if verdict != nil {
			s.say("\nFAILED: %v", verdict)
		}
		return errors.Join(verdict, s.keep(ctx))
	}
	return verdict
}

// judge decides whether the run proves what it is there for.
func judge(acts []*act) error {
	a, b, c := acts[0].load, acts[1].load, acts[2].load
	switch {
	case c.Failed() > 0:
		return fmt.Errorf("%w: %v", ErrLost, c)
	case a.Failed()+b.Failed() == 0:
		return ErrVoid
	}
	return nil
}

func (s *stage) say(format string, args ...any) { _, _ = fmt.Fprintf(s.cfg.Out, format+"\n", args...) }

func (s *stage) setUp(ctx context.Context) error {
	s.say("One machine, one network namespace: 3 pods behind a real Envoy, %d requests a second, rolling restarts.", s.cfg.Rate)
	s.say("The pods' program has no shutdown code: it dies at SIGTERM. Nobody retries.")
	var err error
	switch s.cfg.ControlPlane {
	case "files":
		s.say("The control plane is a stand-in that rolls pods as a Deployment does and writes EndpointSlice manifests.")
		s.cp, err = sandbox.NewFiles(ctx, s.sb, cluster, workload(sandbox.NoPreStop))
	case "kube":
		s.say("The control plane is the real one: etcd, kube-apiserver, the controllers. Starting it ...")
		s.cp, err = sandbox.NewKube(ctx, s.sb, cluster, workload(sandbox.NoPreStop))
	default:
		err = fmt.Errorf("unknown control plane %q: files or kube", s.cfg.ControlPlane)
	}
	return err
}

func workload(p sandbox.PreStop) sandbox.Workload {
	return sandbox.Workload{Template: sandbox.Template{App: sandbox.Abrupt, PreStop: p}}
}
