// Pure: values in, values out.

package xdsserver

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// handover is how much two streams may seem to overlap though one began when the other had ended: two replicas do
	// not notice at the same moment.
	handover = 500 * time.Millisecond
	// maxStreamsOfClient is how many streams of one client are told apart. Of more, only time clears those that ended.
	maxStreamsOfClient = 16
	maxListedText      = 1 << 10 // bytes of a node id on the list
)

// listing is what the list of proxies says of one stream: the value of "<replica>.<stream>". Times are by the clock of its
// replica.
type listing struct {
	Node    string    `json:"node"`
	Address string    `json:"address"` // peer, host:port
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended,omitzero"`
	Clean   bool      `json:"clean,omitempty"` // once it had acknowledged all that it wanted
	Written time.Time `json:"written"`
}

func (l listing) encode() []byte {
	l.Since, l.Ended, l.Written = l.Since.UTC(), l.Ended.UTC(), l.Written.UTC()
	body, err := json.Marshal(l)
	if err != nil {
		panic("a listing made of texts and times does not encode: " + err.Error())
	}
	return body
}

// rollKey names a stream among those of all replicas.
type rollKey struct{ replica, stream string }

// rollClient is what is taken for one client: a node id at one host.
type rollClient struct{ node, host string }

// rolled is a stream on the list. began and ended are by the clock of the bus, which is one for all replicas.
type rolled struct {
	key     rollKey
	client  rollClient
	address string
	since   time.Time // by its replica's clock
	began   time.Time
	ended   time.Time // zero while its replica has not said so
	clean   bool
	gone    time.Time // by the own clock: when it was first known to have ended, or its replica to have vanished
	shared  bool      // another stream of the client was open at the time: only time clears it
	cleared bool      // its client has acknowledged all it wanted on another stream since
	session uint64    // in which it was last heard of
}

// roll is the list of proxies as this replica has heard it, with the replicas that are alive. It finds the streams of
// replicas that have vanished, whose proxies may still send to what they were told there.
type roll struct {
	lostFor  time.Duration
	session  uint64
	complete bool                 // all of this session's list has been heard
	alive    map[string]struct{}  // replicas, this one included; nil: not known yet
	heard    map[string]time.Time // of replicas: the last sign of life, by the clock of the bus
	streams  map[rollKey]*rolled
	clients  map[rollClient]map[*rolled]struct{}
}

func newRoll(lostFor time.Duration) *roll {
	return &roll{
		lostFor: lostFor, heard: map[string]time.Time{}, streams: map[rollKey]*rolled{}, clients: map[rollClient]map[*rolled]struct{}{},
	}
}

// known reports whether the list and the replicas have been heard, so that what is not here is not there.
func (r *roll) known() bool { return r.complete && r.alive != nil }

// open begins a session of the list.
func (r *roll) open() { r.session, r.complete = r.session+1, false }

// completed ends the snapshot of a session. What is missing from it without a word is forgotten as if it had ended now.
func (r *roll) completed(now time.Time) {
	r.complete = true
	for _, s := range r.streams {
		if s.session != r.session {
			r.lose(s, now)
		}
	}
}

// put takes an entry of the list, which the bus has stored at that time.
func (r *roll) put(key rollKey, l listing, stored, now time.Time) {
	client := rollClient{l.Node, hostOf(l.Address)}
	s := r.streams[key]
	if s != nil && s.client != client {
		r.remove(s)
		s = nil
	}
	if s == nil {
		s = &rolled{key: key, client: client, began: stored.Add(-l.Written.Sub(l.Since))}
		r.streams[key] = s
		if r.clients[client] == nil {
			r.clients[client] = map[*rolled]struct{}{}
		}
		r.clients[client][s] = struct{}{}
	}
	s.address, s.since, s.session, s.clean = l.Address, l.Since, r.session, s.clean || l.Clean
	if r.heard[key.replica].Before(stored) {
		r.heard[key.replica] = stored
	}
	switch {
	case !l.Ended.IsZero():
		s.ended = stored.Add(-l.Written.Sub(l.Ended))
		r.lose(s, now)
	case r.isAlive(key.replica):
		s.gone = time.Time{}
	case r.alive != nil:
		r.lose(s, now)
	}
	r.compare(s)
	r.settle(client)
}

// drop takes that the list has no such entry any more.
func (r *roll) drop(key rollKey, now time.Time) {
	s := r.streams[key]
	if s == nil {
		return
	}
	if r.isAlive(key.replica) || r.isLost(s, now) {
		r.remove(s)
	} else {
		r.lose(s, now)
	}
}

