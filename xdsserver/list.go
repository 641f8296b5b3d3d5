package xdsserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync"
	"time"
)

// ListEntry is one stream on the list of proxies.
type ListEntry struct {
	Replica string        // that has or had it
	Stream  string        // names it within the replica
	Body    []byte        // nil: it is taken off the list
	TTL     time.Duration // of what is written: it lapses after so long
	Stored  time.Time     // of what is heard: when the bus took it, by the clock of the bus
}

// ListHandler hears the list. Its methods are called by one goroutine.
type ListHandler interface {
	Opened()           // a session begins: what was heard before may have changed without a word
	Complete()         // all that was on the list when the session began has been heard
	Entry(e ListEntry) // of each stream the newest
}

// ProxyList is the list of the streams of all replicas, on the bus.
type ProxyList interface {
	// Put writes entries. When it returns nil the bus has all of them.
	Put(ctx context.Context, entries []ListEntry) error
	// Follow runs sessions until ctx ends.
	Follow(ctx context.Context, h ListHandler) error
}

// How the list is written.
const (
	listSpacing = 100 * time.Millisecond // between the beginnings of two batches
	listBatch   = 500                    // most entries of one
	listRetry   = time.Second            // after a batch that failed
	listTTL     = time.Hour              // of the entry of an open stream, which is written again at half of it
	listSlack   = 5 * time.Second        // how much longer than its proxy is waited for an ended stream is listed
	sweepEvery  = time.Second
)

// lister writes what becomes of the streams of this replica to the list: the newest of each stream only, in batches that
// lie apart, so that a thousand that come at once are a few batches. mu guards what follows it; the Hub's lock may be held
// when it is taken, never the other way round.
type lister struct {
	list    ProxyList
	own     string // this replica
	lostFor time.Duration
	metrics *metrics
	log     *slog.Logger
	wake    chan struct{} // of capacity 1

	mu      sync.Mutex
	pending map[string]listing           // by stream
	flying  map[string]listing           // of the batch that is on its way
	waiting map[string][]chan<- struct{} // who waits for the first entry of a stream
	written map[string]listing           // of open streams
	drops   []rollKey                    // of vanished replicas
	failing bool                         // and that has been said
}

func newLister(list ProxyList, own string, lostFor time.Duration, m *metrics, log *slog.Logger) *lister {
	return &lister{
		list: list, own: own, lostFor: lostFor, metrics: m, log: log, wake: make(chan struct{}, 1),
		pending: map[string]listing{}, waiting: map[string][]chan<- struct{}{}, written: map[string]listing{},
	}
}

// note takes what a stream is now.
func (l *lister) note(stream string, now listing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, due := l.pending[stream]
	if _, has := l.written[stream]; due && !has && !now.Ended.IsZero() && len(l.pending) > 10*listBatch {
		// The bus takes nothing, and they come and go: what this replica alone knows goes with it.
		delete(l.pending, stream)
		l.answer(stream)
		return
	}
	l.pending[stream] = now
	l.metrics.listPending.Set(float64(len(l.pending)))
	l.rouse()
}

// again writes an open stream anew that has gone from the list.
func (l *lister) again(stream string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, open := l.written[stream]
	if _, newer := l.pending[stream]; open && !newer {
		l.pending[stream] = was
		l.rouse()
	}
}

// drop takes streams of vanished replicas off the list.
func (l *lister) drop(keys []rollKey) {
	if len(keys) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops = append(l.drops, keys...)
	l.rouse()
}

