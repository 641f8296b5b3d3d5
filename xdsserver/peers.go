package xdsserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
)

// Peer is an xDS replica that is registered on the bus.
type Peer struct {
	ID    string
	Info  []byte    // what it says of itself: PeerInfo in JSON
	Heard time.Time // the last sign of life, by the clock of the bus
}

// PeerInfo is what a replica says of itself. Its JSON form is a contract.
type PeerInfo struct {
	Name    string `json:"name"`    // for people
	Current bool   `json:"current"` // what it serves is what the bus holds
}

// Registrar keeps this replica registered.
type Registrar interface {
	// Announce registers it until ctx ends, with heartbeats. It withdraws then, and returns nil.
	Announce(ctx context.Context, info []byte) error
	// Update changes what it says of itself.
	Update(info []byte) error
	// Heard is when the last heartbeat began that the bus took, by the own clock; zero before the first.
	Heard() time.Time
}

// Roster knows the replicas that are registered.
type Roster interface {
	// Follow hands on all of them whenever something was heard, until ctx ends. While the bus cannot be heard it is silent.
	Follow(ctx context.Context, handle func([]Peer)) error
	// Read gives them at a moment after the call. It needs a Follow that runs.
	Read(ctx context.Context) ([]Peer, error)
}

// Registration is what a replica needs to be one of several.
type Registration struct {
	ID        string        // of this replica, another one after each start
	Name      string        // for people
	TTL       time.Duration // how long its registration outlives its last heartbeat; at least Config.ProxyLostAfter
	Registrar Registrar
	Roster    Roster
	Proxies   ProxyList
}

// isZero reports whether a replica is alone.
func (r Registration) isZero() bool { return r == Registration{} }

func (r Registration) valid(lostAfter time.Duration) error {
	switch {
	case r.isZero():
		return nil
	case r.ID == "" || r.Registrar == nil || r.Roster == nil || r.Proxies == nil:
		return errors.New("registration: a part is missing")
	case r.TTL < lostAfter:
		return fmt.Errorf("registration: its time to live of %s is below the %s after which a proxy is lost", r.TTL, lostAfter)
	}
	return nil
}

// Why a stream is turned away.
const (
	awayCutOff = "cut_off"
	awayBehind = "behind"
)

var (
	errCutOff = status.Error(codes.Unavailable, "this replica does not hear the bus, others do")
	errBehind = status.Error(codes.Unavailable, "this replica is behind the bus, others are current")
)

// behindAfter is how long a message of the bus may be on its way into the memory before a replica counts as behind.
const behindAfter = 3 * time.Second

// crowd is this replica among the others. The Hub's lock guards the peers; mu guards what follows it.
type crowd struct {
	s       *Server
	cfg     Registration
	healthy *health.Server

	mu       sync.Mutex
	cutOff   bool
	current  bool
	handOver chan struct{} // closed while cutOff
}

func newCrowd(s *Server) *crowd {
	c := &crowd{s: s, cfg: s.cfg.Replica, healthy: health.NewServer(), handOver: make(chan struct{}), current: true}
	s.metrics.current.Set(1)
	if !c.cfg.isZero() {
		h := s.hub
		h.own, h.roll = c.cfg.ID, newRoll(s.cfg.ProxyLostAfter)
		h.lister = newLister(c.cfg.Proxies, c.cfg.ID, s.cfg.ProxyLostAfter, s.metrics, s.log)
	}
	return c
}

// run follows the other replicas and the list of proxies until ctx ends.
func (c *crowd) run(ctx context.Context, g *errgroup.Group) {
	if c.cfg.isZero() {
		return
	}
	g.Go(func() error { return c.cfg.Roster.Follow(ctx, c.heard) })
	g.Go(func() error { return c.cfg.Proxies.Follow(ctx, heardList{c.s.hub}) })
	g.Go(func() error {
		c.sweep(ctx)
		return nil
	})
}

// heard takes who is registered.
func (c *crowd) heard(all []Peer) {
	h := c.s.hub
	alive := make(map[string]time.Time, len(all)+1)
	for _, p := range all {
		alive[p.ID] = p.Heard
	}
	if _, in := alive[c.cfg.ID]; !in {
		alive[c.cfg.ID] = time.Time{} // It knows of its own streams whatever others see.
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers = slices.DeleteFunc(slices.Clone(all), func(p Peer) bool { return p.ID == c.cfg.ID })
	h.roll.replicas(alive, h.now())
	h.metrics.peers.Set(float64(len(h.peers)))
	h.signal()
}

// sweep forgets what is lost, and keeps the list short, until ctx ends. Of several replicas the first by name takes off the
// list what those that vanished have left.
func (c *crowd) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	h := c.s.hub
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		h.forget()
		left := h.roll.sweep(h.now())
		h.metrics.vanished.Set(float64(len(h.roll.orphans(h.now()))))
		first := !slices.ContainsFunc(h.peers, func(p Peer) bool { return p.ID < c.cfg.ID })
		h.mu.Unlock()
		if first {
			h.lister.drop(left)
		}
	}
}

