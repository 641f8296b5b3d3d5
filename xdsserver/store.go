package xdsserver

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Store is the memory of a replica: what it knows of every service, joined from all that it has heard, over all
// sessions of the bus. mu guards everything in it; the methods in lower case expect it to be held.
type Store struct {
	mu       *sync.Mutex // shared with Hub
	failover string      // where the label is unset
	services map[serviceID]*service
	clusters map[string]*clusterState
	regions  map[string]string // of the clusters whose record names one
	promised map[Pod]struct{}
	promises map[Pod]map[string]struct{} // to whom, of those of promised who may take them back
	former   Former
	index    index
	ignored  ignored // values of policy labels that mean nothing
	applied  uint64  // every message of the stream up to this sequence is in the memory
	complete bool    // the snapshot of this session is done
	once     bool    // a snapshot of this process was done
	recorded bool    // the clusters' records of this session are all known
	behind   []behind
	// touched is told which services may look different to clients; set once by the Hub.
	touched func([]touch)
	// inUse lists what clients are served of a service beyond its merged ports; set once by the Hub.
	inUse func(serviceID) []use
}

// use is a View and a Name that some stream subscribes to.
type use struct {
	view View
	name Name
}

// service is what the memory has of one service.
type service struct {
	id     serviceID
	states []endpoint.State // one per cluster that ever had it, sorted by cluster
}

// touch is a service that may look different.
type touch struct {
	id       serviceID
	live     bool      // by news, not by a snapshot, a checkpoint or a promise
	observed time.Time // when a watcher saw the news, zero when unknown
}

// clusterState is what the memory has of one cluster beside its services.
type clusterState struct {
	expected  bool                      // it must be in sync before anybody is served
	known     bool                      // the bus has a record, a checkpoint or a State of it
	stored    bool                      // the first snapshot had a checkpoint or a State of it
	synced    bool                      // a checkpoint agreed with the view, once in this process
	floor     endpoint.Version          // of the last match: all States of the memory are complete as of it
	ledger    *ledger.Ledger            // of this session
	view      map[endpoint.Key]viewed   // of this session: the last State of each Key
	unsettled map[endpoint.Key]struct{} // Keys of the memory that differ from the view
	pending   *ledger.Checkpoint
	doubt     ledger.Doubt
	refused   map[endpoint.Key]struct{} // Keys of this session whose State cannot be read; a projector will write it again
}

func newStore(mu *sync.Mutex, expected []string, failover string) *Store {
	s := &Store{
		mu: mu, failover: failover, services: map[serviceID]*service{}, clusters: map[string]*clusterState{},
		regions: map[string]string{}, promised: map[Pod]struct{}{}, promises: map[Pod]map[string]struct{}{}, former: Former{}, index: newIndex(),
		ignored: ignored{values: map[endpoint.Key]*[labels]string{}}, touched: func([]touch) {}, inUse: func(serviceID) []use { return nil },
	}
	for _, name := range expected {
		s.cluster(name).expected = true
	}
	return s
}

// cluster gives the state of a cluster, a new one if need be.
func (s *Store) cluster(name string) *clusterState {
	c := s.clusters[name]
	if c == nil {
		c = &clusterState{unsettled: map[endpoint.Key]struct{}{}}
		c.open(s.complete)
		s.clusters[name] = c
	}
	return c
}

// heard gives the state of a cluster that the bus has something of. What the first snapshot has is its last stored
// state; of what comes later nobody knows how much of it there is, until a checkpoint tells.
func (s *Store) heard(name string) *clusterState {
	c := s.cluster(name)
	c.known, c.expected = true, true
	c.stored = c.stored || !s.once
	return c
}

// open begins a session: the view is empty, the memory stays.
func (c *clusterState) open(complete bool) {
	c.ledger, c.view, c.pending, c.doubt = ledger.New(), map[endpoint.Key]viewed{}, nil, ledger.Doubt{}
	c.refused = map[endpoint.Key]struct{}{}
	if complete {
		c.ledger.Complete(0)
	}
}

// notice takes one notice of the STATE stream. It returns ledger.ErrResync when the session should be opened again.
func (s *Store) notice(n ledger.Notice) error {
	var touched []touch
	var err error
	switch n.Kind {
	case ledger.Opened:
		s.opened()
	case ledger.Changed:
		touched = s.changed(n)
	case ledger.Certified:
		c := s.heard(n.Cluster)
		c.ledger.Advance(n.Seq)
		c.pending = &n.Checkpoint
		touched, err = s.judge(n.Cluster, c)
	case ledger.Refused:
		s.refuse(n)
	case ledger.Complete:
		touched, err = s.completed(n.Seq)
	}
	s.touched(touched)
	s.advance(n.Seq)
	return err
}

func (s *Store) opened() {
	s.applied, s.complete = 0, false
	for _, c := range s.clusters {
		c.open(false)
	}
	for _, svc := range s.services {
		for i := range svc.states {
			key := svc.states[i].Key
			s.clusters[key.Cluster].unsettled[key] = struct{}{}
		}
	}
}

func (s *Store) completed(seq uint64) (touched []touch, err error) {
	s.complete, s.once = true, true
	for _, name := range s.sortedClusters() {
		c := s.clusters[name]
		c.ledger.Complete(seq)
		t, again := s.judge(name, c)
		touched = append(touched, t...)
		if again != nil {
			err = again
		}
	}
	return touched, err
}

