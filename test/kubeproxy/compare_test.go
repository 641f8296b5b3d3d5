package kubeproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/proxy"

	"github.com/slicecast/slicecast/xdsserver"
)

// member is an address and port that gets new work, with the zone of its endpoint.
type member struct{ at, zone string }

// set is sorted by address.
type set []member

func (s set) sorted() set {
	slices.SortFunc(s, func(a, b member) int { return strings.Compare(a.at, b.at) })
	return s
}

// sameAddresses ignores zones, which kube-proxy forgets.
func (s set) sameAddresses(o set) bool {
	return slices.EqualFunc(s, o, func(a, b member) bool { return a.at == b.at })
}

func (s set) String() string {
	words := make([]string, len(s))
	for i, m := range s {
		if words[i] = m.at; m.zone != "" {
			words[i] += "@" + m.zone
		}
	}
	return "{" + strings.Join(words, " ") + "}"
}

// setOf gives the set of kube-proxy's endpoints.
func setOf(lists ...[]proxy.Endpoint) set {
	var out set
	for _, list := range lists {
		for _, e := range list {
			m := member{at: e.String()}
			if c, ok := e.(*candidate); ok {
				m.zone = deref(c.ep.Zone, "")
			}
			out = append(out, m)
		}
	}
	return out.sorted()
}

// views are the clients: every zone with and without node, every family, of this cluster, of none, and of another.
var views = [...]xdsserver.View{
	{Cluster: cluster, Zone: "z1", Node: "n1"},
	{Cluster: cluster, Zone: "z1", Family: xdsserver.IPv4},
	{Cluster: cluster, Zone: "z2", Node: "n2", Family: xdsserver.IPv6},
	{Cluster: cluster, Zone: "z2"},
	{Cluster: cluster, Zone: "z3", Node: "n3", Family: xdsserver.IPv4},
	{Cluster: cluster, Node: "n1"},
	{Cluster: cluster, Family: xdsserver.IPv6},
	{Zone: "z1", Node: "n2", Family: xdsserver.IPv4},
	{},
	{Cluster: "west", Zone: "z1", Node: "n1"},
}

// takes reports whether a View asks for a family.
func takes(v xdsserver.View, f family) bool {
	return v.Family == xdsserver.AnyFamily || v.Family == xdsserver.IPv4 == (f == v4)
}

// difference is a comparison that failed.
type difference struct {
	what             string
	service          types.NamespacedName
	port             string
	view             xdsserver.View
	held             []int // decisions whose predicate holds
	kube, want, cast set
}

func (d *difference) String() string {
	var held strings.Builder
	for _, i := range d.held {
		held.WriteString("\n              " + decisions[i].name)
	}
	if len(d.held) == 0 {
		held.WriteString(" none")
	}
	return fmt.Sprintf("%s\n  service     %s port %q\n  view        %+v\n  decisions  %s\n  kube-proxy  %s\n  predicted   %s\n  slicecast   %s",
		d.what, d.service, d.port, d.view, held.String(), d.kube, d.want, d.cast)
}

// count is what a run has seen.
type count struct {
	steps, writes, comparisons, used int // used: comparisons in which kube-proxy uses something
	direct, directUsed               int // comparisons to which no decision applied; those of them with something to use
	held, differed                   [len(decisions)]int
}

func (c *count) add(o count) {
	c.steps, c.writes, c.comparisons = c.steps+o.steps, c.writes+o.writes, c.comparisons+o.comparisons
	c.used, c.direct, c.directUsed = c.used+o.used, c.direct+o.direct, c.directUsed+o.directUsed
	for i := range c.held {
		c.held[i], c.differed[i] = c.held[i]+o.held[i], c.differed[i]+o.differed[i]
	}
}

// portCase is one port of one service, with what does not depend on the View.
type portCase struct {
	service types.NamespacedName
	port    string
	rules   *oracle
	facts   [len(families)]facts
	left    [len(families)][]proxy.Endpoint // what the rules leave, before readiness, fallback and hints
}

func (w *world) newPortCase(service types.NamespacedName, of []*stored, port string) *portCase {
	p := &portCase{service: service, port: port, rules: newOracle(of, port)}
	common := facts{left: len(w.kube.left[service]) > 0}
	for _, s := range of {
		common.imported = common.imported || kubeServiceOf(s.raw).Name == ""
		for _, x := range s.defaulted.Ports {
			bad := x.Port != nil && (*x.Port < 0 || *x.Port > 65535)
			common.number = common.number || bad && *x.Name == port
		}
	}
	for _, f := range families {
		all := p.rules.candidates(f)
		own := common
		for _, c := range all {
			own.emptyHint = own.emptyHint || c.emptyHint
			own.foreign = own.foreign || len(c.zones) > 0 || len(c.nodes) > 0
		}
		_, known := w.kube.families[f].services[p.name(corev1.ProtocolTCP)]
		own.noPort = !known && len(all) > 0
		own.byNumber = p.rules.number != 0 && len(all) > 0
		own.foreign = own.foreign || p.rules.closed()
		all, own.older = p.rules.moved(f, all)
		p.left[f], own.conflict = unique(all)
		p.facts[f] = own
	}
	return p
}

