package main

import (
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// sourceKind says where the EndpointSlices of a cluster come from.
type sourceKind string

const (
	fromKubeconfig sourceKind = "kubeconfig"
	fromInCluster  sourceKind = "incluster"
	fromDir        sourceKind = "dir"
)

// clusterSpec is one --cluster NAME=SOURCE[,region=R].
type clusterSpec struct {
	name    string
	kind    sourceKind
	path    string // of the kubeconfig or the folder
	context string // of the kubeconfig, empty for the current one
	region  string
}

// parseClusters reads every --cluster; without any, the current kubeconfig context is cluster "local".
func parseClusters(texts []string) ([]clusterSpec, error) {
	if len(texts) == 0 {
		return []clusterSpec{{name: "local", kind: fromKubeconfig}}, nil
	}
	seen := map[string]bool{}
	specs := make([]clusterSpec, 0, len(texts))
	for _, text := range texts {
		spec, err := parseCluster(text)
		if err != nil {
			return nil, err
		}
		if seen[spec.name] {
			return nil, usagef("--cluster %q: cluster %s is given twice", text, spec.name)
		}
		seen[spec.name] = true
		specs = append(specs, spec)
	}
	return specs, nil
}

func parseCluster(text string) (clusterSpec, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok {
		return clusterSpec{}, usagef("--cluster %q: want NAME=SOURCE[,region=R]", text)
	}
	if !endpoint.IsLabel(name) {
		return clusterSpec{}, usagef("--cluster %q: cluster name %q is not a DNS label", text, name)
	}
	spec := clusterSpec{name: name}
	source, settings, _ := strings.Cut(rest, ",")
	if err := spec.parseSource(text, source); err != nil {
		return clusterSpec{}, err
	}
	for setting := range strings.SplitSeq(settings, ",") {
		switch key, value, _ := strings.Cut(setting, "="); {
		case setting == "":
		case key == "region" && value != "":
			spec.region = value
		default:
			return clusterSpec{}, usagef("--cluster %q: unknown setting %q (only region=R)", text, setting)
		}
	}
	return spec, nil
}

func (c *clusterSpec) parseSource(text, source string) error {
	kind, path, _ := strings.Cut(source, ":")
	c.kind = sourceKind(kind)
	switch c.kind {
	case fromInCluster:
		if path != "" {
			return usagef("--cluster %q: incluster takes no path", text)
		}
	case fromDir:
		c.path = path
	case fromKubeconfig:
		c.path, c.context, _ = strings.Cut(path, "#")
	default:
		return usagef("--cluster %q: source %q is none of kubeconfig:PATH[#CONTEXT], incluster, dir:PATH", text, source)
	}
	if c.path == "" && c.kind != fromInCluster {
		return usagef("--cluster %q: %s needs a path", text, c.kind)
	}
	return nil
}
