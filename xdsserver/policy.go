// Pure: values in, values out.

package xdsserver

import (
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// The Service labels that say what to do with a service. A value that none of them knows is as good as none.
const (
	LabelTerminating = "slicecast.io/terminating" // "drain"
	LabelFailover    = "slicecast.io/failover"    // "any", "region" or "none"
)

// The values that mean something.
const (
	drainPolicy    = "drain"
	failoverAny    = "any"
	failoverRegion = "region"
	failoverNone   = "none"
)

// label is one of the policy labels.
type label uint8

const (
	terminating label = iota
	failover
	labels
)

func (l label) String() string { return [...]string{LabelTerminating, LabelFailover}[l] }

// short is its name in metrics.
func (l label) short() string { return [...]string{"terminating", "failover"}[l] }

// values lists what it may say.
func (l label) values() []string {
	return [...][]string{{drainPolicy}, {failoverAny, failoverRegion, failoverNone}}[l]
}

// of gives its value in a slice.
func (l label) of(sl *endpoint.Slice) string {
	if l == terminating {
		return sl.TerminatingPolicy
	}
	return sl.FailoverPolicy
}

// said gives its value in a cluster, "" when unset: within a service the newest slice speaks.
func (l label) said(st *endpoint.State) string {
	if len(st.Slices) == 0 {
		return ""
	}
	return l.of(newest(st))
}

// knows reports whether a value means something.
func (l label) knows(value string) bool { return slices.Contains(l.values(), value) }

// failoverSource gives the State that failover is read from: that of the client's own cluster, else of the smallest
// cluster name that has the service; nil when nobody has it.
func failoverSource(svc *Service, own string) (from *endpoint.State) {
	for i := range svc.States {
		st := &svc.States[i]
		switch {
		case len(st.Slices) == 0:
		case st.Key.Cluster == own:
			return st
		case from == nil || st.Key.Cluster < from.Key.Cluster:
			from = st
		}
	}
	return from
}

// failoverPolicy gives how far a client of that cluster goes: what the label says, else the default.
func failoverPolicy(svc *Service, own string) string {
	if from := failoverSource(svc, own); from != nil {
		if said := failover.said(from); failover.knows(said) {
			return said
		}
	}
	return svc.Failover
}

// Policy is what a policy label says of a service in one cluster.
type Policy struct {
	Cluster string
	Label   string // LabelTerminating or LabelFailover
	Value   string // as the newest slice has it
	Known   bool   // the value means something; else it is ignored
	Applies bool   // it decides for the View that was asked about
	Slice   string // the newest slice of the service in that cluster, which speaks
	Version endpoint.Version
}

// Policies lists the policy labels that are set on a service, by cluster and label, with those that decide what view
// sees of it under name.
func Policies(svc Service, view View, name Name) (out []Policy) {
	svc = svc.within(view.Scope)
	reach, from := reachOf(svc, view, name), failoverSource(&svc, view.Cluster)
	for _, st := range slices.SortedFunc(slices.Values(svc.States), byCluster) {
		if len(st.Slices) == 0 || name.Cluster != "" && name.Cluster != st.Key.Cluster {
			continue
		}
		sl := newest(&st)
		for l := range labels {
			if l.of(sl) == "" {
				continue
			}
			p := Policy{Cluster: st.Key.Cluster, Label: l.String(), Value: l.of(sl), Known: l.knows(l.of(sl)), Slice: sl.Name, Version: sl.Version}
			if l == failover {
				p.Applies = p.Known && !reach.all && from.Key == st.Key
			} else {
				p.Applies = p.Known && reach.tier(st.Key.Cluster) != tierOut
			}
			out = append(out, p)
		}
	}
	return out
}

// ignored notices the values of policy labels that mean nothing, so that each is reported once.
type ignored struct {
	values map[endpoint.Key]*[labels]string
	count  [labels]int // services that have one
	due    []ignoredPolicy
}

// ignoredPolicy is a value that is to be reported.
type ignoredPolicy struct {
	key   endpoint.Key
	label label
	value string
}

// see takes a State of the memory into account. A value is due once, and again only after it has changed.
func (g *ignored) see(st *endpoint.State) {
	was := g.values[st.Key]
	var sl *endpoint.Slice
	if len(st.Slices) > 0 {
		sl = newest(st)
	}
	if was == nil && (sl == nil || sl.TerminatingPolicy == "" && sl.FailoverPolicy == "") {
		return
	}
	var now, before [labels]string
	if was != nil {
		before = *was
	}
	for l := range labels {
		if sl != nil && l.of(sl) != "" && !l.knows(l.of(sl)) {
			now[l] = l.of(sl)
			g.count[l]++
		}
		if before[l] != "" {
			g.count[l]--
		}
		if now[l] != "" && now[l] != before[l] {
			g.due = append(g.due, ignoredPolicy{st.Key, l, now[l]})
		}
	}
	if now == ([labels]string{}) {
		delete(g.values, st.Key)
		return
	}
	now[terminating], now[failover] = strings.Clone(now[terminating]), strings.Clone(now[failover])
	g.values[st.Key] = &now
}

// take gives what is due, and the numbers of services.
func (g *ignored) take() (due []ignoredPolicy, count [labels]int) {
	due, g.due = g.due, nil
	return due, g.count
}
