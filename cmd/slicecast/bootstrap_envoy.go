package main

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// envoyBootstrap is what an Envoy must know beside.
type envoyBootstrap struct {
	bootstrapConfig
	admin  string // host:port of Envoy's admin listener
	sotw   bool
	demo   string // host:port of a listener that routes by host, "" for none
	output string
}

func bootstrapEnvoyCommand() *cobra.Command {
	var c envoyBootstrap
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Print a bootstrap of an Envoy that takes its clusters and endpoints from slicecast",
		Long: "Print a bootstrap of an Envoy that takes its clusters and endpoints from slicecast.\n" +
			"With --demo it also has a listener that sends each request to the service port that its host names:\n" +
			"  curl -H 'Host: web.shop:http' http://127.0.0.1:10000/",
		Args: noArguments,
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
	c.add(f)
	f.StringVar(&c.admin, "admin", "127.0.0.1:9901", "HOST:PORT of Envoy's admin listener")
	f.BoolVar(&c.sotw, "sotw", false, "state-of-the-world instead of delta xDS")
	f.StringVar(&c.demo, "demo", "", "add an HTTP listener at HOST:PORT that sends each request to the cluster that its host names")
	f.Lookup("demo").NoOptDefVal = "127.0.0.1:10000"
	f.StringVarP(&c.output, "output", "o", "yaml", "yaml or json")
	return cmd
}

func (c envoyBootstrap) envoy() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
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
	node, err := c.place()
	if err != nil {
		return nil, err
	}
	api := "DELTA_GRPC"
	if c.sotw {
		api = "GRPC"
	}
	ads := tree{"ads": tree{}, "resource_api_version": "V3"}
	static := tree{"clusters": []tree{c.xdsCluster(replicas)}}
	if c.demo != "" {
		address, err := socketAddress("demo", c.demo)
		if err != nil {
			return nil, err
		}
		static["listeners"] = []tree{demoListener(address)}
	}
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
		"static_resources": static,
	}
	return c.print(bootstrap)
}

// demoListener takes HTTP/1.1 and HTTP/2 and sends each request, once, to the cluster that its host names.
func demoListener(address tree) tree {
	const extensions = "type.googleapis.com/envoy.extensions.filters."
	manager := tree{
		"@type":       extensions + "network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "demo",
		"route_config": tree{"virtual_hosts": []tree{{
			"name": "by-host", "domains": []string{"*"},
			"routes": []tree{{
				"match": tree{"prefix": "/"},
				"route": tree{"cluster_header": ":authority", "timeout": "0s"},
			}},
		}}},
		"http_filters": []tree{{
			"name":         "envoy.filters.http.router",
			"typed_config": tree{"@type": extensions + "http.router.v3.Router"},
		}},
	}
	return tree{
		"name": "demo", "address": address,
		"filter_chains": []tree{{"filters": []tree{{
			"name": "envoy.filters.network.http_connection_manager", "typed_config": manager,
		}}}},
	}
}

// xdsCluster is the cluster of the xDS replicas: HTTP/2 with keepalives, so that a dead replica is left soon.
func (c envoyBootstrap) xdsCluster(replicas []tree) tree {
	out := tree{
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
	if c.tls.ca != "" {
		out["transport_socket"] = c.tls.envoy()
	}
	return out
}

// envoy is the transport socket of Envoy: the server must show a certificate of that name.
func (t bootstrapTLS) envoy() tree {
	kind := "DNS"
	if _, err := netip.ParseAddr(t.serverName); err == nil {
		kind = "IP_ADDRESS"
	} else if strings.Contains(t.serverName, "://") {
		kind = "URI"
	}
	common := tree{
		"alpn_protocols": []string{"h2"},
		"validation_context": tree{
			"trusted_ca": tree{"filename": t.ca},
			"match_typed_subject_alt_names": []tree{{
				"san_type": kind, "matcher": tree{"exact": t.serverName},
			}},
		},
	}
	if t.cert != "" {
		common["tls_certificates"] = []tree{{
			"certificate_chain": tree{"filename": t.cert}, "private_key": tree{"filename": t.key},
		}}
	}
	context := tree{
		"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": common,
	}
	if kind == "DNS" {
		context["sni"] = t.serverName
	}
	return tree{"name": "envoy.transport_sockets.tls", "typed_config": context}
}

func (c envoyBootstrap) print(bootstrap tree) ([]byte, error) {
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
