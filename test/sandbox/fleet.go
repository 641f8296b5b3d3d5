package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/bus"
)

// natsAddress is where the Fleet's NATS server listens.
const natsAddress = "127.0.0.1:4222"

// FleetConfig says which processes a Fleet has.
type FleetConfig struct {
	// Clusters are the values of the watchers' --cluster, such as "demo=dir:/path". At least one.
	Clusters []string
	// Watchers, Projectors and Replicas (of the xDS server) are numbers of processes. Default: 1, 1 and 2.
	Watchers, Projectors, Replicas int
	// ReplicaArgs are further arguments of each xDS replica.
	ReplicaArgs []string
}

// A Fleet is slicecast as it runs in production: a NATS server and a process per role and replica. The first xDS replica is at
// XDSAddress, HTTPAddress and DrainAddress, the others have the same ports on the loopback addresses that follow.
type Fleet struct {
	// NATS is the server of the bus.
	NATS *NATS
	// Watchers, Projectors and Replicas are the processes.
	Watchers, Projectors, Replicas []*Role
}

// StartFleet starts all and waits until the xDS replicas are ready, that is, in sync with all clusters.
func (s *Sandbox) StartFleet(ctx context.Context, cfg FleetConfig) (*Fleet, error) {
	if len(cfg.Clusters) == 0 {
		return nil, errors.New("start a fleet: no cluster given")
	}
	f := &Fleet{NATS: &NATS{dir: filepath.Join(s.dir, "nats"), sb: s}}
	if err := f.NATS.Start(); err != nil {
		return nil, err
	}
	s.onClose(f.NATS.Stop)
	path, err := s.Tool(slicecastBinary)
	if err != nil {
		return nil, err
	}
	watch, serve := []string{"watcher"}, []string{"xds"}
	for _, c := range cfg.Clusters {
		name, _, _ := strings.Cut(c, "=")
		watch, serve = append(watch, "--cluster", c), append(serve, "--expect-cluster", name)
	}
	serve = append(serve, cfg.ReplicaArgs...)
	role := func(place byte, number int, args []string) *Role {
		name := fmt.Sprintf("%s-%d", args[0], number)
		r := &Role{sb: s, ip: netip.AddrFrom4([4]byte{127, 0, place, byte(number + 1)})}
		args = append(slices.Clone(args), "--nats", "nats://"+natsAddress, "--http-listen", r.at(HTTPAddress).String())
		if args[0] == "xds" {
			args = append(args, "--xds-listen", r.XDS().String(), "--drain-listen", r.at(DrainAddress).String())
		}
		r.command = command{name: name, path: path, args: args, log: s.logFile(name)}
		return r
	}
	for i := range orNumber(cfg.Watchers, 1) {
		f.Watchers = append(f.Watchers, role(1, i, watch))
	}
	for i := range orNumber(cfg.Projectors, 1) {
		f.Projectors = append(f.Projectors, role(2, i, []string{"projector"}))
	}
	for i := range orNumber(cfg.Replicas, 2) {
		f.Replicas = append(f.Replicas, role(0, i, serve))
	}
	for _, r := range slices.Concat(f.Watchers, f.Projectors, f.Replicas) {
		if err := r.Start(); err != nil {
			return nil, err
		}
		s.onClose(func() error { return r.Stop(10 * time.Second) })
	}
	for _, r := range f.Replicas {
		if err := r.WaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// XDS are the addresses of the xDS replicas.
func (f *Fleet) XDS() []netip.AddrPort {
	var all []netip.AddrPort
	for _, r := range f.Replicas {
		all = append(all, r.XDS())
	}
	return all
}

// DrainURLs is the value of drain-wait's --url: the gate of each replica.
func (f *Fleet) DrainURLs() string {
	var all []string
	for _, r := range f.Replicas {
		all = append(all, "http://"+r.at(DrainAddress).String())
	}
	return strings.Join(all, ",")
}

// A Role is one process of a Fleet, which may be ended and started again.
type Role struct {
	*Process
	sb      *Sandbox
	command command
	ip      netip.Addr
}

// at is an address of the first replica, moved to that of this process.
func (r *Role) at(first string) netip.AddrPort {
	return netip.AddrPortFrom(r.ip, netip.MustParseAddrPort(first).Port())
}

// XDS is where an xDS replica serves.
func (r *Role) XDS() netip.AddrPort { return r.at(XDSAddress) }

// Start starts the process; the one before must have ended.
func (r *Role) Start() error {
	p, err := r.command.start()
	if err != nil {
		return err
	}
	r.Process = p
	return nil
}

// WaitReady waits until /readyz says so.
func (r *Role) WaitReady(ctx context.Context) error {
	return waitFor(ctx, r.Process, r.command.name+" to be ready", func(ctx context.Context) error {
		_, err := r.get(ctx, "/readyz")
		return err
	})
}

// Crash ends the process by SIGKILL, starts it again and waits until it is ready.
func (r *Role) Crash(ctx context.Context) error {
	if err := r.Kill(); err != nil {
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	return r.WaitReady(ctx)
}

// Restart is a Crash by SIGTERM.
func (r *Role) Restart(ctx context.Context) error {
	if err := r.Stop(10 * time.Second); err != nil {
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	return r.WaitReady(ctx)
}

// Metric is the sum of the samples of a metric, over all its labels.
func (r *Role) Metric(ctx context.Context, name string) (float64, error) {
	body, err := r.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return sumOf(body, name)
}

func (r *Role) get(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, "http://"+r.at(HTTPAddress).String()+path)
}

// NATS is a server with a store of its own, which may be ended and started again.
type NATS struct {
	sb     *Sandbox
	dir    string
	server *bus.Embedded
}

// Start starts the server with what its store holds.
func (n *NATS) Start() (err error) {
	n.server, err = bus.StartEmbedded(bus.EmbeddedConfig{DataDir: n.dir, Listen: natsAddress, AllowAnonymous: true, Log: n.sb.log})
	return err
}

// Stop ends the server; all connections to it break.
func (n *NATS) Stop() error {
	if n.server != nil {
		n.server.Shutdown()
		n.server = nil
	}
	return nil
}
