package kubeproxy

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/proxy"
	netutils "k8s.io/utils/net"
)

// oracle tells a second time what slicecast decided otherwise than kube-proxy about one port of one service. It knows the
// slices as they are, no history, and ends in endpoints of which kube-proxy's code says which are used.
type oracle struct {
	slices []*stored // of the service, both families, by name
	port   string
	number int32 // not 0: the name of the port means this number
}

func newOracle(of []*stored, port string) *oracle {
	o := &oracle{slices: of, port: port}
	for _, s := range of {
		if s.raw.AddressType != discoveryv1.AddressTypeFQDN && o.numberIn(s) != 0 {
			return o
		}
	}
	if n, err := strconv.Atoi(port); err == nil && port[0] != '0' && n < 1<<16 {
		o.number = int32(n)
	}
	return o
}

// numberIn gives the number of the port in a slice, 0 when it does not have it.
func (o *oracle) numberIn(s *stored) int32 {
	for _, p := range s.defaulted.Ports {
		if *p.Protocol != corev1.ProtocolTCP || p.Port == nil || *p.Port <= 0 || *p.Port > 65535 {
			continue
		}
		if o.number != 0 && *p.Port == o.number || o.number == 0 && *p.Name == o.port {
			return *p.Port
		}
	}
	return 0
}

// candidate is one address and port of one slice. It is an endpoint for kube-proxy's code.
type candidate struct {
	from                        *stored
	ep                          *discoveryv1.Endpoint
	uid, target                 string
	ip, at                      string
	port                        int
	ready, serving, terminating bool
	zones, nodes                sets.Set[string]
	emptyHint                   bool // a hint with an empty name was left out, of it or its twin
}

func (c *candidate) String() string              { return c.at }
func (c *candidate) IP() string                  { return c.ip }
func (c *candidate) Port() int                   { return c.port }
func (c *candidate) IsLocal() bool               { return false }
func (c *candidate) IsReady() bool               { return c.ready }
func (c *candidate) IsServing() bool             { return c.serving }
func (c *candidate) IsTerminating() bool         { return c.terminating }
func (c *candidate) ZoneHints() sets.Set[string] { return c.zones }
func (c *candidate) NodeHints() sets.Set[string] { return c.nodes }

func newCandidate(from *stored, ep *discoveryv1.Endpoint, port int32) *candidate {
	c := &candidate{
		from: from, ep: ep, ip: netutils.ParseIPSloppy(ep.Addresses[0]).String(), port: int(port),
		ready:       deref(ep.Conditions.Ready, true),
		serving:     deref(ep.Conditions.Serving, true),
		terminating: deref(ep.Conditions.Terminating, false),
	}
	c.at = net.JoinHostPort(c.ip, strconv.Itoa(c.port))
	if ep.TargetRef != nil {
		c.uid, c.target = string(ep.TargetRef.UID), ep.TargetRef.Name
	}
	if h := ep.Hints; h != nil {
		for _, z := range h.ForZones {
			if z.Name == "" {
				c.emptyHint = true
				continue
			}
			c.zones = with(c.zones, z.Name)
		}
		for _, n := range h.ForNodes {
			c.nodes = with(c.nodes, n.Name)
		}
	}
	return c
}

// rank is 0 for what is ready, 1 for the fallback, 2 for what is never used.
func (c *candidate) rank() int {
	switch {
	case c.ready:
		return 0
	case c.serving && c.terminating:
		return 1
	default:
		return 2
	}
}

// differs tells whether kube-proxy might decide otherwise about c than about d.
func (c *candidate) differs(d *candidate) bool {
	return c.rank() != d.rank() || !c.zones.Equal(d.zones) || !c.nodes.Equal(d.nodes)
}

// candidates gives every address of the port that slices of the family have. Of an endpoint that one slice has more than
// once, the best is left; disputed tells that others of it differ.
func (o *oracle) candidates(f family) (out []*candidate, disputed bool) {
	for _, s := range o.slices {
		number := o.numberIn(s)
		if s.raw.AddressType != f.addressType() || number == 0 {
			continue
		}
		own := make([]*candidate, 0, len(s.defaulted.Endpoints))
		for i := range s.defaulted.Endpoints {
			c := newCandidate(s, &s.defaulted.Endpoints[i], number)
			twin := slices.IndexFunc(own, func(d *candidate) bool { return d.at == c.at && d.uid == c.uid && d.target == c.target })
			if twin < 0 {
				own = append(own, c)
				continue
			}
			d := own[twin]
			disputed = disputed || d.differs(c)
			d.emptyHint = d.emptyHint || c.emptyHint
			if c.emptyHint = d.emptyHint; better(c, d) < 0 {
				own[twin] = c
			}
		}
		out = append(out, own...)
	}
	return out, disputed
}

