package rig

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/projector"
	"github.com/slicecast/slicecast/watcher"
)

// registry is who watches a cluster, as cmd joins the rooms.
type registry struct{ b *bus.Bus }

func (g registry) Announce(ctx context.Context, cluster string, info []byte) error {
	return g.b.Announce(ctx, "watcher-"+cluster, info)
}

func (g registry) Update(cluster string, info []byte) error {
	return g.b.Update("watcher-"+cluster, info)
}

func (g registry) Members(ctx context.Context, cluster string, handle func([]watcher.Member)) error {
	return g.b.Members(ctx, "watcher-"+cluster, func(all []bus.Member) {
		members := make([]watcher.Member, 0, len(all))
		for _, m := range all {
			members = append(members, watcher.Member{ID: m.ID, Info: m.Info})
		}
		handle(members)
	})
}

// ranked runs a projector among the others, as cmd joins the rooms.
func ranked(ctx context.Context, b *bus.Bus, ranks *projector.Ranks, run func(context.Context) error) error {
	const role = "projector"
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.Announce(ctx, role, nil) })
	group.Go(func() error {
		return b.Members(ctx, role, func(members []bus.Member) {
			live := make([]string, len(members))
			for i, m := range members {
				live[i] = m.ID
			}
			ranks.Set(live)
		})
	})
	group.Go(func() error { return run(ctx) })
	return group.Wait()
}
