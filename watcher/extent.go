// Pure: which part of a cluster is published.

package watcher

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// extentAll is the extent of a watcher that publishes all of a cluster.
const extentAll = "all"

// extent is what of a cluster a source gives. The zero extent is everything.
type extent struct {
	namespaces []string // sorted, unique; none means all
	selector   labels.Selector
}

// parseExtent reads namespaces and a label selector as an operator gives them. The error names what is wrong.
func parseExtent(namespaces []string, selector string) (extent, error) {
	x := extent{namespaces: slices.Compact(slices.Sorted(slices.Values(namespaces)))}
	for _, n := range x.namespaces {
		if !endpoint.IsLabel(n) {
			return extent{}, fmt.Errorf("namespace %q is not a DNS label", clip(n))
		}
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return extent{}, fmt.Errorf("selector %q: %w", clip(selector), err)
	}
	if !s.Empty() {
		x.selector = s
	}
	return x, nil
}

// has reports whether an object is in the extent.
func (x extent) has(namespace string, of map[string]string) bool {
	if len(x.namespaces) > 0 {
		if _, ok := slices.BinarySearch(x.namespaces, namespace); !ok {
			return false
		}
	}
	return x.selector == nil || x.selector.Matches(labels.Set(of))
}

// query is the label selector for an API server; "" means all.
func (x extent) query() string {
	if x.selector == nil {
		return ""
	}
	return x.selector.String()
}

// String is the extent in one line, equal for equal extents.
func (x extent) String() string {
	var parts []string
	if len(x.namespaces) > 0 {
		parts = append(parts, "namespaces="+strings.Join(x.namespaces, ","))
	}
	if q := x.query(); q != "" {
		parts = append(parts, "selector="+q)
	}
	if len(parts) == 0 {
		return extentAll
	}
	return strings.Join(parts, " ")
}
