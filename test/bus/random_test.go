package bus_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/test/bus/rig"
)

var (
	histories = flag.Int("histories", 4, "random histories of faults, when -duration is 0")
	duration  = flag.Duration("duration", 0, "how long to go on with random histories")
	faults    = flag.Int("faults", 8, "faults of one random history")
)

// history is a random sequence of faults on one rig.
type history struct {
	*world
	r       *rand.Rand
	server  *rig.Server  // nil on a cluster
	cluster *rig.Cluster // nil on a single server
	down    int          // server of the cluster that is away, -1 when none
	dead    []*rig.Role
	held    []*rig.Role
	copied  bool // there is a copy of the store
	fresh   bool // a replica has started since the last quiet moment
	said    []string
}

// fault is one of the things that happen; times is how often it is chosen.
type fault struct {
	name  string
	times int
	do    func(h *history)
}

// everywhere are the faults of both kinds of bus.
func everywhere() []fault {
	return []fault{
		{"nothing", 1, func(h *history) {}},
		{"stop a role", 4, (*history).hold},
		{"let a role go on", 3, (*history).release},
		{"kill a role", 4, (*history).kill},
		{"start a role", 4, (*history).revive},
		{"delete a stream", 2, func(h *history) { h.lose(); h.deleteStream() }},
		{"delete all consumers", 2, func(h *history) { h.healServers(); h.admin(deleteConsumers) }},
		{"list late", 2, (*history).listLate},
		{"fill a stream", 1, (*history).fill},
		{"shift a clock", 1, (*history).shift},
		{"quiet", 2, func(h *history) { h.settle("amid the history") }},
	}
}

func onOneServer() []fault {
	return []fault{
		{"restart", 2, func(h *history) { must(h.t, h.server.Restart()) }},
		{"be away", 1, func(h *history) {
			h.server.Stop()
			h.changes(20 + h.r.IntN(150))
			must(h.t, h.server.Start())
		}},
		{"wipe", 2, func(h *history) { h.lose(); must(h.t, h.server.Wipe()) }},
		{"copy the store", 2, func(h *history) { h.copied = true; must(h.t, h.server.Copy()) }},
		{"roll back", 3, func(h *history) {
			if h.copied {
				h.lose()
				must(h.t, h.server.RollBack())
			}
		}},
	}
}

func onACluster() []fault {
	return []fault{
		{"kill a server", 2, func(h *history) { h.healServers(); h.down = h.r.IntN(3); h.cluster.Kill(h.down) }},
		{"heal the servers", 3, (*history).healServers},
		{"cut a server off", 2, func(h *history) {
			h.healServers()
			i := h.r.IntN(3)
			h.cluster.Cut(i)
			h.changes(50 + h.r.IntN(200))
			h.cluster.Heal(i)
		}},
	}
}

// lose gets ready for a loss of what is on the bus: a replica without memory cannot know better.
func (h *history) lose() {
	if h.fresh {
		h.settle("before a loss")
		h.fresh = false
	}
	h.healServers()
}

func (h *history) healServers() {
	if h.down >= 0 {
		must(h.t, h.cluster.Revive(h.down))
		h.down = -1
	}
}

// any gives a role that runs and is not held.
func (h *history) any() *rig.Role {
	all := slices.DeleteFunc(h.All(), func(r *rig.Role) bool { return slices.Contains(h.dead, r) || slices.Contains(h.held, r) })
	if len(all) < 3 {
		return nil
	}
	return all[h.r.IntN(len(all))]
}

func (h *history) hold() {
	if role := h.any(); role != nil {
		h.say(role.Name)
		role.Gate.Shut()
		h.held = append(h.held, role)
	}
}

func (h *history) release() {
	if len(h.held) > 0 {
		h.say(h.held[0].Name)
		h.held[0].Gate.Open()
		h.held = h.held[1:]
	}
}

func (h *history) kill() {
	role := h.any()
	if role == nil {
		return
	}
	h.say(role.Name)
	role.Stop()
	if slices.Contains(h.Replicas, role) || slices.Contains(h.Readers, role) || h.r.IntN(2) == 0 {
		h.fresh = true
		role.Start()
		return
	}
	h.dead = append(h.dead, role)
}