// register announces this replica and waits until the bus has taken it: who asks a gate must not miss it. A bus that does
// not take it for as long as the start timeout is no reason not to serve. withdraw, once the streams have ended, writes
// down the last of them and then takes the registration back.
func (c *crowd) register(ctx context.Context) (withdraw func()) {
	if c.cfg.isZero() {
		return func() {}
	}
	c.s.store.mu.Lock()
	waiting, _ := c.s.store.waiting()
	c.s.store.mu.Unlock()
	c.turn(len(waiting) == 0)
	var all sync.WaitGroup
	listing, unlist := context.WithCancel(context.WithoutCancel(ctx))
	announcing, renounce := context.WithCancel(context.WithoutCancel(ctx))
	listed := make(chan struct{})
	all.Go(func() {
		defer close(listed)
		c.s.hub.lister.run(listing, c.s.cfg.StopTimeout)
	})
	all.Go(func() {
		if err := c.cfg.Registrar.Announce(announcing, c.info()); err != nil {
			c.s.log.Error("this replica is not registered", "err", err)
		}
	})
	c.s.notReady("it is not registered on the bus yet")
	late := time.After(c.s.cfg.StartTimeout)
	poll := time.NewTicker(10 * time.Millisecond) // The registrar has no word for it.
	defer poll.Stop()
wait:
	for c.cfg.Registrar.Heard().IsZero() {
		select {
		case <-poll.C:
		case <-late:
			c.s.log.Warn("serving without being registered on the bus")
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	return func() {
		unlist()
		<-listed
		renounce()
		all.Wait()
	}
}

// info is what this replica says of itself now.
func (c *crowd) info() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := json.Marshal(PeerInfo{Name: c.cfg.Name, Current: c.current})
	if err != nil {
		panic("texts do not encode: " + err.Error())
	}
	return body
}

// takes says why no stream may begin now, or gives what is closed when streams should go to others.
func (c *crowd) takes() (handOver <-chan struct{}, err error) {
	c.mu.Lock()
	cutOff, current, handOver := c.cutOff, c.current, c.handOver
	c.mu.Unlock()
	switch {
	case cutOff:
		c.s.metrics.turnedAway.WithLabelValues(awayCutOff).Inc()
		return nil, errCutOff
	case !current && c.anyCurrent():
		c.s.metrics.turnedAway.WithLabelValues(awayBehind).Inc()
		return nil, errBehind
	}
	return handOver, nil
}

// anyCurrent reports whether another replica says that it is current.
func (c *crowd) anyCurrent() bool {
	c.s.hub.mu.Lock()
	defer c.s.hub.mu.Unlock()
	return slices.ContainsFunc(c.s.hub.peers, func(p Peer) bool {
		info := PeerInfo{}
		return json.Unmarshal(p.Info, &info) == nil && info.Current
	})
}

// guard looks after this replica until ctx ends: does it hear the bus, and is it current?
func (c *crowd) guard(ctx context.Context) {
	if c.cfg.isZero() {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.guardBus(ctx) })
	both.Go(func() { c.guardMemory(ctx) })
	both.Wait()
}

// guardBus hands the streams over when the bus was not heard for half the time to live, while others were registered when
// it was heard last: they would wait for this one at every gate. Where it was alone it keeps them.
func (c *crowd) guardBus(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.TTL / 30)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		c.s.hub.mu.Lock()
		others := len(c.s.hub.peers)
		c.s.hub.mu.Unlock()
		silent := time.Since(c.cfg.Registrar.Heard()) > c.cfg.TTL/2
		c.mu.Lock()
		was := c.cutOff
		c.mu.Unlock()
		switch {
		case silent && others > 0 && !was:
			c.cut()
		case !silent && was && ctx.Err() == nil:
			c.mend()
		}
	}
}

// cut ends the streams, health first.
func (c *crowd) cut() {
	c.s.log.Warn("the bus is not heard while other replicas hear it: streams go to them", "since", c.cfg.Registrar.Heard())
	c.s.notReady("it does not hear the bus, its clients go to other replicas")
	c.healthy.Shutdown()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutOff = true
	close(c.handOver)
}

func (c *crowd) mend() {
	c.s.log.Info("the bus is heard again: streams are taken")
	c.mu.Lock()
	c.cutOff, c.handOver = false, make(chan struct{})
	c.mu.Unlock()
	c.s.why.Store(nil)
	c.healthy.Resume()
}

// guardMemory watches whether the memory keeps up with the bus.
func (c *crowd) guardMemory(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		current, why, known := c.isCurrent(ctx)
		if !known || ctx.Err() != nil || !c.turn(current) {
			continue
		}
		if current {
			c.s.log.Info("what is served is what the bus holds again")
		} else {
			c.s.log.Warn("behind the bus: new streams go to replicas that are current", "why", why)
		}
		if err := c.cfg.Registrar.Update(c.info()); err != nil {
			c.s.log.Error("what this replica says of itself is not changed", "err", err)
		}
	}
}

// turn notes whether this replica is current, and reports whether that is new.
func (c *crowd) turn(current bool) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.current = c.current != current, current
	c.s.metrics.current.Set(float64(btoi(current)))
	return changed
}

// isCurrent reports whether the memory has what the bus held a moment ago, and is in sync with all clusters; known is
// false while the bus does not tell.
func (c *crowd) isCurrent(ctx context.Context) (current bool, why string, known bool) {
	bounded, cancel := context.WithTimeout(ctx, behindAfter)
	defer cancel()
	seq, err := c.s.asker.ask(bounded)
	if err != nil {
		return false, "", false
	}
	late := time.NewTimer(behindAfter)
	defer late.Stop()
	select {
	case <-c.s.store.reached(seq):
	case <-late.C:
		return false, "its reader is late", true
	case <-ctx.Done():
		return false, "", false
	}
	c.s.store.mu.Lock()
	waiting, _ := c.s.store.waiting()
	c.s.store.mu.Unlock()
	if len(waiting) > 0 {
		return false, "not in sync with " + strings.Join(waiting, ", "), true
	}
	return true, "", true
}

// onList waits until the bus knows of a stream, or takes nothing, but not for long: before a client is sent an assignment,
// those who take over from this replica must know of it.
func (s *Server) onList(ctx context.Context, st *stream) {
	if s.hub.lister == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.FirstAnswerWait)
	defer cancel()
	s.hub.lister.listed(bounded, st.id)
}
