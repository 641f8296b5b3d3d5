package main

import (
	"context"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/xdsserver"
)

// xdsRole is the role of xDS replicas on the bus; the queries go to each of them.
const (
	xdsRole      = "xds"
	clientsQuery = "clients"
	drainQuery   = "drain"
)

// registration makes an xDS replica one of several. Where nobody else can reach the bus it is alone.
func (g *group) registration() (xdsserver.Registration, error) {
	if g.alone {
		return xdsserver.Registration{}, nil
	}
	r, err := g.bus.Roster(xdsRole)
	if err != nil {
		return xdsserver.Registration{}, err
	}
	return xdsserver.Registration{
		ID: g.bus.ID(), Name: replicaName(xdsRole), TTL: g.bus.ClaimTTL(),
		Registrar: registrar{g.bus}, Roster: xdsRoster{r}, Proxies: proxyList{g.bus.Proxies()},
	}, nil
}

// answerPeers answers what others ask this replica alone.
func (g *group) answerPeers(ctx context.Context, s *xdsserver.Server, gate *xdsserver.Gate) {
	g.Go(func() error { return g.bus.Queries().ServeOwn(ctx, clientsQuery, s.Clients) })
	g.Go(func() error { return g.bus.Queries().ServeOwn(ctx, drainQuery, gate.Peer) })
}

// askPeer puts the question of a gate to another replica.
func (g *group) askPeer(ctx context.Context, id string, body []byte) ([]byte, error) {
	return g.bus.Queries().AskReplica(ctx, id, drainQuery, body)
}

// xdsTTL is how long the registration of an xDS replica outlives it: no shorter than a proxy is waited for, and no longer
// than need be, since every gate waits for it.
func xdsTTL(proxyLostAfter time.Duration) time.Duration {
	const least = 10 * time.Second
	return max(least, (proxyLostAfter + time.Second - 1).Truncate(time.Second))
}

// registrar is the bus as xDS replicas register on it.
type registrar struct{ bus *bus.Bus }

func (r registrar) Announce(ctx context.Context, info []byte) error {
	return r.bus.Announce(ctx, xdsRole, info)
}
func (r registrar) Update(info []byte) error { return r.bus.Update(xdsRole, info) }
func (r registrar) Heard() time.Time         { return r.bus.Heard(xdsRole) }

// xdsRoster is the bus as it knows the xDS replicas.
type xdsRoster struct{ roster *bus.Roster }

func (r xdsRoster) Follow(ctx context.Context, handle func([]xdsserver.Peer)) error {
	return r.roster.Follow(ctx, func(set []bus.Member) { handle(peersOf(set)) })
}

func (r xdsRoster) Read(ctx context.Context) ([]xdsserver.Peer, error) {
	set, err := r.roster.Read(ctx)
	return peersOf(set), err
}

func peersOf(set []bus.Member) []xdsserver.Peer {
	peers := make([]xdsserver.Peer, len(set))
	for i, m := range set {
		peers[i] = xdsserver.Peer{ID: m.ID, Info: m.Info, Heard: m.Heard}
	}
	return peers
}

// proxyList is the list of proxies on the bus, in the words of the xDS server.
type proxyList struct{ proxies *bus.Proxies }

func (p proxyList) Put(ctx context.Context, entries []xdsserver.ListEntry) error {
	list := make([]bus.ProxyEntry, len(entries))
	for i, e := range entries {
		list[i] = bus.ProxyEntry(e)
	}
	return p.proxies.Put(ctx, list)
}

func (p proxyList) Follow(ctx context.Context, h xdsserver.ListHandler) error {
	return p.proxies.Follow(ctx, listened{h})
}

// listened is a handler of the xDS server that hears the bus.
type listened struct{ xdsserver.ListHandler }

func (l listened) Entry(e bus.ProxyEntry) { l.ListHandler.Entry(xdsserver.ListEntry(e)) }
