package kubeproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/discovery"
	defaults "k8s.io/kubernetes/pkg/apis/discovery/v1"
	"k8s.io/kubernetes/pkg/apis/discovery/validation"
	"sigs.k8s.io/yaml"
)

// labelImported is the service label of slices that another cluster exported.
const labelImported = "multicluster.kubernetes.io/service-name"

// write is one write to the API server: of a slice, or of a Service. What it points to is never changed.
type write struct {
	slice   *discoveryv1.EndpointSlice // as the client sends it, without resourceVersion
	service *corev1.Service
	gone    bool // a deletion; then only namespace and name count
}

// step is a few writes that both sides see before they are compared.
type step []write

// String gives a step as YAML documents, for a report.
func (s step) String() string {
	var b strings.Builder
	for _, w := range s {
		b.WriteString("---\n")
		if w.gone && w.slice != nil {
			fmt.Fprintf(&b, "# delete endpointslice %s/%s\n", w.slice.Namespace, w.slice.Name)
			continue
		}
		if w.gone {
			fmt.Fprintf(&b, "# delete service %s/%s\n", w.service.Namespace, w.service.Name)
			continue
		}
		var what any = w.slice
		if w.service != nil {
			what = w.service
		}
		text, err := yaml.Marshal(what)
		if err != nil {
			text = []byte(err.Error())
		}
		b.Write(text)
	}
	return b.String()
}

// stored is a slice as the API server has it.
type stored struct {
	raw       *discoveryv1.EndpointSlice // as the client sent it, with its resourceVersion
	defaulted *discoveryv1.EndpointSlice // with the API server's defaults
	version   uint64
}

// told is what a watch of the API server says about one slice: before nil is an addition, now nil a deletion.
type told struct {
	before, now *stored
	version     uint64 // of this event
}

// apiServer holds the objects.
type apiServer struct {
	version  uint64
	slices   map[types.NamespacedName]*stored
	services map[types.NamespacedName]*corev1.Service
}

func newAPIServer() *apiServer {
	return &apiServer{slices: map[types.NamespacedName]*stored{}, services: map[types.NamespacedName]*corev1.Service{}}
}

// put applies the write of a slice and gives the events of a watch. A slice whose address type would change, which the
// API server refuses, is deleted and made anew. The error says what the API server has against the object.
func (a *apiServer) put(w write) ([]told, error) {
	name := types.NamespacedName{Namespace: w.slice.Namespace, Name: w.slice.Name}
	before := a.slices[name]
	var events []told
	if before != nil && (w.gone || before.raw.AddressType != w.slice.AddressType) {
		a.version++
		delete(a.slices, name)
		events, before = append(events, told{before: before, version: a.version}), nil
	}
	if w.gone {
		return events, nil
	}
	a.version++
	raw := *w.slice
	raw.ResourceVersion = strconv.FormatUint(a.version, 10)
	full := raw
	full.Ports = slices.Clone(raw.Ports)
	for i := range full.Ports {
		defaults.SetDefaults_EndpointPort(&full.Ports[i])
	}
	now := &stored{raw: &raw, defaulted: &full, version: a.version}
	a.slices[name] = now
	return append(events, told{before: before, now: now, version: a.version}), legal(&full)
}

// legal asks the API server's validation.
func legal(slice *discoveryv1.EndpointSlice) error {
	var internal discovery.EndpointSlice
	if err := defaults.Convert_v1_EndpointSlice_To_discovery_EndpointSlice(slice, &internal, nil); err != nil {
		return err
	}
	return validation.ValidateEndpointSliceCreate(&internal).ToAggregate()
}

// of lists the slices of a service in order of names.
func (a *apiServer) of(service types.NamespacedName) []*stored {
	var out []*stored
	for _, s := range a.slices {
		if serviceOf(s.raw) == service {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y *stored) int { return strings.Compare(x.raw.Name, y.raw.Name) })
	return out
}

// kubeServiceOf gives the service that kube-proxy files a slice under; its name is empty when there is none.
func kubeServiceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// serviceOf gives the service of a slice by our rules: imported slices have one too.
func serviceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	out := kubeServiceOf(slice)
	if out.Name == "" {
		out.Name = slice.Labels[labelImported]
	}
	return out
}
