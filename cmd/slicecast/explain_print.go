package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

// explanation is what `slicecast explain -o json` prints: a stable form for scripts.
type explanation struct {
	Service   string            `json:"service"`
	Namespace string            `json:"namespace"`
	Cluster   string            `json:"cluster,omitempty"` // only in it
	Client    explainedClient   `json:"client"`
	Policies  []explainedPolicy `json:"policies"`
	Ports     []explainedPort   `json:"ports"`
}

type explainedClient struct {
	Cluster string `json:"cluster,omitempty"`
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Node    string `json:"node,omitempty"`
	Family  string `json:"ip_family,omitempty"`
}

type explainedPolicy struct {
	Cluster string `json:"cluster"`
	Label   string `json:"label"`
	Value   string `json:"value"`
	Known   bool   `json:"known"`   // else it is ignored
	Applies bool   `json:"applies"` // it decides what this client sees
	Slice   string `json:"slice"`   // that speaks
	Version string `json:"version"`
}

type explainedPort struct {
	Port      string              `json:"port"`
	Resource  string              `json:"resource"`
	Fallback  bool                `json:"fallback,omitempty"`
	Endpoints []explainedEndpoint `json:"endpoints"`
}

type explainedEndpoint struct {
	Cluster      string       `json:"cluster"`
	Address      string       `json:"address"` // with port
	Used         bool         `json:"used"`
	Draining     bool         `json:"draining,omitempty"`
	Reason       string       `json:"reason"`
	Rule         string       `json:"rule"`
	Why          string       `json:"why"`
	Priority     *uint32      `json:"priority,omitempty"`      // where used
	AdditionalTo string       `json:"additional_to,omitempty"` // the address of the same pod that it is sent with
	Ready        bool         `json:"ready"`                   // as its slice has it
	Serving      bool         `json:"serving"`
	Terminating  bool         `json:"terminating"`
	Zone         string       `json:"zone,omitempty"`
	Node         string       `json:"node,omitempty"`
	Pod          string       `json:"pod,omitempty"`
	UID          string       `json:"uid,omitempty"`
	Slice        string       `json:"slice"`
	Version      string       `json:"version"`
	Changed      *time.Time   `json:"changed,omitempty"`
	ChangedExact bool         `json:"changed_exact"` // else it changed at that time or before
	Winner       *winnerShown `json:"winner,omitempty"`

	conditions endpoint.Conditions
}

// winnerShown is the endpoint that speaks instead of another.
type winnerShown struct {
	Cluster string `json:"cluster"`
	Slice   string `json:"slice"`
	Version string `json:"version"`
	Address string `json:"address"`
	Pod     string `json:"pod,omitempty"`
	UID     string `json:"uid,omitempty"`
}

// newExplanation asks the xDS server's own decision about every port of a service, or about one.
func newExplanation(svc xdsserver.Service, view xdsserver.View, name xdsserver.Name, port string, p past) (explanation, error) {
	e := explanation{
		Service: name.Service, Namespace: name.Namespace, Cluster: name.Cluster, Policies: []explainedPolicy{}, Ports: []explainedPort{},
		Client: explainedClient{view.Cluster, view.Region, view.Zone, view.Node, [...]string{"", "ipv4", "ipv6"}[view.Family]},
	}
	for _, l := range xdsserver.Policies(svc, view, name) {
		e.Policies = append(e.Policies, explainedPolicy{l.Cluster, l.Label, l.Value, l.Known, l.Applies, l.Slice, l.Version.String()})
	}
	ports, numbers := portsOf(svc.States, name.Cluster)
	if port != "" {
		if !slices.Contains(ports, port) && !numbers[port] {
			return e, fmt.Errorf("service %s has no port %s; it has %s", name, port, listed(namedPorts(ports)))
		}
		ports = []string{port}
	}
	for _, port := range ports {
		name.Port = port
		shown := explainedPort{Port: port, Resource: name.String(), Fallback: xdsserver.Assign(svc, view, name).Fallback, Endpoints: []explainedEndpoint{}}
		for _, v := range xdsserver.Explain(svc, view, name) {
			shown.Endpoints = append(shown.Endpoints, explainedOf(&v, p))
		}
		slices.SortStableFunc(shown.Endpoints, func(a, b explainedEndpoint) int { return strings.Compare(a.Cluster, b.Cluster) })
		e.Ports = append(e.Ports, shown)
	}
	return e, nil
}

