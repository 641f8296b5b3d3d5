package sandbox

import (
	"encoding/json"
	"net/netip"
)

// object is a JSON object.
type object = map[string]any

// upstreamCluster is the name of the only cluster that Envoy routes to.
const upstreamCluster = "workload"

// flagsHeader carries Envoy's response flags on answers that Envoy made itself.
const flagsHeader = "X-Envoy-Flags"

// bootstrap is an Envoy configuration with one listener, one route and one cluster whose endpoints come from cfg alone, without
// retries, hedging, outlier detection and health checks. cfg has its defaults.
func bootstrap(cfg EnvoyConfig) ([]byte, error) {
	clusters := []any{workloadCluster(cfg)}
	out := object{
		"node": object{
			"id": cfg.NodeID, "cluster": "sandbox",
			"locality": object{"zone": zoneName},
			"metadata": object{"slicecast.io/cluster": cfg.KubernetesCluster},
		},
		"admin": object{"address": socketAddress(cfg.Admin)},
	}
	if cfg.EDSFile == "" {
		clusters = append(clusters, xdsCluster(cfg.XDS))
		out["dynamic_resources"] = object{"ads_config": object{
			"api_type": map[bool]string{false: "DELTA_GRPC", true: "GRPC"}[cfg.SotW], "transport_api_version": "V3",
			"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds_cluster"}}},
		}}
	}
	out["static_resources"] = object{"listeners": []any{listener(cfg.Listen)}, "clusters": clusters}
	return json.MarshalIndent(out, "", "  ")
}

func workloadCluster(cfg EnvoyConfig) object {
	source := object{"ads": object{}, "resource_api_version": "V3"}
	if cfg.EDSFile != "" {
		source = object{"path_config_source": object{"path": cfg.EDSFile}, "resource_api_version": "V3"}
	}
	cluster := object{
		"name": upstreamCluster, "type": "EDS", "connect_timeout": "1s",
		"eds_cluster_config":               object{"service_name": cfg.Service, "eds_config": source},
		"common_lb_config":                 object{"update_merge_window": "0s"},
		"ignore_health_on_host_removal":    true,
		"typed_extension_protocol_options": httpOptions(cfg.HTTP2ToPods),
	}
	return cluster
}

func httpOptions(http2 bool) object {
	protocol := object{"http_protocol_options": object{}}
	if http2 {
		protocol = object{"http2_protocol_options": object{}}
	}
	return object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
		"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
		"explicit_http_config": protocol,
	}}
}

func xdsCluster(replicas []netip.AddrPort) object {
	var endpoints []any
	for _, address := range replicas {
		endpoints = append(endpoints, object{"endpoint": object{"address": socketAddress(address)}})
	}
	return object{
		"name": "xds_cluster", "type": "STATIC", "connect_timeout": "1s",
		"typed_extension_protocol_options": httpOptions(true),
		"load_assignment":                  object{"cluster_name": "xds_cluster", "endpoints": []any{object{"lb_endpoints": endpoints}}},
	}
}

func listener(address netip.AddrPort) object {
	manager := object{
		"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "ingress",
		"codec_type":  "AUTO", // HTTP/1.1, and HTTP/2 with prior knowledge.
		"route_config": object{"virtual_hosts": []any{object{
			"name": "all", "domains": []any{"*"},
			"routes": []any{object{
				"match": object{"prefix": "/"}, "route": object{"cluster": upstreamCluster, "timeout": "0s"},
			}},
		}}},
		"http_filters": []any{object{
			"name": "envoy.filters.http.router",
			"typed_config": object{
				"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
			},
		}},
		"local_reply_config": object{"mappers": []any{object{
			"filter": object{"status_code_filter": object{"comparison": object{
				"op": "GE", "value": object{"default_value": 400, "runtime_key": "sandbox.unused"},
			}}},
			"headers_to_add": []any{object{"header": object{"key": flagsHeader, "value": "%RESPONSE_FLAGS%"}}},
		}}},
	}
	return object{
		"name": "ingress", "address": socketAddress(address),
		"filter_chains": []any{object{"filters": []any{object{
			"name": "envoy.filters.network.http_connection_manager", "typed_config": manager,
		}}}},
	}
}

func socketAddress(a netip.AddrPort) object {
	return object{"socket_address": object{"address": a.Addr().String(), "port_value": a.Port()}}
}