func (h *history) revive() {
	if len(h.dead) > 0 {
		h.say(h.dead[0].Name)
		h.dead[0].Start()
		h.dead = h.dead[1:]
	}
}

func (h *history) deleteStream() {
	name := []string{"SLICECAST_EVENTS", "SLICECAST_STATE"}[h.r.IntN(2)]
	h.say(name)
	h.admin(func(ctx context.Context, js jetstream.JetStream) error { return deleteStream(ctx, js, name) })
}

// listLate starts a watcher whose list comes 50 changes after it was made.
func (h *history) listLate() {
	role := h.Watchers[h.r.IntN(2)][h.r.IntN(2)]
	if slices.Contains(h.dead, role) || slices.Contains(h.held, role) {
		return
	}
	h.say(role.Name)
	role.Stop()
	first, late := true, make(chan struct{})
	role.Source.Relist = func(now uint64) uint64 {
		if first {
			first = false
			<-late
		}
		return now
	}
	role.Start()
	h.changes(50)
	close(late)
}

func (h *history) fill() {
	h.healServers()
	name := []string{"SLICECAST_EVENTS", "SLICECAST_STATE"}[h.r.IntN(2)]
	h.say(name)
	h.limit(name, 0)
	h.changes(50 + h.r.IntN(100))
	h.limit(name, 1<<30)
}

func (h *history) shift() {
	role := h.Watchers[h.r.IntN(2)][h.r.IntN(2)]
	if slices.Contains(h.dead, role) || slices.Contains(h.held, role) {
		return
	}
	role.Stop()
	role.Wire.Shift = time.Duration(h.r.IntN(1200)-600) * time.Second
	role.Source.Shift = role.Wire.Shift
	role.Start()
}

func (h *history) say(text string) { h.said[len(h.said)-1] += " (" + text + ")" }

// settle brings everything back first: what is stopped or dead now has no reason to be right.
func (h *history) settle(when string) {
	h.t.Helper()
	h.healServers()
	for len(h.held) > 0 {
		h.release()
	}
	for _, two := range append(slices.Clone(h.Watchers), h.Projectors) {
		if slices.Contains(h.dead, two[0]) && slices.Contains(h.dead, two[1]) {
			two[0].Start() // one of two is enough
			h.dead = slices.DeleteFunc(h.dead, func(r *rig.Role) bool { return r == two[0] })
		}
	}
	h.world.settle(when)
	h.fresh = false
}

func (h *history) run(n int) {
	all := everywhere()
	if h.server != nil {
		all = append(all, onOneServer()...)
	} else {
		all = append(all, onACluster()...)
	}
	var choices []fault
	for _, f := range all {
		choices = append(choices, slices.Repeat([]fault{f}, f.times)...)
	}
	for range n {
		h.changes(1 + h.r.IntN(60))
		f := choices[h.r.IntN(len(choices))]
		h.said = append(h.said, f.name)
		f.do(h)
	}
	h.said = append(h.said, "end")
	h.changes(20)
	h.settle("at the end")
}

func randomHistory(t *testing.T, seed uint64) {
	h := &history{r: rand.New(rand.NewPCG(seed, 2)), down: -1, said: []string{"start"}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(h.said, "; "))
		}
	})
	var urls []string
	if seed%4 == 0 {
		h.cluster = three(t)
		urls = h.cluster.URLs()
	} else {
		h.server = single(t)
		urls = h.server.URLs()
	}
	h.world = newWorld(t, urls, func(cfg *rig.Config) { cfg.Seed = seed })
	h.run(*faults)
}

func TestRandomHistoriesOfFaultsEndWithoutADifference(t *testing.T) {
	t.Parallel()
	started := time.Now()
	for i := 0; *duration > 0 && time.Since(started) < *duration || *duration == 0 && i < *histories; i++ {
		seed := *seed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { randomHistory(t, seed) })
	}
}
