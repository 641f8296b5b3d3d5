package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// Where a slicecast of the sandbox listens: its defaults.
const (
	XDSAddress   = "127.0.0.1:18000"
	HTTPAddress  = "127.0.0.1:18080"
	DrainAddress = "127.0.0.1:18081"
)

const (
	slicecastBinary = "bin/slicecast"
	drainWaitBinary = "bin/drain-wait" // `slicecast drain-wait`, small enough to be put into pods.
)

// SlicecastConfig says what a `slicecast standalone` serves.
type SlicecastConfig struct {
	// Clusters are the values of --cluster, such as "demo=dir:/path". At least one.
	Clusters []string
	// DataDir keeps the bus. Default: "data" in the sandbox's folder.
	DataDir string
	// Args are further arguments.
	Args []string
	// Env are further variables, NAME=value.
	Env []string
}

// A Slicecast is a running `slicecast standalone`.
type Slicecast struct {
	*Process
	sb  *Sandbox
	cfg SlicecastConfig
}

// StartSlicecast starts bin/slicecast and waits until it is ready, that is, in sync with all its clusters.
func (s *Sandbox) StartSlicecast(ctx context.Context, cfg SlicecastConfig) (*Slicecast, error) {
	if len(cfg.Clusters) == 0 {
		return nil, errors.New("start slicecast: no cluster given")
	}
	if cfg.DataDir == "" {
		cfg.DataDir = filepath.Join(s.dir, "data")
	}
	path, err := s.Tool(slicecastBinary)
	if err != nil {
		return nil, err
	}
	args := []string{"standalone", "--data-dir", cfg.DataDir}
	for _, c := range cfg.Clusters {
		args = append(args, "--cluster", c)
	}
	p, err := command{
		name: "slicecast", path: path, args: slices.Concat(args, cfg.Args), env: cfg.Env, log: s.logFile("slicecast"),
	}.start()
	if err != nil {
		return nil, err
	}
	sc := &Slicecast{Process: p, sb: s, cfg: cfg}
	s.onClose(func() error { return p.Stop(10 * time.Second) })
	err = waitFor(ctx, p, "slicecast to be ready", func(ctx context.Context) error {
		_, err := get(ctx, "http://"+HTTPAddress+"/readyz")
		return err
	})
	return sc, err
}

// Restart starts a slicecast with the same configuration and data; the one before must have ended.
func (s *Slicecast) Restart(ctx context.Context) (*Slicecast, error) {
	select {
	case <-s.Done():
		return s.sb.StartSlicecast(ctx, s.cfg)
	default:
		return nil, fmt.Errorf("restart slicecast: process %d is still running", s.PID())
	}
}

// Propagation reads slicecast_propagation_seconds.
func (s *Slicecast) Propagation(ctx context.Context) (Propagation, error) {
	body, err := get(ctx, "http://"+HTTPAddress+"/metrics")
	if err != nil {
		return nil, err
	}
	return parsePropagation(body)
}
