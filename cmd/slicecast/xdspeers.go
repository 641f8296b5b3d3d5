package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slicecast/slicecast/xdsserver"
)

// announceXDS tells the bus of an xDS replica, and answers what is asked of this one alone.
func (g *group) announceXDS(ctx context.Context, s *xdsserver.Server) error {
	info, err := json.Marshal(xdsInfo{Name: replicaName(xdsRole), Current: true})
	if err != nil {
		return fmt.Errorf("announce this replica: %w", err)
	}
	g.Go(func() error { return g.bus.Announce(ctx, xdsRole, info) })
	g.Go(func() error { return g.bus.Queries().ServeOwn(ctx, clientsQuery, s.Clients) })
	return nil
}
