package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// DriverConfig is a constant load.
type DriverConfig struct {
	// Target takes the requests.
	Target netip.AddrPort
	// Rate is the number of requests a second. Default: 500.
	Rate int
	// HTTP2 speaks HTTP/2 (prior knowledge) instead of HTTP/1.1 with keep-alive.
	HTTP2 bool
	// Timeout bounds a request, connection included. Default: 5 s.
	Timeout time.Duration
	// MaxInFlight bounds the requests that are open at once; one that is due beyond it counts as not sent. Default: 1,000.
	MaxInFlight int
}

// A Driver sends requests at a constant rate, whatever happens to them (open loop), and counts each one once. It has no retries:
// a request is written to one connection at most.
type Driver struct {
	cfg      DriverConfig
	exchange func(context.Context) outcome
	close    func()

	mu     sync.Mutex
	result Result // Guarded by mu.
}

// NewDriver prepares a Driver; it can Run once.
func NewDriver(cfg DriverConfig) (*Driver, error) {
	if !cfg.Target.IsValid() {
		return nil, errors.New("new driver: no target given")
	}
	client := &httpClient{target: cfg.Target, conns: newConnections(cfg.Target, cfg.HTTP2)}
	return newDriver(cfg, client.exchange, client.conns.close)
}

func newDriver(cfg DriverConfig, exchange func(context.Context) outcome, closing func()) (*Driver, error) {
	cfg.Rate = orNumber(cfg.Rate, 500)
	cfg.Timeout = orNumber(cfg.Timeout, 5*time.Second)
	cfg.MaxInFlight = orNumber(cfg.MaxInFlight, 1000)
	if cfg.Rate < 1 {
		return nil, fmt.Errorf("new driver: rate %d", cfg.Rate)
	}
	return &Driver{cfg: cfg, exchange: exchange, close: closing}, nil
}

// Run sends until ctx ends, waits for the answers, and returns the count. A request is due every 1/rate seconds from the start
// on; one that could not be sent in time is sent late, never left out.
func (d *Driver) Run(ctx context.Context) Result {
	start := time.Now()
	interval := time.Second / time.Duration(d.cfg.Rate)
	var wg sync.WaitGroup
	slots := make(chan struct{}, d.cfg.MaxInFlight)
	timer := time.NewTimer(0)
	defer timer.Stop()
	sent := 0
	for running := true; running; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			running = false // What is due until now is still sent.
		}
		due := int(time.Since(start)/interval) + 1
		for ; sent < due; sent++ {
			select {
			case slots <- struct{}{}:
				wg.Go(func() { d.one(); <-slots })
			default:
				d.count(outcome{kind: NotSent})
			}
		}
		timer.Reset(time.Until(start.Add(time.Duration(sent) * interval)))
	}
	elapsed := time.Since(start)
	wg.Wait()
	d.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.result.Elapsed = elapsed
	return d.result
}

// Snapshot is the count so far: requests still open are not in it.
func (d *Driver) Snapshot() Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.result.clone()
}

func (d *Driver) count(o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.result.add(o)
}

// one sends one request. Its context is its own: the end of a Run stops the schedule, not the requests that were sent.
func (d *Driver) one() {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Timeout)
	defer cancel()
	o := d.exchange(ctx)
	o.took = time.Since(start)
	d.count(o)
}

// httpClient sends HTTP requests to one address.
type httpClient struct {
	target netip.AddrPort
	conns  *connections
}

func (c *httpClient) exchange(ctx context.Context) outcome {
	// A POST whose body cannot be had again: even a transport that retries would have to give up.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.target.String()+"/", io.NopCloser(strings.NewReader("?")))
	if err != nil {
		return outcome{kind: failureOf(err)}
	}
	req.ContentLength = 1
	conn, err := c.conns.take(ctx)
	if err != nil {
		return outcome{kind: failureOf(err)}
	}
	resp, err := conn.client.RoundTrip(req)
	if err != nil {
		c.conns.put(conn, false)
		return outcome{kind: failureOf(err)}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	c.conns.put(conn, err == nil)
	pod := resp.Header.Get(PodHeader)
	switch {
	case err != nil:
		return outcome{kind: failureOf(err), pod: pod}
	case resp.StatusCode != http.StatusOK:
		kind := fmt.Sprintf("status %d", resp.StatusCode)
		if flags := resp.Header.Get(flagsHeader); flags != "" && flags != "-" {
			kind += " " + flags
		}
		return outcome{kind: kind, pod: pod}
	}
	return outcome{kind: OK, pod: pod}
}

func failureOf(err error) string {
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout() {
		return TimedOut
	}
	return ConnectionError
}