func (l *lister) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// listed waits until the bus has, or could not take, what was noted of a stream.
func (l *lister) listed(ctx context.Context, stream string) {
	done := make(chan struct{})
	l.mu.Lock()
	_, due := l.pending[stream]
	_, flies := l.flying[stream]
	_, has := l.written[stream]
	if (due || flies) && !has {
		l.waiting[stream] = append(l.waiting[stream], done)
	} else {
		close(done)
	}
	l.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// run writes until ctx ends, then what is left, within bound.
func (l *lister) run(ctx context.Context, bound time.Duration) {
	refresh := time.NewTicker(listTTL / 60)
	defer refresh.Stop()
	for {
		select {
		case <-l.wake:
		case now := <-refresh.C:
			l.refresh(now)
			continue
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
			defer cancel()
			for l.write(last) == nil && l.due() {
			}
			return
		}
		pause := listSpacing
		if l.write(ctx) != nil {
			pause = listRetry
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (l *lister) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) > 0
}

// write writes one batch.
func (l *lister) write(ctx context.Context) error {
	batch, entries := l.take(time.Now())
	if len(entries) == 0 {
		return nil
	}
	err := l.list.Put(ctx, entries)
	l.wrote(batch, err)
	if err != nil {
		l.metrics.listed.WithLabelValues("failed").Add(float64(len(entries)))
	} else {
		l.metrics.listed.WithLabelValues("done").Add(float64(len(entries)))
	}
	return err
}

// take gives the next batch.
func (l *lister) take(now time.Time) (map[string]listing, []ListEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, entries := map[string]listing{}, make([]ListEntry, 0, min(len(l.pending)+len(l.drops), listBatch))
	for stream, what := range l.pending {
		if len(entries) == listBatch {
			break
		}
		delete(l.pending, stream)
		ttl := listTTL
		if !what.Ended.IsZero() {
			if ttl = l.lostFor + listSlack; now.Sub(what.Ended) > l.lostFor {
				l.answer(stream)
				continue // Its proxy is lost by now.
			}
		}
		what.Written = now
		batch[stream] = what
		entries = append(entries, ListEntry{Replica: l.own, Stream: stream, Body: what.encode(), TTL: ttl})
	}
	n := min(len(l.drops), listBatch-len(entries))
	for _, key := range l.drops[:n] {
		entries = append(entries, ListEntry{Replica: key.replica, Stream: key.stream})
	}
	l.drops = l.drops[n:]
	if len(l.pending) > 0 || len(l.drops) > 0 {
		l.rouse()
	}
	l.metrics.listPending.Set(float64(len(l.pending)))
	l.flying = batch
	return batch, entries
}

// wrote takes how a batch ended. What failed is tried again, unless something newer is due.
func (l *lister) wrote(batch map[string]listing, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = nil
	for stream, what := range batch {
		l.answer(stream)
		_, newer := l.pending[stream]
		switch {
		case err != nil && !newer:
			l.pending[stream] = what
			l.rouse()
		case err == nil && what.Ended.IsZero():
			l.written[stream] = what
		case err == nil:
			delete(l.written, stream)
		}
	}
	if (err != nil) != l.failing {
		l.failing = err != nil
		if l.failing {
			l.log.Warn("streams are not on the list of proxies, trying on", "err", err)
		} else {
			l.log.Info("streams are on the list of proxies again")
		}
	}
}

// answer tells those who wait for a stream. The lock is held.
func (l *lister) answer(stream string) {
	for _, w := range l.waiting[stream] {
		close(w)
	}
	delete(l.waiting, stream)
}

// refresh writes those again whose entries have half of their time left.
func (l *lister) refresh(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for stream, what := range l.written {
		if _, newer := l.pending[stream]; !newer && now.Sub(what.Written) > listTTL/2 {
			l.pending[stream] = what
			l.rouse()
		}
	}
}

// listedNode gives a node id as it stands on the list: whole, or of a very long one its hash.
func listedNode(node string) string {
	if len(node) <= maxListedText {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// listingOf gives what the list says of a stream now.
func (h *Hub) listingOf(st *stream) listing {
	l := listing{Node: listedNode(st.node), Address: st.peer, Since: st.opened, Clean: st.proved}
	if st.ended {
		l.Ended = h.now()
	}
	return l
}

// enlist notes a stream for the list: when its client asks for assignments, so before it is sent any, and when it has
// acknowledged all it wanted, the first time.
func (h *Hub) enlist(st *stream) {
	if h.lister == nil || !st.types[assignments].asked {
		return
	}
	if clean := st.isClean(); !st.enlisted || clean && !st.proved {
		st.enlisted, st.proved = true, st.proved || clean
		h.lister.note(st.id, h.listingOf(st))
	}
}

// delist notes that a stream has ended.
func (h *Hub) delist(st *stream) {
	if st.enlisted {
		h.lister.note(st.id, h.listingOf(st))
	}
}

// heardList is the Hub as it hears the list.
type heardList struct{ hub *Hub }

func (l heardList) Opened() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.roll.open()
}

func (l heardList) Complete() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roll.completed(h.now())
	for st := range h.streams {
		if s := h.roll.streams[rollKey{h.own, st.id}]; st.enlisted && (s == nil || s.session != h.roll.session) {
			h.lister.again(st.id)
		}
	}
	h.signal()
}

func (l heardList) Entry(e ListEntry) {
	h := l.hub
	key, what := rollKey{e.Replica, e.Stream}, listing{}
	err := error(nil)
	if e.Body != nil {
		err = json.Unmarshal(e.Body, &what)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.metrics.badListed.Inc()
		return // Its stream stays as it was; an unknown one is of a replica that other rules speak of.
	case e.Body != nil:
		h.roll.put(key, what, e.Stored, h.now())
	default:
		h.roll.drop(key, h.now())
		if e.Replica == h.own {
			h.lister.again(e.Stream)
		}
	}
	h.signal()
}