func (p *portCase) name(protocol corev1.Protocol) proxy.ServicePortName {
	return proxy.ServicePortName{NamespacedName: p.service, Port: p.port, Protocol: protocol}
}

// factsFor gives the facts of the families that a View asks for.
func (p *portCase) factsFor(view xdsserver.View) facts {
	var out facts
	for _, f := range families {
		if o := p.facts[f]; takes(view, f) {
			out = facts{
				older: out.older || o.older, conflict: out.conflict || o.conflict, emptyHint: out.emptyHint || o.emptyHint,
				noPort: out.noPort || o.noPort, left: o.left, imported: o.imported, number: o.number,
				byNumber: out.byNumber || o.byNumber, foreign: out.foreign || o.foreign,
			}
		}
	}
	out.foreign = out.foreign && foreign(view)
	return out
}

// foreign reports whether the clients of a View are of another cluster than the slices.
func foreign(v xdsserver.View) bool { return v.Cluster != "" && v.Cluster != cluster }

// predicted gives the set that the rules predict for a View.
func (p *portCase) predicted(view xdsserver.View) set {
	at := place{view.Zone, view.Node}
	if foreign(view) {
		if at = (place{}); p.rules.closed() {
			return nil
		}
	}
	var lists [len(families)][]proxy.Endpoint
	for _, f := range families {
		if takes(view, f) {
			lists[f] = categorize(p.left[f], &proxy.BaseServicePortInfo{}, at)
		}
	}
	return setOf(lists[:]...)
}

// compare compares one service for every port and View.
func (w *world) compare(service types.NamespacedName) *difference {
	of := w.api.of(service)
	svc := w.cast.service(service)
	for _, port := range portNames {
		p := w.newPortCase(service, of, port)
		for i, view := range views {
			name := xdsserver.Name{Service: service.Name, Namespace: service.Namespace, Port: port}
			if i%2 == 1 {
				name.Cluster = view.Cluster
				if view.Cluster != cluster { // By its own name the cluster fails over to nothing else.
					name.Cluster = ""
				}
			}
			if d := w.compareView(p, view, usable(svc, view, name)); d != nil {
				return d
			}
		}
	}
	return nil
}

func (w *world) compareView(p *portCase, view xdsserver.View, cast set) *difference {
	want := p.predicted(view)
	known := p.factsFor(view)
	d := &difference{service: p.service, port: p.port, view: view, want: want, cast: cast}
	for _, protocol := range [...]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		var lists [len(families)][]proxy.Endpoint
		for _, f := range families {
			if takes(view, f) {
				lists[f], _ = w.kube.usable(f, p.name(protocol), place{view.Zone, view.Node})
			}
		}
		d.kube = setOf(lists[:]...)
		serves := cast
		if protocol != corev1.ProtocolTCP {
			if len(d.kube) == 0 {
				continue
			}
			// What slicecast serves of the name beyond the TCP port would be of this one: nothing, since cast equals want.
			known, serves = facts{protocol: true}, nil
		}
		d.held = holding(known)
		w.count.see(d.held, d.kube, serves)
		switch {
		case !slices.Equal(cast, want):
			d.what = "slicecast gives other addresses or zones than its rules predict"
			return d
		case len(d.held) == 0 && !d.kube.sameAddresses(serves):
			d.what = "slicecast differs from kube-proxy, and no decision says why"
			return d
		}
	}
	return nil
}

// see counts one comparison.
func (c *count) see(held []int, kube, cast set) {
	c.comparisons++
	used := index(len(kube) > 0)
	c.used += used
	if len(held) == 0 {
		c.direct++
		c.directUsed += used
	}
	differs := !kube.sameAddresses(cast)
	for _, i := range held {
		c.held[i]++
		if differs {
			c.differed[i]++
		}
	}
}

// String is the report of a run.
func (c *count) String() string {
	var b strings.Builder
	share := func(n int) string {
		return strconv.FormatFloat(100*float64(n)/float64(max(c.comparisons, 1)), 'f', 2, 64) + " %"
	}
	fmt.Fprintf(&b, "%d steps, %d writes, %d comparisons (kube-proxy uses something in %s), skipped 0\n", c.steps, c.writes, c.comparisons, share(c.used))
	fmt.Fprintf(&b, "  no decision applied to %s (kube-proxy uses something in %s)\n", share(c.direct), share(c.directUsed))
	for i := range decisions {
		fmt.Fprintf(&b, "  applied to %8s, kube-proxy differed in %8s: %s\n", share(c.held[i]), share(c.differed[i]), decisions[i].name)
	}
	return b.String()
}
