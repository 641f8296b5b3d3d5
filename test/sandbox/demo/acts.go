package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/test/sandbox"
)

// act is what one act measured.
type act struct {
	name, title string
	load        sandbox.Result
	// rollouts are their lengths, from the command until the last old pod was gone.
	rollouts []time.Duration
	// toSignal are the times from deletion to SIGTERM of the pods that were replaced.
	toSignal []time.Duration
	// drained is the line of the slowest drain-wait that was told "drained"; undrained are those of all others.
	drained   string
	undrained []string
	// propagation is what slicecast measured during the act.
	propagation sandbox.Propagation
}

func (s *stage) imitation(ctx context.Context) (*act, error) {
	a := &act{name: "a", title: "imitation of the reports"}
	s.say("\n(a) An imitation of what the reports describe: conditions are not read, an address leaves when its slice drops it,")
	s.say("    and changes are gathered for %v. It imitates no product.", batchPeriod)
	file, stop, err := s.sb.StartImitation(ctx, s.cp, sandbox.Workload{}.EnvoyService(), batchPeriod)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.startEnvoy(ctx, sandbox.EnvoyConfig{NodeID: "envoy-imitation", EDSFile: file}); err != nil {
		return nil, err
	}
	if err := s.load(ctx, a, 0); err != nil {
		return nil, err
	}
	return a, s.envoy.Stop(5 * time.Second)
}

func (s *stage) withoutGate(ctx context.Context) (*act, error) {
	a := &act{name: "b", title: "slicecast, no preStop"}
	s.say("\n(b) slicecast feeds Envoy; the pods have no preStop hook.")
	var err error
	s.slicecast, err = s.sb.StartSlicecast(ctx, sandbox.SlicecastConfig{
		Clusters: []string{cluster + "=" + s.cp.Source()},
		Args:     []string{"--bus-listen", busAddress, "--bus-allow-anonymous"}, // For those who look: all of it is in a namespace.
	})
	if err != nil {
		return nil, err
	}
	if err := s.startEnvoy(ctx, sandbox.EnvoyConfig{NodeID: "envoy"}); err != nil {
		return nil, err
	}
	return a, s.load(ctx, a, 0)
}

func (s *stage) withGate(ctx context.Context) (*act, error) {
	a := &act{name: "c", title: "slicecast with the gate"}
	s.say("\n(c) slicecast feeds Envoy; the pods' preStop hook is `slicecast drain-wait`. The program is the same.")
	if err := s.cp.Apply(ctx, workload(sandbox.DrainWaitPreStop)); err != nil {
		return nil, err
	}
	if err := s.envoy.WaitEndpoints(ctx, s.cp); err != nil {
		return nil, err
	}
	before, err := s.slicecast.Propagation(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.load(ctx, a, s.cfg.Requests); err != nil {
		return nil, err
	}
	after, err := s.slicecast.Propagation(ctx)
	if err != nil {
		return nil, err
	}
	a.propagation = after.Since(before)
	return a, nil
}

// startEnvoy starts an Envoy, checks that it cannot hide failures, and waits until it has all pods.
func (s *stage) startEnvoy(ctx context.Context, cfg sandbox.EnvoyConfig) (err error) {
	if s.envoy, err = s.sb.StartEnvoy(ctx, cfg); err != nil {
		return err
	}
	return errors.Join(s.envoy.CheckNoRetries(ctx), s.envoy.WaitEndpoints(ctx, s.cp))
}

// load runs rollouts under load until there were enough of them and enough requests.
func (s *stage) load(ctx context.Context, a *act, requests int) error {
	driver, err := sandbox.NewDriver(sandbox.DriverConfig{Target: s.envoy.Listen(), Rate: s.cfg.Rate})
	if err != nil {
		return err
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan sandbox.Result, 1)
	go func() { done <- driver.Run(sending) }()
	from := time.Now()
	for err == nil && (len(a.rollouts) < s.cfg.Rollouts || driver.Snapshot().Total() < requests) {
		if err = sleep(ctx, pause); err == nil {
			err = s.rollout(ctx, a, driver)
		}
	}
	if err == nil {
		err = sleep(ctx, batchPeriod+pause) // The imitation's last change has to arrive too.
	}
	stop()
	a.load = <-done
	a.notePods(s.cp.Pods(), from)
	return err
}

func (s *stage) rollout(ctx context.Context, a *act, driver *sandbox.Driver) error {
	start := time.Now()
	if err := s.cp.RolloutRestart(ctx); err != nil {
		return err
	}
	a.rollouts = append(a.rollouts, time.Since(start))
	s.say("    rollout %d took %v; so far %v", len(a.rollouts), round(time.Since(start)), driver.Snapshot())
	return nil
}

func (a *act) notePods(pods []sandbox.PodRecord, from time.Time) {
	for _, p := range pods {
		if d, ok := p.ToSignal(); ok && p.Deleted.After(from) {
			a.noteLine(p.PreStopLine, len(a.toSignal) == 0 || d > slices.Max(a.toSignal))
			a.toSignal = append(a.toSignal, d)
		}
	}
}

func (a *act) noteLine(line string, slowest bool) {
	switch {
	case line == "":
	case strings.Contains(line, "not drained") || !strings.Contains(line, "drained"):
		a.undrained = append(a.undrained, line)
	case slowest:
		a.drained = line
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", ctx.Err())
	}
}