// refuse takes in that nobody can read what the bus holds of a Key, or as a checkpoint. The memory stays as it is.
func (s *Store) refuse(n ledger.Notice) {
	c := s.cluster(n.Cluster)
	c.ledger.Advance(n.Seq)
	if n.Of == ledger.Changed {
		c.ledger.Put(n.Key.String(), n.Seq, 0, ledger.Sum{})
		c.doubt.Changed(n.Seq)
		c.refused[n.Key] = struct{}{}
	} else {
		c.pending = nil
	}
}

// changed joins a received State into the memory.
func (s *Store) changed(n ledger.Notice) []touch {
	c := s.heard(n.Key.Cluster)
	known, _ := s.state(n.Key)
	v := c.view[n.Key].next(sharing(*n.State, &known))
	c.ledger.Put(n.Key.String(), n.Seq, uint64(len(v.digests)), v.sum())
	c.doubt.Changed(n.Seq)
	c.view[n.Key] = v
	delete(c.refused, n.Key)
	return s.join(c, v.state, s.complete)
}

// join joins a State into the memory and says what that touched.
func (s *Store) join(c *clusterState, received endpoint.State, live bool) []touch {
	before, known := s.state(received.Key)
	before = raise(before, c.floor)
	after := before.Join(received)
	if after.SameSlices(received) {
		delete(c.unsettled, received.Key)
	} else {
		c.unsettled[received.Key] = struct{}{}
	}
	same := after.SameSlices(before)
	s.put(before, after)
	if known && same {
		return nil
	}
	return []touch{{serviceOf(received.Key), live, observed(before, after)}}
}

// judge compares the view of a cluster with its last checkpoint, and on agreement makes the memory complete as of it.
func (s *Store) judge(name string, c *clusterState) ([]touch, error) {
	if c.pending == nil {
		return nil, nil
	}
	cp, v := *c.pending, c.ledger.Judge(*c.pending)
	if v == ledger.Early {
		return nil, nil
	}
	c.pending = nil // where the view is past it, the next checkpoint tells
	c.doubt.Take(v, cp)
	if v == ledger.Agrees && len(c.refused) > 0 {
		return nil, nil // of what cannot be read nobody can say that it is not there
	}
	if v == ledger.Agrees {
		return s.match(name, c, cp.Complete), nil
	}
	if c.doubt.Lost() {
		return nil, ledger.ErrResync
	}
	return nil, nil
}

// blind reports whether nothing is known of a cluster that should be there.
func (c *clusterState) blind() bool { return c.expected && !c.synced && !c.stored }

// match joins every Key with what the view has of it, or with nothing, complete as of floor. Keys that the view agrees
// with need no work: their floor is raised when they are touched next.
func (s *Store) match(name string, c *clusterState, floor endpoint.Version) (touched []touch) {
	blind := c.blind()
	if floor.After(c.floor) {
		c.floor = floor
	}
	c.synced = true
	for key := range c.unsettled {
		seen, has := c.view[key]
		view := seen.state
		view.Key = key
		touched = append(touched, s.join(c, raise(view, floor), false)...)
		if st, _ := s.state(key); !has && len(st.Slices) == 0 {
			s.forget(key)
			delete(c.unsettled, key)
		}
	}
	if blind {
		touched = append(touched, touch{}) // Names that nobody knows can be answered now.
	}
	slices.SortFunc(touched, func(a, b touch) int { return strings.Compare(a.id.String(), b.id.String()) })
	return touched
}

// raise makes st complete as of floor, if it was not yet.
func raise(st endpoint.State, floor endpoint.Version) endpoint.State {
	if floor.After(st.Floor) {
		st.Floor = floor
		st.Gone = slices.DeleteFunc(slices.Clone(st.Gone), func(r endpoint.Ref) bool { return !r.Version.After(floor) })
	}
	return st
}

// observed gives the earliest time at which a watcher saw something of what is in after and not in before.
func observed(before, after endpoint.State) (first time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for i := range after.Slices {
		sl := &after.Slices[i]
		if was := liveSlice(&before, sl.Name); was == nil || was.Version != sl.Version {
			earlier(sl.Observed)
		}
	}
	for _, g := range after.Gone {
		if liveSlice(&before, g.Name) != nil {
			earlier(g.Observed)
		}
	}
	return first
}

func liveSlice(st *endpoint.State, name string) *endpoint.Slice {
	if i, ok := findSlice(st, name); ok {
		return &st.Slices[i]
	}
	return nil
}

func findSlice(st *endpoint.State, name string) (at int, found bool) {
	return slices.BinarySearchFunc(st.Slices, name, func(sl endpoint.Slice, n string) int { return strings.Compare(sl.Name, n) })
}

// record takes one notice of the clusters' records.
func (s *Store) record(n ledger.Notice) {
	switch n.Kind {
	case ledger.Complete:
		s.recorded = true
	case ledger.Recorded:
		c := s.cluster(n.Cluster)
		c.known, c.expected = true, true
		if s.regions[n.Cluster] == n.Record.Region {
			break
		}
		s.regions[n.Cluster] = n.Record.Region
		var touched []touch
		for id, svc := range s.services {
			if svc.find(n.Cluster) >= 0 {
				touched = append(touched, touch{id: id})
			}
		}
		s.touched(touched)
	}
}
