// Pure: values in, values out.

package projector

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// status says where a service stands between its memory and the STATE view.
type status uint8

const (
	fresh   status = iota // changed since it was last looked at
	settled               // memory and STATE hold the same live slices: a higher floor changes nothing
	behind                // STATE knows more than memory does, and nothing is to write: a higher floor may change that
	open                  // a peer of some event has not been seen yet
	writing               // a write is on its way
	statuses
)

// service is what a machine knows of one Key.
//
// Its fold is made of all slots each time, so that it is a function of what they hold and of nothing else. What keeps that
// cheap is that nothing inside a slice is looked at again while the slice is the same: content is shared, never copied,
// between memory, folds and the STATE view (stored), shared content is equal without being compared, and what a slice
// adds to a sum is kept beside it.
type service struct {
	key     endpoint.Key
	slots   map[string]*slot // by slice name; never an empty slot
	order   []*slot          // slots by name; nil when it has to be made anew
	seq     uint64           // of the message of the STATE view; 0 when it holds none
	stored  endpoint.State   // that message; an empty State when there is none
	status  status
	spoils  int       // how often that was so
	spoiled bool      // that message cannot be read, and stored is what was there before, as far as that is known
	queued  bool      // in the machine's queue
	cause   time.Time // when the bus stored the oldest live event that is in no write yet; zero when there is none
}

// slot is what is known of one slice: in the memory, which survives sessions, and in the view of this session.
type slot struct {
	name  string
	live  *endpoint.Slice // memory: live, or
	gone  *endpoint.Ref   // gone, or neither
	peers []endpoint.Ref  // of the event that memory has; those above the floor and not seen yet only
	view  *endpoint.Event // last message of this session; nil when there was none, or a tombstone up to the floor

	refused bool // the last message of this session cannot be read: memory is the best there is

	summed *endpoint.Slice // live, when sum is what it adds to the sum of a view
	sum    ledger.Sum
}

func newService(key endpoint.Key) *service {
	return &service{key: key, slots: map[string]*slot{}, stored: endpoint.State{Key: key}, status: settled}
}

// learn applies an event to memory, whose floor is given, and reports whether memory has changed: something older than
// memory, or live up to the floor where memory holds nothing live, is stale and changes nothing.
func (s *service) learn(e *endpoint.Event, floor endpoint.Version) bool {
	sl, known := s.slots[e.Slice.Name]
	if !known {
		sl = &slot{name: e.Slice.Name}
		s.slots[sl.name], s.order = sl, nil
	}
	sl.view, sl.refused = e, false
	return sl.join(s.key, floor, told(e), e.Peers)
}

// match joins memory, complete as of floor, with the view, complete as of c, and reports whether memory has changed,
// and whether it is calm: there is nothing that the next match could change.
func (s *service) match(floor, c endpoint.Version) (changed, calm bool) {
	after := floor
	if c.After(floor) {
		after = c
	}
	calm = true
	for _, sl := range s.inOrder() {
		if sl.refused {
			calm = false
			continue
		}
		view, peers := endpoint.State{Key: s.key}, []endpoint.Ref(nil)
		if sl.view != nil {
			view, peers = told(sl.view), sl.view.Peers
		}
		view.Floor = c
		changed = sl.join(s.key, floor, view, peers) || changed
		sl.peers = above(after, sl.peers)
		if sl.view != nil && sl.view.Gone && !sl.view.Slice.Version.After(after) {
			sl.view = nil
		}
		if sl.live == nil && sl.gone == nil && sl.view == nil {
			s.remove(sl)
			continue
		}
		same := sl.live != nil && sl.view != nil && !sl.view.Gone && sl.view.Slice.Version == sl.live.Version
		calm = calm && same && len(sl.peers) == 0
	}
	return changed, calm
}

// join joins the slot's memory, complete as of floor, with another view of the slice, and takes that view's peers
// if it is the newer one. It reports whether there is news in memory; that a tombstone has vanished is none.
func (sl *slot) join(key endpoint.Key, floor endpoint.Version, other endpoint.State, peers []endpoint.Ref) bool {
	mine := endpoint.State{Key: key, Floor: floor}
	if sl.live != nil {
		mine.Slices = []endpoint.Slice{*sl.live}
	}
	if sl.gone != nil {
		mine.Gone = []endpoint.Ref{*sl.gone}
	}
	joined := mine.Join(other)
	before := sl.version()
	changed := !joined.SameSlices(mine)
	if changed {
		sl.live = nil
		if len(joined.Slices) > 0 {
			sl.live = &joined.Slices[0]
		}
	}
	sl.gone = nil
	if len(joined.Gone) > 0 {
		sl.gone = &joined.Gone[0]
	}
	switch v := sl.version(); {
	case v.IsZero():
		sl.peers = nil
	case v != before || changed:
		sl.peers, changed = above(joined.Floor, peers), true
	}
	return changed
}

