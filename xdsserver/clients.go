package xdsserver

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRefusal bounds what is kept of why a client rejected a response, in bytes.
const maxRefusal = 512

// answers are what a client has said of the responses of one type, for people.
type answers struct {
	nacks   uint64
	refusal string    // why it rejected the last one that it rejected
	refused time.Time // when
	last    time.Time // when it answered last, either way
}

// note takes the client's answer to a response.
func (a *answers) note(r request, now time.Time) {
	a.last = now
	if r.nack {
		a.nacks++
		a.refusal, a.refused = bounded(r.detail, maxRefusal), now
	}
}

// bounded gives at most n bytes of a text of somebody else, as valid UTF-8.
func bounded(text string, n int) string {
	if len(text) > n {
		text = text[:n-len("...")] + "..."
	}
	return strings.Clone(strings.ToValidUTF8(text, "?"))
}

// standing says how a client stands to one resource that it subscribes to.
type standing uint8

const (
	standingSynced   standing = iota // it acknowledged what is current
	standingStale                    // it holds something else, or has not answered yet
	standingRejected                 // it rejected what is current
	standingUnsent                   // it was sent nothing, or there is nothing to send
	standings
)

// resourceLook is one resource of a client.
type resourceLook struct {
	name     string
	version  string // that it was sent last, "" for none
	standing standing
	known    bool // the name resolves to a service that the client may see
}

// typeLook is what a client subscribes to of one type.
type typeLook struct {
	kind      kind
	wildcard  bool
	resources []resourceLook // sorted by name
	window    int            // responses without an answer
	answers   answers
}

// clientLook is one open stream at one moment, in values of its own.
type clientLook struct {
	streamOptions
	number uint64
	node   string
	view   View
	since  time.Time
	types  []typeLook // those that the client asked for
}

// lookFrom lists the streams with a number above after that may be seen, by number.
func (h *Hub) lookFrom(after uint64, may func(*stream) bool) []*stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*stream
	for st := range h.streams {
		if st.number() > after && may(st) {
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Compare(a.number(), b.number()) })
	return all
}

// number is the id of a stream as a number: later streams of a replica have higher ones.
func (st *stream) number() uint64 {
	n, err := strconv.ParseUint(st.id, 10, 64)
	if err != nil {
		panic("stream id " + st.id + " is not a number")
	}
	return n
}

// look gives a stream as it is now; false when it has ended.
func (h *Hub) look(st *stream) (clientLook, bool) {
	h.mu.Lock()
	c := clientLook{streamOptions: st.streamOptions, number: st.number(), node: st.node, view: st.view, since: st.opened}
	ended := st.ended
	for k := range kinds {
		t := &st.types[k]
		if ended || !t.asked {
			continue
		}
		look := typeLook{kind: k, wildcard: t.wildcard, window: len(t.window), answers: t.answers, resources: make([]resourceLook, 0, len(t.subs)+t.settled)}
		for name, s := range t.subs {
			known, _ := h.isKnown(s.e)
			standing, version := h.standingOf(s)
			look.resources = append(look.resources, resourceLook{name, version, standing, known})
		}
		h.eachSettled(st, k, func(e *entry) {
			known, _ := h.isKnown(e)
			look.resources = append(look.resources, resourceLook{e.id.name, e.current.version, standingSynced, known})
		})
		c.types = append(c.types, look)
	}
	h.mu.Unlock()
	for _, t := range c.types {
		slices.SortFunc(t.resources, func(a, b resourceLook) int { return strings.Compare(a.name, b.name) })
	}
	return c, !ended
}

// standingOf says how the client stands to a resource, and which version it was sent last.
func (h *Hub) standingOf(s *sub) (standing, string) {
	target := h.target(s)
	switch n := len(s.flight); {
	case n > 0:
		return standingStale, versionOf(s.flight[n-1])
	case target != nil && s.rejected != nil && sameResource(s.rejected, target):
		return standingRejected, s.rejected.version
	case s.unknown:
		return standingStale, ""
	case target == nil && s.sent == nil, s.acked == nil:
		return standingUnsent, ""
	case sameResource(s.acked, target):
		return standingSynced, s.acked.version
	default:
		return standingStale, s.acked.version
	}
}

func versionOf(r *resource) string {
	if r == nil {
		return ""
	}
	return r.version
}

// count counts the resources by standing.
func (t *typeLook) count() (n [standings]int) {
	for i := range t.resources {
		n[t.resources[i].standing]++
	}
	return n
}

// worst gives at most n of the resources, those that are not in sync first, sorted by name otherwise.
func (t *typeLook) worst(n int) []resourceLook {
	if len(t.resources) <= n {
		return t.resources
	}
	list := slices.Clone(t.resources)
	slices.SortStableFunc(list, func(a, b resourceLook) int {
		return cmp.Compare(btoi(a.standing == standingSynced), btoi(b.standing == standingSynced))
	})
	return list[:n]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lookAlone waits until nobody else looks at all clients: a look costs as much as they have names. done ends it.
func (s *Server) lookAlone(ctx context.Context) (done func(), err error) {
	select {
	case s.looking <- struct{}{}:
		return func() { <-s.looking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
