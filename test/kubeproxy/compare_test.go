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

// client is a View, and whether it asks for the service of the cluster by name instead of the one of all clusters.
type client struct {
	view  xdsserver.View
	named bool
}

// clients are those that are compared: every zone with and without node, every family, of this cluster, of none, and of
// another.
var clients = [...]client{
	{xdsserver.View{Cluster: cluster, Zone: "z1", Node: "n1"}, false},
	{xdsserver.View{Cluster: cluster, Zone: "z1", Family: xdsserver.IPv4}, true},
	{xdsserver.View{Cluster: cluster, Zone: "z2", Node: "n2", Family: xdsserver.IPv6}, false},
	{xdsserver.View{Cluster: cluster, Zone: "z2"}, true},
	{xdsserver.View{Cluster: cluster, Zone: "z3", Node: "n3", Family: xdsserver.IPv4}, false},
	{xdsserver.View{Cluster: cluster, Node: "n1"}, false},
	{xdsserver.View{Cluster: cluster, Family: xdsserver.IPv6}, false},
	{xdsserver.View{Zone: "z1", Node: "n2", Family: xdsserver.IPv4}, true},
	{xdsserver.View{}, false},
	{xdsserver.View{Cluster: "west", Zone: "z1", Node: "n1"}, false},
	{xdsserver.View{Cluster: "west", Zone: "z2", Node: "n2", Family: xdsserver.IPv4}, true},
}

// foreign reports whether the client is of another cluster than the slices.
func (c client) foreign() bool { return c.view.Cluster != "" && c.view.Cluster != cluster }

// takes reports whether the client asks for a family.
func (c client) takes(f family) bool {
	return c.view.Family == xdsserver.AnyFamily || c.view.Family == xdsserver.IPv4 == (f == v4)
}

// place is where a kube-proxy would run that serves the client.
func (c client) place() place { return place{c.view.Zone, c.view.Node} }

// name gives the name that the client asks for.
func (c client) name(service types.NamespacedName, port string) xdsserver.Name {
	name := xdsserver.Name{Service: service.Name, Namespace: service.Namespace, Port: port}
	if c.named {
		name.Cluster = cluster
	}
	return name
}

// difference is a comparison that failed.
type difference struct {
	what             string
	service          types.NamespacedName
	port             string
	client           client
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
	return fmt.Sprintf("%s\n  service     %s port %q\n  client      %+v\n  decisions  %s\n  kube-proxy  %s\n  predicted   %s\n  slicecast   %s",
		d.what, d.service, d.port, d.client, held.String(), d.kube, d.want, d.cast)
}

// count is what a run has seen.
type count struct {
	steps, writes, comparisons, used int // used: comparisons in which kube-proxy uses something
	hinted, fallback                 int // comparisons in which hints leave ready ones out, or terminating ones serve
	direct, directUsed               int // comparisons to which no decision applied; those of them with something to use
	held, differed                   [len(decisions)]int
}

func (c *count) add(o count) {
	c.steps, c.writes, c.comparisons = c.steps+o.steps, c.writes+o.writes, c.comparisons+o.comparisons
	c.used, c.direct, c.directUsed = c.used+o.used, c.direct+o.direct, c.directUsed+o.directUsed
	c.hinted, c.fallback = c.hinted+o.hinted, c.fallback+o.fallback
	for i := range c.held {
		c.held[i], c.differed[i] = c.held[i]+o.held[i], c.differed[i]+o.differed[i]
	}
}

// portCase is one port of one service, with what does not depend on the client.
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
		own := common
		all, twins := p.rules.candidates(f)
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
		own.conflict = own.conflict || twins
		p.facts[f] = own
	}
	return p
}

func (p *portCase) name(protocol corev1.Protocol) proxy.ServicePortName {
	return proxy.ServicePortName{NamespacedName: p.service, Port: p.port, Protocol: protocol}
}

// factsFor gives the facts of the families that a client asks for.
func (p *portCase) factsFor(c client) facts {
	var out facts
	for _, f := range families {
		if o := p.facts[f]; c.takes(f) {
			out = facts{
				older: out.older || o.older, conflict: out.conflict || o.conflict, emptyHint: out.emptyHint || o.emptyHint,
				noPort: out.noPort || o.noPort, left: o.left, imported: o.imported, number: o.number,
				byNumber: out.byNumber || o.byNumber, foreign: out.foreign || o.foreign,
			}
		}
	}
	out.foreign = out.foreign && c.foreign()
	return out
}

// predicted gives the set that the rules predict for a client, and counts by which of kube-proxy's rules.
func (p *portCase) predicted(c client, seen *count) set {
	at := c.place()
	if c.foreign() {
		if at = (place{}); !c.named && p.rules.closed() {
			return nil
		}
	}
	var lists [len(families)][]proxy.Endpoint
	for _, f := range families {
		if c.takes(f) {
			lists[f] = categorize(p.left[f], &proxy.BaseServicePortInfo{}, at)
			ready := 0
			for _, e := range p.left[f] {
				ready += index(e.IsReady())
			}
			seen.fallback += index(ready == 0 && len(lists[f]) > 0)
			seen.hinted += index(len(lists[f]) < ready)
		}
	}
	return setOf(lists[:]...)
}

// compare compares one service for every port and client.
func (w *world) compare(service types.NamespacedName) *difference {
	of := w.api.of(service)
	svc := w.cast.service(service)
	for _, port := range portNames {
		p := w.newPortCase(service, of, port)
		for _, c := range clients {
			if d := w.compareClient(p, c, usable(svc, c.view, c.name(service, port))); d != nil {
				return d
			}
		}
	}
	return nil
}

func (w *world) compareClient(p *portCase, c client, cast set) *difference {
	want := p.predicted(c, &w.count)
	known := p.factsFor(c)
	d := &difference{service: p.service, port: p.port, client: c, want: want, cast: cast}
	for _, protocol := range [...]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		var lists [len(families)][]proxy.Endpoint
		for _, f := range families {
			if c.takes(f) {
				lists[f], _ = w.kube.usable(f, p.name(protocol), c.place())
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
		case len(d.held) == 0 && !d.kube.sameAddresses(serves):
			d.what = "slicecast differs from kube-proxy, and no decision says why"
			return d
		case !slices.Equal(cast, want):
			d.what = "slicecast gives other addresses or zones than its rules predict"
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
	fmt.Fprintf(&b, "  hints left ready ones out in %s, terminating ones served in %s\n", share(c.hinted), share(c.fallback))
	fmt.Fprintf(&b, "  no decision applied to %s (kube-proxy uses something in %s)\n", share(c.direct), share(c.directUsed))
	for i := range decisions {
		fmt.Fprintf(&b, "  applied to %8s, kube-proxy differed in %8s: %s\n", share(c.held[i]), share(c.differed[i]), decisions[i].name)
	}
	return b.String()
}
