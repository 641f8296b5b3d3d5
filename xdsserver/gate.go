package xdsserver

import (
	"context"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver/internal/gate"
)

// Gate is the drain gate of a replica: Drain, its HTTP form Handler and its bus form Query.
type Gate = gate.Gate

// DrainRequest is the question whether a pod may stop.
type DrainRequest = gate.Request

// DrainAnswer is what a Gate says of a pod.
type DrainAnswer = gate.Answer

// GateConfig is what a Gate needs. Replica and Clusters are filled by NewGate.
type GateConfig = gate.Config

// GatePeers are the other replicas that a Gate asks.
type GatePeers = gate.Peers

// ErrDrainBusy is returned by Gate.Drain when too many waits are open, in all or for one pod.
var ErrDrainBusy = gate.ErrBusy

// DrainRequestError is returned by Gate.Drain for a question that has no answer: it names the parameter.
type DrainRequestError = gate.RequestError

// NewGate gives the drain gate of the replica whose streams hub knows.
func NewGate(hub *Hub, cfg GateConfig) (*Gate, error) {
	cfg.Replica = gated{hub}
	cfg.Clusters = func() (names []string) {
		hub.Look(func(s Sight) { names = s.Clusters() })
		return names
	}
	return gate.New(cfg)
}

// gated shows a Hub to the gate in the gate's words.
type gated struct{ hub *Hub }

func (g gated) Changed() <-chan struct{} { return g.hub.Changed() }

func (g gated) Step(pod gate.Pod, wait string, f func(gate.Moment) bool) {
	g.hub.Look(func(s Sight) {
		if !f(moment{s}) {
			return
		}
		for _, uid := range promised(s, pod) {
			s.PromiseTo(wait, pod.Cluster, uid)
		}
	})
}

func (g gated) Release(pod gate.Pod, wait string) {
	g.hub.Look(func(s Sight) {
		for _, uid := range promised(s, pod) {
			s.ReleaseFrom(wait, pod.Cluster, uid)
		}
	})
}

// promised lists the uids that a promise for pod is about: its own, or, if it has none, those at its addresses.
func promised(s Sight, pod gate.Pod) []string {
	if pod.UID != "" {
		return []string{pod.UID}
	}
	var uids []string
	for _, p := range s.Pod(pod.Cluster, "", pod.Addrs).Seen {
		uids = append(uids, p.Endpoint.TargetUID)
	}
	return uids
}

// unlisted stands for the node ids of the clients that replicas which have vanished may have had.
const unlisted = "clients of vanished replicas: the list of proxies is not heard yet"

// moment is a Sight in the gate's words.
type moment struct{ sight Sight }

func (m moment) Version(key endpoint.Key, slice string) endpoint.Version {
	return m.sight.Version(key, slice)
}

func (m moment) Sight(pod gate.Pod) gate.Sighting {
	v := m.sight.Pod(pod.Cluster, pod.UID, pod.Addrs)
	s := gate.Sighting{Floor: v.Floor, Shared: v.Shared, Foreign: v.Foreign, Places: make([]gate.Place, 0, len(v.Seen))}
	for _, p := range v.Seen {
		s.Places = append(s.Places, gate.Place{
			Key: p.Key, Slice: p.Slice, Version: p.Version, Addr: p.Endpoint.Addr,
			Ports: p.Ports, Conditions: p.Endpoint.Conditions, Used: p.Used,
		})
	}
	return s
}

func (m moment) Holders(t gate.Targets) []gate.Holder {
	held, lost := m.sight.Holders(t.Match), m.sight.Orphans(t.Match)
	all := make([]gate.Holder, 0, len(held)+len(lost))
	for _, h := range held {
		all = append(all, gate.Holder{
			Stream: h.Stream, Node: h.Node, Address: h.Address, Since: h.Since,
			Fresh: h.Unacked, Draining: h.Draining, Silent: h.Silent,
		})
	}
	for _, o := range lost {
		all = append(all, gate.Holder{Stream: o.Stream, Replica: o.Replica, Node: o.Node, Address: o.Address, Since: o.Ended, Ended: o.Ended})
	}
	if m.sight.Deaf() {
		all = append(all, gate.Holder{Stream: "list", Node: unlisted})
	}
	return all
}

// GatePeers gives the gate of this replica the others, whom ask reaches; nil when it is alone.
func (s *Server) GatePeers(ask func(ctx context.Context, id string, body []byte) ([]byte, error)) GatePeers {
	if s.cfg.Replica.isZero() {
		return nil
	}
	return gatePeers{s, ask}
}

// gatePeers shows the registered replicas to the gate.
type gatePeers struct {
	s   *Server
	ask func(ctx context.Context, id string, body []byte) ([]byte, error)
}

func (g gatePeers) Others() []string {
	g.s.hub.mu.Lock()
	defer g.s.hub.mu.Unlock()
	return g.ids(g.s.hub.peers)
}

func (g gatePeers) Read(ctx context.Context) ([]string, error) {
	all, err := g.s.cfg.Replica.Roster.Read(ctx)
	return g.ids(all), err
}

func (g gatePeers) Ask(ctx context.Context, id string, body []byte) ([]byte, error) {
	return g.ask(ctx, id, body)
}

// ids lists those of the others.
func (g gatePeers) ids(all []Peer) []string {
	ids := make([]string, 0, len(all))
	for _, p := range all {
		if p.ID != g.s.cfg.Replica.ID {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