// newest gives the newest slice of the family that lists the pod of c, and what it says of the pod at the address of
// c: nil when it does not have it there.
func (o *oracle) newest(f family, c *candidate) (speaker *stored, says *candidate) {
	for _, s := range o.slices {
		if s.raw.AddressType != f.addressType() || speaker != nil && speaker.version > s.version {
			continue
		}
		for i := range s.defaulted.Endpoints {
			if ref := s.defaulted.Endpoints[i].TargetRef; ref != nil && string(ref.UID) == c.uid {
				speaker = s
				break
			}
		}
	}
	for i := range speaker.defaulted.Endpoints {
		e := &speaker.defaulted.Endpoints[i]
		if e.TargetRef == nil || string(e.TargetRef.UID) != c.uid {
			continue
		}
		if d := newCandidate(speaker, e, int32(c.port)); d.ip == c.ip && (says == nil || better(d, says) < 0) {
			says = d
		}
	}
	return speaker, says
}

// moved applies the first half of rule D12: the newest slice that lists a pod speaks for it. Where that has the pod
// elsewhere, or at the same address and port, what older ones say does not count; where it has the pod at the same
// address without that port, only its conditions are taken. disputed tells that an older slice says otherwise.
func (o *oracle) moved(f family, all []*candidate) (left []*candidate, disputed bool) {
	for _, c := range all {
		if c.uid == "" {
			left = append(left, c)
			continue
		}
		speaker, says := o.newest(f, c)
		switch {
		case speaker == c.from:
			left = append(left, c)
			continue
		case says == nil:
			disputed = true
			continue
		}
		disputed = disputed || says.differs(c)
		if o.numberIn(speaker) != int32(c.port) {
			d := *c
			d.ready, d.serving, d.terminating = says.ready, says.serving, says.terminating
			left = append(left, &d)
		}
	}
	return left, disputed
}

// better orders candidates of one address and port by the second half of rule D12, the best first: the more usable one,
// the newer slice; below that only a total order matters.
func better(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()),
		-cmp.Compare(a.from.version, b.from.version),
		strings.Compare(a.uid, b.uid),
		strings.Compare(a.target, b.target),
		cmp.Compare(index(a.terminating), index(b.terminating)),
		slices.Compare(a.texts(), b.texts()),
	)
}

func (c *candidate) texts() []string {
	letter := func(is bool, l string) string {
		if is {
			return l
		}
		return "-"
	}
	kind := ""
	if c.ep.TargetRef != nil {
		kind = c.ep.TargetRef.Kind
	}
	return []string{
		letter(c.ready, "r") + letter(c.serving, "s") + letter(c.terminating, "t"), deref(c.ep.Zone, ""), deref(c.ep.NodeName, ""),
		strings.Join(sets.List(c.zones), ","), strings.Join(sets.List(c.nodes), ","), kind, deref(c.ep.Hostname, ""),
	}
}

// unique leaves the best candidate of each address and port. disputed tells that they differ in what kube-proxy looks at.
func unique(all []*candidate) (out []proxy.Endpoint, disputed bool) {
	best := map[string]*candidate{}
	for _, c := range all {
		b := best[c.at]
		if b == nil {
			best[c.at] = c
			continue
		}
		disputed = disputed || b.differs(c)
		if better(c, b) < 0 {
			best[c.at] = c
		}
	}
	for _, c := range best {
		out = append(out, c)
	}
	return out, disputed
}

// closed reports whether the label of the newest slice keeps clients of another cluster out. Theirs has no region.
func (o *oracle) closed() bool {
	var newest *stored
	for _, s := range o.slices {
		if s.raw.AddressType != discoveryv1.AddressTypeFQDN && (newest == nil || s.version > newest.version) {
			newest = s
		}
	}
	if newest == nil {
		return false
	}
	far := newest.raw.Labels[labelFailover]
	return far == "none" || far == "region"
}

// with adds to a set that may be nil.
func with(s sets.Set[string], name string) sets.Set[string] {
	if s == nil {
		return sets.New(name)
	}
	return s.Insert(name)
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
