package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// bootstrapConfig is what an Envoy must know to ask slicecast.
type bootstrapConfig struct {
	nodeID   string
	cluster  string // Kubernetes cluster of the Envoy, "" for none
	region   string
	zone     string
	ipFamily string
	xds      []string // host:port of the xDS replicas
	admin    string   // host:port of Envoy's admin listener
	sotw     bool
	output   string
}

func bootstrapCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bootstrap", Short: "Print a working bootstrap for a client", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(bootstrapEnvoyCommand())
	return cmd
}

func bootstrapEnvoyCommand() *cobra.Command {
	var c bootstrapConfig
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Print a bootstrap of an Envoy that takes its clusters and endpoints from slicecast",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.envoy()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.nodeID, "node-id", "", "id of the Envoy, unique among all clients (default: the host name and a random part)")
	f.StringVar(&c.cluster, "node-cluster", "", "Kubernetes cluster that the Envoy is in; its endpoints come first (default: none)")
	f.StringVar(&c.region, "node-region", "", "region of the Envoy")
	f.StringVar(&c.zone, "node-zone", "", "zone of the Envoy")
	f.StringVar(&c.ipFamily, "ip-family", "", "ipv4 or ipv6, to get addresses of that family only")
	f.StringArrayVar(&c.xds, "xds", []string{"127.0.0.1:18000"}, "HOST:PORT of an xDS replica (repeatable)")
	f.StringVar(&c.admin, "admin", "127.0.0.1:9901", "HOST:PORT of Envoy's admin listener")
	f.BoolVar(&c.sotw, "sotw", false, "state-of-the-world instead of delta xDS")
	f.StringVarP(&c.output, "output", "o", "yaml", "yaml or json")
	return cmd
}

// tree is one object of a bootstrap.
type tree map[string]any

func (c bootstrapConfig) envoy() ([]byte, error) {
	admin, err := socketAddress("admin", c.admin)
	if err != nil {
		return nil, err
	}
	replicas := make([]tree, 0, len(c.xds))
	for _, hostport := range c.xds {
		address, err := socketAddress("xds", hostport)
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, tree{"endpoint": tree{"address": address}})
	}
	node, err := c.node()
	if err != nil {
		return nil, err
	}
	api := "DELTA_GRPC"
	if c.sotw {
		api = "GRPC"
	}
	ads := tree{"ads": tree{}, "resource_api_version": "V3"}
	bootstrap := tree{
		"node":  node,
		"admin": tree{"address": admin},
		"dynamic_resources": tree{
			"ads_config": tree{
				"api_type": api, "transport_api_version": "V3",
				"grpc_services": []tree{{"envoy_grpc": tree{"cluster_name": "slicecast_xds"}}},
			},
			"cds_config": ads,
		},
		"static_resources": tree{"clusters": []tree{xdsCluster(replicas)}},
	}
	return c.print(bootstrap)
}

func (c bootstrapConfig) node() (tree, error) {
	switch c.ipFamily {
	case "", "ipv4", "ipv6":
	default:
		return nil, usagef("--ip-family %q is neither ipv4 nor ipv6", c.ipFamily)
	}
	id := c.nodeID
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("make a node id: %w", err)
		}
		random := make([]byte, 4)
		_, _ = rand.Read(random) // never fails
		id = host + "-" + hex.EncodeToString(random)
	}
	metadata := tree{}
	if c.cluster != "" {
		metadata["slicecast.io/cluster"] = c.cluster
	}
	if c.ipFamily != "" {
		metadata["slicecast.io/ip-family"] = c.ipFamily
	}
	return tree{
		"id": id, "cluster": "envoy", "metadata": metadata,
		"locality": tree{"region": c.region, "zone": c.zone},
	}, nil
}

// xdsCluster is the cluster of the xDS replicas: HTTP/2 with keepalives, so that a dead replica is left soon.
func xdsCluster(replicas []tree) tree {
	return tree{
		"name": "slicecast_xds", "type": "STRICT_DNS", "connect_timeout": "1s", "lb_policy": "ROUND_ROBIN",
		"typed_extension_protocol_options": tree{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": tree{
				"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": tree{"http2_protocol_options": tree{
					"connection_keepalive": tree{"interval": "10s", "timeout": "5s"},
				}},
			},
		},
		"load_assignment": tree{
			"cluster_name": "slicecast_xds",
			"endpoints":    []tree{{"lb_endpoints": replicas}},
		},
	}
}

func socketAddress(flag, hostport string) (tree, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, usagef("--%s %q: %w", flag, hostport, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return nil, usagef("--%s %q is not HOST:PORT", flag, hostport)
	}
	return tree{"socket_address": tree{"address": host, "port_value": number}}, nil
}

func (c bootstrapConfig) print(bootstrap tree) ([]byte, error) {
	switch c.output {
	case "json":
		text, err := json.MarshalIndent(bootstrap, "", "  ")
		return append(text, '\n'), err
	case "yaml":
		return yaml.Marshal(bootstrap)
	default:
		return nil, usagef("--output %q is neither yaml nor json", c.output)
	}
}