// portsOf lists the names of the ports of a service, sorted, and their numbers.
func portsOf(states []endpoint.State, cluster string) (names []string, numbers map[string]bool) {
	found, numbers := map[string]bool{}, map[string]bool{}
	for _, st := range states {
		if cluster != "" && cluster != st.Key.Cluster {
			continue
		}
		for _, sl := range st.Slices {
			for _, p := range sl.Ports {
				found[p.Name], numbers[fmt.Sprint(p.Number)] = true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), numbers
}

// namedPorts gives the names of ports for people.
func namedPorts(ports []string) []string {
	if len(ports) == 0 {
		return []string{"none"}
	}
	out := slices.Clone(ports)
	for i, p := range out {
		out[i] = cmp.Or(p, "one without a name")
	}
	return out
}

func explainedOf(v *xdsserver.Verdict, p past) explainedEndpoint {
	c := v.Endpoint.Conditions
	e := explainedEndpoint{
		Cluster: v.Cluster, Address: v.Addr.String(), Used: v.Reason.Kept(), Draining: v.Reason == xdsserver.ReasonDraining,
		Reason: v.Reason.String(), Rule: v.Rule, Why: v.Why,
		Ready: c&endpoint.Ready != 0, Serving: c&endpoint.Serving != 0, Terminating: c&endpoint.Terminating != 0,
		Zone: v.Endpoint.Zone, Node: v.Endpoint.Node, Pod: v.Endpoint.TargetName, UID: v.UID,
		Slice: v.Slice, Version: v.Version.String(), conditions: c,
	}
	if e.Used {
		e.Priority = &v.Priority
	}
	if v.Addition.IsValid() {
		e.AdditionalTo = v.Addition.String()
	}
	if at, exact := p.changed(v); !at.IsZero() {
		at = at.UTC()
		e.Changed, e.ChangedExact = &at, exact
	}
	if w := v.Winner; w != nil {
		e.Winner = &winnerShown{w.Cluster, w.Slice, w.Version.String(), w.Addr.String(), w.Pod, w.UID}
	}
	return e
}

func (e *explanation) printJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(e)
}

// printText prints a table per port.
func (e *explanation) printText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Service %s.%s, as %s sees it\n", e.Service, e.Namespace, e.Client)
	for _, l := range e.Policies {
		how := "does not decide for this client"
		switch {
		case !l.Known:
			how = "unknown value, ignored"
		case l.Applies:
			how = "in force"
		}
		fmt.Fprintf(&b, "Policy %s: %s of cluster %s (slice %s at %s): %s\n", l.Label, l.Value, l.Cluster, l.Slice, l.Version, how)
	}
	if len(e.Ports) == 0 {
		b.WriteString("It has no EndpointSlice with a port.\n")
	}
	for _, p := range e.Ports {
		p.write(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (p *explainedPort) write(b *strings.Builder) {
	used := 0
	for _, e := range p.Endpoints {
		if e.Used {
			used++
		}
	}
	fallback := ""
	if p.Fallback {
		fallback = ", serving and terminating ones because none is ready"
	}
	fmt.Fprintf(b, "\n%s: %d of %d used%s\n", p.Resource, used, len(p.Endpoints), fallback)
	w := tabwriter.NewWriter(b, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "CLUSTER\tADDRESS\tUSED\tRULE\tCONDITIONS\tZONE\tNODE\tPOD\tSLICE\tVERSION\tCHANGED\tWHY")
	for _, e := range p.Endpoints {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Cluster, e.Address, e.use(), e.Rule, e.conditions,
			cmp.Or(e.Zone, "-"), cmp.Or(e.Node, "-"), cmp.Or(e.Pod, "-"), e.Slice, e.Version, e.change(), e.reason())
	}
	_ = w.Flush() // to memory
}

// use says how an address is used.
func (e *explainedEndpoint) use() string {
	switch {
	case !e.Used:
		return "out"
	case e.Draining:
		return fmt.Sprintf("in p%d draining", *e.Priority)
	default:
		return fmt.Sprintf("in p%d", *e.Priority)
	}
}

// change says when the conditions last changed.
func (e *explainedEndpoint) change() string {
	if e.Changed == nil {
		return "-"
	}
	at := e.Changed.Local().Format("2006-01-02 15:04:05.000")
	if !e.ChangedExact {
		return "before " + at
	}
	return at
}

// reason says why, and who speaks instead.
func (e *explainedEndpoint) reason() string {
	text := e.Why
	if w := e.Winner; w != nil {
		text += fmt.Sprintf(": %s of slice %s/%s at %s", cmp.Or(w.Pod, w.Address), w.Cluster, w.Slice, w.Version)
		if w.Pod != "" {
			text += " (" + w.Address + ")"
		}
	}
	if e.AdditionalTo != "" {
		text += "; sent with " + e.AdditionalTo
	}
	return text
}

// String names a class of clients.
func (c explainedClient) String() string {
	text := "a client of no cluster"
	if c.Cluster != "" {
		text = "a client of cluster " + c.Cluster
	}
	for _, part := range [...][2]string{{"region", c.Region}, {"zone", c.Zone}, {"node", c.Node}, {"address family", c.Family}} {
		if part[1] != "" {
			text += ", " + part[0] + " " + part[1]
		}
	}
	return text
}
