package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	callTimeout   = 5 * time.Second // of one request to the server where the caller's context has no end
	complainEvery = 10 * time.Minute
	moveAfter     = 5           // heartbeats without a decision of the servers
	historyLinger = time.Second // that Close waits for copies on their way
	historyFlight = 1024        // copies for history that may be on their way
	saidKept      = 10_000      // subjects and errors that are remembered as logged
)

// Bus is one connection to the bus with all that is read and written over it. It is safe for use by many goroutines.
type Bus struct {
	cfg     Config
	id      string
	log     *slog.Logger
	metrics *metrics
	codec   *codec
	link    *link
	nc      *nats.Conn
	live    atomic.Pointer[nats.Conn] // nc, for callbacks that may come before Connect has it
	js      jetstream.JetStream
	// confined says that this client may not ask the leader for messages, over this connection.
	confined atomic.Bool
	history  jetstream.JetStream // its publishes are never waited for

	// mu guards what follows.
	mu        sync.Mutex
	said      map[string]bool             // subjects and errors that were logged already
	streams   map[string]jetstream.Stream // handles by name, once seen
	announced map[string]*announcement    // by role
	// complained is when writes that fail were last logged, by stream and kind; troubles are the kinds of errors logged
	// since the last connection.
	complained map[string]time.Time
	troubles   map[string]bool

	closing chan struct{}  // closed by Close, ends the goroutines of claims
	claims  sync.WaitGroup // those goroutines
}

// Connect makes the connection. It returns at once: while no server can be reached it is tried for ever, and calls
// fail with ErrNotConnected. When a server is there, missing streams are made; what is wrong with them is logged, and
// returned only for an embedded server. Close ends it.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bus{
		cfg: cfg, id: bootID(cfg.Name), log: cfg.Log, link: newLink(), closing: make(chan struct{}),
		said: map[string]bool{}, streams: map[string]jetstream.Stream{}, announced: map[string]*announcement{},
		complained: map[string]time.Time{}, troubles: map[string]bool{},
	}
	if b.codec, err = newCodec(); err != nil {
		return nil, err
	}
	options, err := b.options()
	if err != nil {
		return nil, err
	}
	if b.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	if b.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), append(options, b.handlers()...)...); err != nil {
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	b.live.Store(b.nc)
	if err := b.open(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// open makes the JetStream contexts and, when connected, the streams.
func (b *Bus) open(ctx context.Context) error {
	var err error
	if b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(callTimeout)); err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	b.history, err = jetstream.New(b.nc,
		jetstream.WithPublishAsyncMaxPending(2*historyFlight),
		jetstream.WithPublishAsyncTimeout(callTimeout),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { b.metrics.dropped.Inc() }))
	if err != nil {
		return fmt.Errorf("open JetStream for history: %w", err)
	}
	if !b.nc.IsConnected() {
		return nil // Said by the handlers.
	}
	if _, ok := b.link.wait(ctx); !ok {
		return fmt.Errorf("connect to the bus: %w", ctx.Err())
	}
	for _, spec := range b.specs() {
		_, _, err := b.ensure(ctx, spec)
		switch {
		case err == nil:
		case b.cfg.Server != nil:
			return err
		case spec.Name == proxiesStream && errors.Is(err, ErrNoPermission):
			b.log.Debug("the list of proxies is not for this client", "err", err)
		default:
			b.log.Warn("stream of the bus is not ready", "err", err)
		}
	}
	return nil
}

// handlers tell the link about the connection. They run one after the other, in order.
func (b *Bus) handlers() []nats.Option {
	up := func(nc *nats.Conn) {
		b.metrics.connected.Set(1)
		b.reached()
		b.confined.Store(false)
		b.link.set(true)
		url := nc.ConnectedUrlRedacted()
		if b.cfg.Server != nil {
			url = "in process" // the library makes up an address
		}
		b.log.Info("bus connected", "url", url)
	}
	return []nats.Option{
		nats.ConnectHandler(up),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.metrics.reconnects.Inc()
			up(nc)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.metrics.connected.Set(0)
			b.link.set(false)
			select {
			case <-b.closing: // on purpose
			default:
				b.log.Warn("bus connection lost", "err", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.trouble(err) }),
		nats.CustomReconnectDelay(b.pause),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { b.reported(sub, err) }),
	}
}

// Events is the EVENTS stream.
func (b *Bus) Events() *Events { return &Events{b} }

// States is the STATE stream.
func (b *Bus) States() *States { return &States{b} }

// Queries are the questions and answers.
func (b *Bus) Queries() *Queries { return &Queries{b} }

// ClaimTTL is how long what this process announces or claims outlives it.
func (b *Bus) ClaimTTL() time.Duration { return b.cfg.ClaimTTL }

// Connected reports whether the connection stands.
func (b *Bus) Connected() bool { return b.link.connected() }

// Close ends the connection and all claims, which then lapse by themselves. Whoever follows or serves ends its context
// first. Close is called once.
func (b *Bus) Close() {
	close(b.closing)
	b.claims.Wait()
	if b.history != nil && b.Connected() {
		// What is on its way may still arrive. (The library's own cleanup would leave a goroutine behind.)
		select {
		case <-b.history.PublishAsyncComplete():
		case <-time.After(historyLinger):
		}
	}
	b.nc.Close()
	b.link.set(false)
	b.metrics.connected.Set(0)
}

// bad counts a message that could not be read, and logs the first one of its subject; of those of a newer slicecast,
// the first one at all.
func (b *Bus) bad(subject string, err error) {
	if errors.Is(err, ErrNewer) {
		b.metrics.newer.WithLabelValues(kindLabel(subject)).Inc()
		if b.first(ErrNewer.Error()) {
			b.log.Warn("messages of a newer slicecast are left alone", "subject", clip(subject), "err", err)
		}
		return
	}
	reason := refusalOf(err)
	b.metrics.bad.WithLabelValues(kindLabel(subject), reason).Inc()
	if b.first(subject) {
		b.log.Warn("bus message refused", "subject", clip(subject), "reason", reason, "err", err)
	}
}

// first reports whether text was not seen before. What it remembers is bounded.
func (b *Bus) first(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said[text] {
		return false
	}
	if len(b.said) >= saidKept {
		clear(b.said)
	}
	b.said[text] = true
	return true
}

// redacted is a list of URLs for the log, without passwords.
func redacted(urls []string) string {
	out := make([]string, 0, len(urls))
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			out = append(out, u.Redacted())
		}
	}
	return strings.Join(out, ",")
}