// version is that of the memory's entry, zero when it has none.
func (sl *slot) version() endpoint.Version {
	switch {
	case sl.live != nil:
		return sl.live.Version
	case sl.gone != nil:
		return sl.gone.Version
	default:
		return endpoint.Version{}
	}
}

// hear takes the message of the STATE view at seq, and gives what it adds to a sum: that is ledger.OfState(st), without
// hashing what memory has hashed already. Content that memory has too is shared with it.
func (s *service) hear(st *endpoint.State, seq uint64) (count uint64, sum ledger.Sum) {
	heard := *st
	heard.Slices = slices.Clone(st.Slices)
	for i := range heard.Slices {
		said := &heard.Slices[i]
		sl, known := s.slots[said.Name]
		if !known || sl.live == nil || sl.live.Version != said.Version || !sl.live.SameContent(*said) {
			sum = sum.Add(ledger.Digest(s.key, said.Name, said.Version, said.Hash()))
			continue
		}
		said.Ports, said.Endpoints = sl.live.Ports, sl.live.Endpoints
		if sl.summed != sl.live {
			sl.summed, sl.sum = sl.live, ledger.Digest(s.key, said.Name, said.Version, said.Hash())
		}
		sum = sum.Add(sl.sum)
	}
	if seq > s.seq {
		s.seq, s.stored, s.spoiled = seq, heard, false
	}
	return uint64(len(heard.Slices)), sum
}

// above gives the refs after the floor.
func above(floor endpoint.Version, refs []endpoint.Ref) []endpoint.Ref {
	if !slices.ContainsFunc(refs, func(r endpoint.Ref) bool { return !r.Version.After(floor) }) {
		return refs
	}
	var kept []endpoint.Ref
	for _, r := range refs {
		if r.Version.After(floor) {
			kept = append(kept, r)
		}
	}
	return kept
}

// closed reports whether memory is as new as every peer that its events name, so that an endpoint which moves between
// two slices is in the fold at every moment.
//
// A peer that has been seen stays seen: memory goes back to an older version of a slice never, and to none only when
// the floor has reached what it had.
func (s *service) closed(floor endpoint.Version) bool {
	for _, sl := range s.inOrder() {
		for len(sl.peers) > 0 {
			if p := sl.peers[0]; p.Version.After(floor) {
				if peer, known := s.slots[p.Name]; !known || p.Version.After(peer.version()) {
					return false
				}
			}
			sl.peers = sl.peers[1:]
		}
	}
	return true
}

// fold gives the State of memory.
func (s *service) fold(floor endpoint.Version) endpoint.State {
	st := endpoint.State{Key: s.key, Floor: floor}
	order := s.inOrder()
	for _, sl := range order {
		switch {
		case sl.live != nil:
			if st.Slices == nil {
				st.Slices = make([]endpoint.Slice, 0, len(order))
			}
			st.Slices = append(st.Slices, *sl.live)
		case sl.gone != nil && sl.gone.Version.After(floor):
			st.Gone = append(st.Gone, *sl.gone)
		}
	}
	return st
}

// inOrder lists the slots by name.
func (s *service) inOrder() []*slot {
	if s.order == nil {
		s.order = make([]*slot, 0, len(s.slots))
		for _, sl := range s.slots {
			s.order = append(s.order, sl)
		}
		slices.SortFunc(s.order, func(a, b *slot) int { return cmp.Compare(a.name, b.name) })
	}
	return s.order
}

func (s *service) remove(sl *slot) {
	delete(s.slots, sl.name)
	s.order = nil
}

// forget empties the view, as the opening of a session does.
func (s *service) forget() {
	for _, sl := range s.inOrder() {
		sl.view, sl.refused = nil, false
		if sl.live == nil && sl.gone == nil {
			s.remove(sl)
		}
	}
}

// refuse takes in that the view of a slice cannot be read, and reports whether memory has it live.
func (s *service) refuse(name string) (live bool) {
	sl, known := s.slots[name]
	if known {
		sl.view, sl.refused = nil, true
	}
	return known && sl.live != nil
}

// spoil takes in that the message of the STATE view at seq cannot be read.
func (s *service) spoil(seq uint64) {
	s.seq, s.spoiled = seq, true
	s.spoils++
}
