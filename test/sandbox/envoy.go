package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EnvoyConfig says how a real Envoy is to be run.
type EnvoyConfig struct {
	// NodeID names the Envoy to slicecast, and its files. Default: "envoy".
	NodeID string
	// KubernetesCluster is the cluster that the Envoy belongs to, as metadata of its node. Default: "demo".
	KubernetesCluster string
	// Service is the name of the endpoints to ask for. Default: "web.shop:http".
	Service string
	// Listen takes the requests. Default: 127.0.0.1:10000.
	Listen netip.AddrPort
	// Admin is the admin interface. Default: 127.0.0.1:9901.
	Admin netip.AddrPort
	// XDS are the replicas of the server of endpoints. Default: XDSAddress.
	XDS []netip.AddrPort
	// SotW asks with state-of-the-world instead of delta xDS.
	SotW bool
	// HTTP2ToPods speaks HTTP/2 to the pods instead of HTTP/1.1.
	HTTP2ToPods bool
	// EDSFile, when set, is the only source of endpoints instead of XDS: a file with a discovery response.
	EDSFile string
	// Bootstrap, when set, is the configuration as it is; of the rest only NodeID, Listen, Admin, Concurrency and Binary count.
	Bootstrap []byte
	// Concurrency is the number of workers. Default: 2.
	Concurrency int
	// Binary is the program below the root folder. Default: ".tools/envoy".
	Binary string
}

func (c EnvoyConfig) withDefaults() EnvoyConfig {
	orText(&c.NodeID, "envoy")
	orText(&c.KubernetesCluster, "demo")
	orText(&c.Service, Workload{}.EnvoyService())
	orText(&c.Binary, ".tools/envoy")
	orAddress(&c.Listen, "127.0.0.1:10000")
	orAddress(&c.Admin, "127.0.0.1:9901")
	if len(c.XDS) == 0 {
		c.XDS = []netip.AddrPort{netip.MustParseAddrPort(XDSAddress)}
	}
	c.Concurrency = orNumber(c.Concurrency, 2)
	return c
}

func orAddress(a *netip.AddrPort, value string) {
	if !a.IsValid() {
		*a = netip.MustParseAddrPort(value)
	}
}

// An Envoy is a running Envoy.
type Envoy struct {
	*Process
	cfg EnvoyConfig
}

// StartEnvoy starts an Envoy and waits until it is live, that is, until it has had its first endpoints or gave up waiting.
func (s *Sandbox) StartEnvoy(ctx context.Context, cfg EnvoyConfig) (*Envoy, error) {
	cfg = cfg.withDefaults()
	path, err := s.Tool(cfg.Binary)
	if err != nil {
		return nil, err
	}
	config := cfg.Bootstrap
	if config == nil {
		if config, err = bootstrap(cfg); err != nil {
			return nil, fmt.Errorf("bootstrap of %s: %w", cfg.NodeID, err)
		}
	}
	file := filepath.Join(s.dir, cfg.NodeID+".json")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return nil, err
	}
	p, err := command{
		name: cfg.NodeID, path: path, log: s.logFile(cfg.NodeID),
		// Hot restart keeps its memory in a place that all Envoys of the machine share.
		args: []string{"-c", file, "--concurrency", strconv.Itoa(cfg.Concurrency), "--disable-hot-restart", "--log-level", "warning"},
	}.start()
	if err != nil {
		return nil, err
	}
	s.onClose(func() error { return p.Stop(5 * time.Second) })
	e := &Envoy{Process: p, cfg: cfg}
	err = waitFor(ctx, p, cfg.NodeID+" to be live", func(ctx context.Context) error {
		_, err := e.admin(ctx, "/ready")
		return err
	})
	return e, err
}

// Listen is where requests go.
func (e *Envoy) Listen() netip.AddrPort { return e.cfg.Listen }

// Admin is the address of the admin interface.
func (e *Envoy) Admin() netip.AddrPort { return e.cfg.Admin }

func (e *Envoy) admin(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, "http://"+e.cfg.Admin.String()+path)
}

// A Host is an endpoint as an Envoy has it.
type Host struct {
	Address netip.AddrPort
	// Health is the health that the endpoints' source gave, such as HEALTHY or DRAINING.
	Health string
	// Priority is 0 for the first choice.
	Priority int
}

// Hosts are the endpoints that the Envoy has, from /clusters, sorted by address.
func (e *Envoy) Hosts(ctx context.Context) ([]Host, error) {
	body, err := e.admin(ctx, "/clusters?format=json")
	if err != nil {
		return nil, err
	}
	return parseHosts(body)
}

func parseHosts(body []byte) ([]Host, error) {
	var answer struct {
		ClusterStatuses []struct {
			Name         string `json:"name"`
			HostStatuses []struct {
				Address struct {
					SocketAddress struct {
						Address string `json:"address"`
						Port    uint16 `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
				HealthStatus struct {
					EDS string `json:"eds_health_status"`
				} `json:"health_status"`
				Priority int `json:"priority"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("parse /clusters: %w", err)
	}
	var hosts []Host
	for _, c := range answer.ClusterStatuses {
		if c.Name != upstreamCluster {
			continue
		}
		for _, h := range c.HostStatuses {
			ip, err := netip.ParseAddr(h.Address.SocketAddress.Address)
			if err != nil {
				return nil, fmt.Errorf("parse /clusters: %w", err)
			}
			hosts = append(hosts, Host{
				Address: netip.AddrPortFrom(ip, h.Address.SocketAddress.Port), Health: h.HealthStatus.EDS, Priority: h.Priority,
			})
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Priority, b.Priority))
	})
	return hosts, nil
}

// Addresses are the addresses of hosts that take new requests, in the hosts' order.
func Addresses(hosts []Host) []netip.AddrPort {
	var all []netip.AddrPort
	for _, h := range hosts {
		if h.Health == "HEALTHY" || h.Health == "UNKNOWN" || h.Health == "" {
			all = append(all, h.Address)
		}
	}
	return all
}

// Updates is the number of responses with the Workload's endpoints that the Envoy has taken.
func (e *Envoy) Updates(ctx context.Context) (int, error) {
	body, err := e.admin(ctx, "/stats?usedonly&filter=cluster."+upstreamCluster+".update_success")
	if err != nil {
		return 0, err
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(body)), ": ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("parse /stats %q: %w", body, err)
	}
	return n, nil
}

// WaitEndpoints waits until the Envoy takes exactly the endpoints that a proxy should use of the control plane's slices, and
// returns what it has otherwise as an error when ctx ends.
func (e *Envoy) WaitEndpoints(ctx context.Context, cp ControlPlane) error {
	return waitFor(ctx, e.Process, "the endpoints of "+e.cfg.NodeID, func(ctx context.Context) error {
		all, err := cp.Slices(ctx)
		if err != nil {
			return err
		}
		hosts, err := e.Hosts(ctx)
		if err != nil {
			return err
		}
		want, got := UsableEndpoints(all, PortName), Addresses(hosts)
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has %v, the slices say %v", got, want)
		}
		return nil
	})
}
