package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// CheckNoRetries reads the Envoy's running configuration and fails when anything in it could hide a failed request: retries,
// hedging, outlier detection, health checks.
func (e *Envoy) CheckNoRetries(ctx context.Context) error {
	dump, err := e.admin(ctx, "/config_dump")
	if err != nil {
		return err
	}
	return checkNoRetries(dump)
}

// checkNoRetries wants a dump that has a route and the workload's cluster, so that it cannot pass for want of anything to read.
func checkNoRetries(dump []byte) error {
	var config any
	if err := json.Unmarshal(dump, &config); err != nil {
		return fmt.Errorf("parse /config_dump: %w", err)
	}
	var found []string
	var routes, clusters int
	walk("", config, func(path, key string, value any) {
		switch {
		case hides(key, value):
			found = append(found, path+"."+key)
		case key == "cluster" && value == upstreamCluster:
			routes++
		case key == "name" && value == upstreamCluster:
			clusters++
		}
	})
	slices.Sort(found)
	switch {
	case len(found) > 0:
		return fmt.Errorf("envoy's configuration can hide failed requests: %s", strings.Join(found, ", "))
	case routes == 0 || clusters == 0:
		return fmt.Errorf("envoy's configuration has no route to %s or no such cluster", upstreamCluster)
	}
	return nil
}

// hides reports whether a field of a configuration, by its name, makes failed requests invisible.
func hides(key string, value any) bool {
	switch key {
	case "retry_policy", "retry_policy_typed_config", "retry_options_predicates", "hedge_policy", "outlier_detection",
		"health_checks", "internal_redirect_policy", "request_mirror_policies", "failover":
		return true
	}
	text, ok := value.(string)
	text = strings.ToLower(text)
	return ok && (strings.HasPrefix(text, "x-envoy-retry") || strings.HasPrefix(text, "x-envoy-hedge"))
}

// walk visits each field of each object in a JSON value.
func walk(path string, value any, visit func(path, key string, value any)) {
	switch v := value.(type) {
	case object:
		for key, inner := range v {
			visit(path, key, inner)
			walk(path+"."+key, inner, visit)
		}
	case []any:
		for i, inner := range v {
			walk(fmt.Sprintf("%s[%d]", path, i), inner, visit)
		}
	}
}
