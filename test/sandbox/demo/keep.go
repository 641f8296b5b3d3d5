package demo

import (
	"context"
	"os"
	"path/filepath"

	"github.com/slicecast/slicecast/test/sandbox"
)

// keepRate is the load while people look, in requests a second.
const keepRate = 50

// keep leaves everything running under a light load until ctx ends, and says how to look.
func (s *stage) keep(ctx context.Context) error {
	driver, err := sandbox.NewDriver(sandbox.DriverConfig{Target: s.envoy.Listen(), Rate: keepRate})
	if err != nil {
		return err
	}
	done := make(chan sandbox.Result, 1)
	go func() { done <- driver.Run(ctx) }()
	if err := s.howToLook(); err != nil {
		return err
	}
	a := new(act)
	for {
		select {
		case <-s.cfg.Again:
			if err := s.rollout(ctx, a, driver); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			s.say("\nSince the table: %v", <-done)
			return nil
		}
	}
}

func (s *stage) howToLook() error {
	slicecast, err := s.sb.Tool("bin/slicecast")
	if err != nil {
		return err
	}
	enter := sandbox.EnterCommand(os.Getpid())
	show := func(what, command string) { s.say("  %-28s %s %s", what, enter, command) }
	s.say("\nAll of it keeps running, under %d requests a second. Ctrl-C ends it. Logs and files: %s\n", keepRate, s.sb.Dir())
	show("a request:", "curl -si http://"+s.envoy.Listen().String()+"/")
	show("what Envoy has:", "curl -s http://"+s.envoy.Admin().String()+"/clusters | grep ^workload::10")
	show("slicecast's metrics:", "curl -s http://"+sandbox.HTTPAddress+"/metrics | grep ^slicecast_")
	show("the events on the bus:", slicecast+" events --nats nats://"+busAddress)
	show("slicecast's endpoints:", slicecast+" get endpoints --nats nats://"+busAddress)
	if k, ok := s.cp.(*sandbox.Kube); ok {
		kubectl := filepath.Join(filepath.Dir(filepath.Dir(slicecast)), ".tools", "kube") + " kubectl --kubeconfig " + k.Kubeconfig() + " -n shop"
		show("pods and slices:", kubectl+" get pods,endpointslices -o wide")
		show("another rollout:", kubectl+" rollout restart deployment/web")
	} else {
		s.say("  %-28s %s", "the slices:", "cat "+filepath.Join(s.sb.Dir(), "slices", "*.yaml"))
	}
	s.say("  %-28s kill -USR1 %d", "another rollout, counted:", os.Getpid())
	return nil
}