// replicas takes who is alive, with the last sign of life of each by the clock of the bus.
func (r *roll) replicas(alive map[string]time.Time, now time.Time) {
	r.alive = make(map[string]struct{}, len(alive))
	for id, heard := range alive {
		r.alive[id] = struct{}{}
		if r.heard[id].Before(heard) {
			r.heard[id] = heard
		}
	}
	clients := map[rollClient]struct{}{}
	for _, s := range r.streams {
		switch alive := r.isAlive(s.key.replica); {
		case !alive && s.gone.IsZero():
			r.lose(s, now)
			clients[s.client] = struct{}{}
		case alive && s.ended.IsZero() && s.session == r.session:
			s.gone = time.Time{}
		}
	}
	for c := range clients {
		r.settle(c)
	}
	maps.DeleteFunc(r.heard, func(id string, _ time.Time) bool { return !r.isAlive(id) && !r.has(id) })
}

func (r *roll) has(replica string) bool {
	for key := range r.streams {
		if key.replica == replica {
			return true
		}
	}
	return false
}

func (r *roll) isAlive(replica string) bool {
	_, alive := r.alive[replica]
	return alive
}

// lose notes that a stream is known to have ended from now on.
func (r *roll) lose(s *rolled, now time.Time) {
	if s.gone.IsZero() {
		s.gone = now
		r.compare(s)
	}
}

// endOf gives the earliest time at which a stream may have ended that has.
func (r *roll) endOf(s *rolled) time.Time {
	if s.ended.IsZero() {
		return r.heard[s.key.replica]
	}
	return s.ended
}

// compare notes which streams of the same client were open at one time with s. While two are open nothing is decided:
// the end of the first may not have been heard of yet.
func (r *roll) compare(s *rolled) {
	group := r.clients[s.client]
	if len(group) > maxStreamsOfClient {
		s.shared = true
		return
	}
	for o := range group {
		if o == s {
			continue
		}
		first, second := s, o
		if second.began.Before(first.began) {
			first, second = second, first
		}
		if !first.gone.IsZero() && second.began.Before(r.endOf(first).Add(-handover)) {
			first.shared, second.shared = true, true
		}
	}
}

// settle clears the streams of a client that have ended, if its only open stream began afterwards and has acknowledged
// all it wanted: what the client holds is known there.
func (r *roll) settle(c rollClient) {
	group := r.clients[c]
	if c.node == "" || len(group) > maxStreamsOfClient {
		return
	}
	var live *rolled
	for s := range group {
		if !s.gone.IsZero() {
			continue
		}
		if live != nil {
			return
		}
		live = s
	}
	if live == nil || !live.clean || live.shared {
		return
	}
	for s := range group {
		if s != live && !s.shared && !live.began.Before(r.endOf(s).Add(-handover)) {
			s.cleared = true
		}
	}
}

// isLost reports whether the proxy of a stream that ended counts as lost.
func (r *roll) isLost(s *rolled, now time.Time) bool {
	return !s.gone.IsZero() && now.Sub(s.gone) > r.lostFor
}

// orphans gives the streams of vanished replicas whose proxies may still hold anything, sorted by node, address, stream.
func (r *roll) orphans(now time.Time) []Orphan {
	var out []Orphan
	for key, s := range r.streams {
		if !s.gone.IsZero() && !s.cleared && !r.isAlive(key.replica) && !r.isLost(s, now) {
			out = append(out, Orphan{
				Stream: key.replica + "." + key.stream, Replica: key.replica,
				Node: s.client.node, Address: s.address, Ended: s.gone, Clean: s.clean,
			})
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address), strings.Compare(a.Stream, b.Stream))
	})
	return out
}

// isCleared reports whether the client of a stream that ended has proved on another replica what it holds.
func (r *roll) isCleared(key rollKey) bool {
	s := r.streams[key]
	return s != nil && s.cleared
}

// sweep forgets the streams whose proxies are lost, and lists those of vanished replicas, which nobody else takes off the
// list.
func (r *roll) sweep(now time.Time) (left []rollKey) {
	for key, s := range r.streams {
		if !r.isLost(s, now) {
			continue
		}
		if r.known() && !r.isAlive(key.replica) {
			left = append(left, key)
		}
		r.remove(s)
	}
	return left
}

func (r *roll) remove(s *rolled) {
	delete(r.streams, s.key)
	delete(r.clients[s.client], s)
	if len(r.clients[s.client]) == 0 {
		delete(r.clients, s.client)
	}
}
