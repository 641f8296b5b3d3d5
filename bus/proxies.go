package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

const (
	maxProxyEntry = 8 << 10 // bytes
	proxyWriters  = 32      // writes of one Put on their way at once
)

// Proxies is the bucket SLICECAST_PROXIES: a stream of a proxy under "<replica>.<stream>". What an entry says is up to the
// xDS replicas.
type Proxies struct{ b *Bus }

// Proxies is the list of streams of proxies.
func (b *Bus) Proxies() *Proxies { return &Proxies{b} }

// ProxyEntry is one stream on the list.
type ProxyEntry struct {
	Replica string        // Bus.ID of the replica that has or had it, a token
	Stream  string        // a token
	Body    []byte        // at most 8 KiB; nil: it is deleted
	TTL     time.Duration // it lapses after so long without another Put; at least 1 s, whole seconds
	Stored  time.Time     // of what is read: when the bus took it, by the server's clock
}

// Put writes entries, the last of each stream counts. When it returns nil the bus has all of them; with an error, any of
// them. A deleted entry leaves a marker for a minute.
func (p *Proxies) Put(ctx context.Context, entries []ProxyEntry) error {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(proxyWriters)
	for _, e := range entries {
		writers.Go(func() error { return p.put(ctx, e) })
	}
	return writers.Wait()
}

func (p *Proxies) put(ctx context.Context, e ProxyEntry) error {
	m := message{proxiesRoot + e.Replica + "." + e.Stream, header{}, e.Body}
	switch {
	case !isToken(e.Replica, "") || !isToken(e.Stream, ""):
		return fmt.Errorf("stream %q of replica %q is not made of letters, digits, '-' and '_'", clip(e.Stream), clip(e.Replica))
	case len(e.Body) > maxProxyEntry:
		return fmt.Errorf("put %s: %d bytes, more than %d", m.subject, len(e.Body), maxProxyEntry)
	case e.Body == nil:
		m.header, e.TTL = header{hKVOp: {kvDelete}}, markerTTL
	case e.TTL < time.Second:
		return fmt.Errorf("put %s: it would lapse after %s", m.subject, e.TTL)
	}
	_, err := p.b.publish(ctx, p.b.proxiesSpec(), m, jetstream.WithExpectStream(proxiesStream), jetstream.WithMsgTTL(e.TTL.Truncate(time.Second)))
	return err
}

// ProxiesHandler hears the list. Its methods are called by one goroutine.
type ProxiesHandler interface {
	Opened()            // a session begins: what was heard before may have changed without a word
	Complete()          // all that was on the list when the session began has been heard
	Entry(e ProxyEntry) // of each stream the newest; Body is nil where it is gone
}

// Follow hands on the list, session after session, until ctx ends; then it returns nil.
func (p *Proxies) Follow(ctx context.Context, h ProxiesHandler) error {
	return p.b.follow(ctx, reader{
		spec: p.b.proxiesSpec(), filter: proxiesRoot + ">",
		handle: func(n ledger.Notice) error {
			switch n.Kind {
			case ledger.Opened:
				h.Opened()
			case ledger.Complete:
				h.Complete()
			}
			return nil
		},
		entry: func(m entryMessage) error {
			replica, stream, ok := strings.Cut(strings.TrimPrefix(m.subject, proxiesRoot), ".")
			if !ok || len(m.body) > maxProxyEntry {
				p.b.bad(m.subject, errors.New("no entry of the list of proxies"))
				return nil
			}
			e := ProxyEntry{Replica: replica, Stream: stream, Body: m.body, Stored: m.stored}
			if m.gone() {
				e.Body = nil
			} else if e.Body == nil {
				e.Body = []byte{}
			}
			h.Entry(e)
			return nil
		},
	})
}
