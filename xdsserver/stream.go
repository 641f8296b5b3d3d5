package xdsserver

import (
	"strconv"
	"time"
)

// streamOptions say what a client has opened.
type streamOptions struct {
	service string // "ads", "eds" or "cds"
	delta   bool
	peer    string // host:port
	scope   Scope  // what the client may see
	who     string // the identities of the client's certificate; "" without one
}

// protocol gives the label of the protocol.
func (o streamOptions) protocol() string {
	if o.delta {
		return "delta"
	}
	return "sotw"
}

// serves reports whether the service offers a kind.
func (o streamOptions) serves(k kind) bool { return o.service == "ads" || o.service == k.String() }

// stream is one open stream. The Hub's lock guards it, but for wake.
type stream struct {
	streamOptions
	id     string
	opened time.Time
	known  bool // its first request has come: node and view are set
	node   string
	view   View
	acked  bool // it has acknowledged an assignment, or proved to hold the current ones
	ended  bool // it has been removed: nothing may be added to it
	// enlisted says that it was noted for the list of proxies, proved that it was as one that holds what it wants.
	enlisted, proved bool

	nonce uint64
	place uint32 // its number among the open streams
	types [kinds]subscription
	wake  chan struct{} // of capacity 1: there may be something to send
}

// subscription is what a stream wants and has of one kind.
type subscription struct {
	asked    bool // a request has come
	wildcard bool
	legacy   bool            // the wildcard is that of an empty first request
	answer   bool            // the next response is due even if it is empty
	stale    bool            // something was marked since the last whole response
	stalled  bool            // something is due and the window is full
	dirty    int             // subs that are marked
	unknown  int             // subs of which the client holds something unknown
	digest   digest          // SotW: of the names of the last request
	partial  bool            // SotW: that request had a stale nonce, and new names of it are not marked yet
	nonce    string          // of the last response
	subs     map[string]*sub // those that are not settled
	settled  int             // how many are
	most     int             // entries that the map has had
	queue    []*sub          // marked ones, and leftovers that are marked no more
	removals []*sub          // of clusters in delta: sent after everything else
	window   []*response
	answers  answers
	ghosts   map[string]struct{} // names that were unsubscribed while a response with them was out
}

// response is one sent response that the client has not answered.
type response struct {
	kind   kind
	nonce  string
	at     time.Time // when it was given to the transport
	items  []item
	frame  *frame // until it is handed to the sender
	causes []*change
}

// item is one resource of a response; resource is nil for a removed one.
type item struct {
	sub      *sub
	resource *resource
	cause    *change
}

func newStream(o streamOptions, number uint64, now time.Time) *stream {
	st := &stream{streamOptions: o, id: strconv.FormatUint(number, 10), opened: now, wake: make(chan struct{}, 1)}
	for k := range kinds {
		st.types[k].subs, st.types[k].ghosts = map[string]*sub{}, map[string]struct{}{}
	}
	return st
}

// rouse wakes the sender of the stream.
func (st *stream) rouse() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// silent gives since when the oldest unanswered response of any kind is out; zero when there is none.
func (st *stream) silent() (since time.Time) {
	for k := range kinds {
		if w := st.types[k].window; len(w) > 0 && (since.IsZero() || w[0].at.Before(since)) {
			since = w[0].at
		}
	}
	return since
}

// isClean reports whether the client has acknowledged all the assignments that it wants.
func (st *stream) isClean() bool {
	t := &st.types[assignments]
	return st.acked && t.dirty == 0 && t.unknown == 0 && len(t.window) == 0
}
