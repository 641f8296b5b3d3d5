package drainwait

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Answer is what a drain gate says, as far as it matters here.
type Answer struct {
	Drained  bool      `json:"drained"`
	Reason   string    `json:"reason"`
	Missing  []Proxy   `json:"missing"`
	Services []Service `json:"services"`
	WaitedMS struct {
		Seen         int64 `json:"seen"`
		Acknowledged int64 `json:"acknowledged"`
	} `json:"waited_ms"`
	Mode string `json:"mode"`
}

// Proxy is one stream of a proxy in an Answer.
type Proxy struct {
	Node    string `json:"node"`
	Address string `json:"address"`
}

// Service is one service port of the pod in an Answer.
type Service struct {
	Number uint16 `json:"number"` // the target port
}

const (
	answerLimit = 4 << 20                // bytes of an answer
	answerWay   = 100 * time.Millisecond // left for the way of an answer that comes when the time is up
	retryFirst  = 100 * time.Millisecond
	retryMost   = time.Second
	// hedgeAfter is when a gate that is silent gets company: it may be waiting as it should, or hang. Two waits of
	// one pod do no harm, and a gate that hangs must not use up the budget while another could answer.
	hedgeAfter = time.Second
)

// errNoTime is the error of a gate that was not asked, because its answer would come too late.
var errNoTime = errors.New("no time to ask")

// gateURL is one drain gate that is asked.
type gateURL struct {
	base  string
	busy  bool
	due   time.Time // not to be asked before
	pause time.Duration
}

type reply struct {
	from   *gateURL
	answer Answer
	err    error
}

// ask asks the gates in turn until one has answered or ctx, which has a deadline, ends. The error then tells what the
// last one said that failed.
func ask(ctx context.Context, c *Config) (Answer, error) {
	if ctx.Err() != nil {
		return Answer{}, errNoTime
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // One question each; and no proxy of the environment stands between.
		DialContext:       (&net.Dialer{Timeout: hedgeAfter}).DialContext,
	}}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	gates := make([]*gateURL, 0, len(c.URLs))
	for _, u := range c.URLs {
		gates = append(gates, &gateURL{base: strings.TrimRight(u, "/"), pause: retryFirst})
	}
	replies := make(chan reply, len(gates))
	last := errNoTime
	turn, asked := 0, time.Time{}
	for {
		now := time.Now()
		next, at := choose(gates, turn, asked.Add(hedgeAfter))
		if next >= 0 && !now.Before(at) {
			g := gates[next]
			g.busy, turn, asked = true, next+1, now
			running.Go(func() {
				a, err := askOne(ctx, client, c, g.base)
				replies <- reply{g, a, err}
			})
			continue
		}
		timer := time.NewTimer(time.Until(at))
		if next < 0 {
			timer.Stop()
		}
		select {
		case r := <-replies:
			timer.Stop()
			if r.err == nil {
				return r.answer, nil
			}
			if ctx.Err() == nil && !errors.Is(r.err, errNoTime) {
				last = r.err
			}
			r.from.busy, r.from.due = false, time.Now().Add(r.from.pause)
			r.from.pause = min(2*r.from.pause, retryMost)
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Answer{}, silence(gates, last)
		}
	}
}

// silence gives the error of a time that is up: the last one that a gate gave, or which gates have given none.
func silence(gates []*gateURL, last error) error {
	if !errors.Is(last, errNoTime) {
		return last
	}
	var silent []string
	for _, g := range gates {
		if g.busy {
			silent = append(silent, g.base)
		}
	}
	if len(silent) == 0 {
		return last
	}
	return errors.New(strings.Join(silent, ", ") + ": silent")
}

// choose gives the gate to ask next and when: the first one due in turn when none is busy, else company for it from
// hedge on. It gives -1 when all are busy.
func choose(gates []*gateURL, turn int, hedge time.Time) (next int, at time.Time) {
	next = -1
	busy := false
	for i := range gates {
		n := (turn + i) % len(gates)
		if gates[n].busy {
			busy = true
		} else if next < 0 || gates[n].due.Before(at) {
			next, at = n, gates[n].due
		}
	}
	if busy && hedge.After(at) {
		at = hedge
	}
	return next, at
}

// askOne asks one gate once.
func askOne(ctx context.Context, client *http.Client, c *Config, base string) (Answer, error) {
	var a Answer
	deadline, _ := ctx.Deadline()
	timeout := (time.Until(deadline) - answerWay).Truncate(time.Millisecond)
	if timeout <= 0 {
		return a, errNoTime
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/drain?"+c.question(timeout).Encode(), nil)
	if err != nil {
		return a, err
	}
	response, err := client.Do(request)
	if err != nil {
		return a, short(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return a, fmt.Errorf("%s: %w", base, err)
	}
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s: %s", base, response.Status, oneLine(body))
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Reason == "" {
		return a, fmt.Errorf("%s: not the answer of a drain gate: %s", base, oneLine(body))
	}
	return a, nil
}

func (c *Config) question(timeout time.Duration) url.Values {
	q := url.Values{"timeout": {timeout.String()}}
	for name, value := range map[string]string{
		"cluster": c.Cluster, "namespace": c.Namespace, "pod": c.Pod, "uid": c.UID, "ip": joined(c.IPs),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.IgnoreSilent > 0 {
		q.Set("ignore-silent", c.IgnoreSilent.String())
	}
	if c.FallbackWait >= 0 {
		q.Set("fallback-wait", c.FallbackWait.String())
	}
	return q
}

func joined(addrs []netip.Addr) string { return addrsValue{&addrs}.String() }

// short leaves the long question out of an error of the client.
func short(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		if base, _, ok := strings.Cut(u.URL, "/v1/drain?"); ok {
			return fmt.Errorf("%s: %w", base, u.Err)
		}
	}
	return err
}

// oneLine makes foreign text fit into a line.
func oneLine(text []byte) string {
	const limit = 120
	line := strings.Join(strings.Fields(strings.ToValidUTF8(string(text[:min(len(text), 4*limit)]), "?")), " ")
	if len(line) > limit {
		return line[:limit] + "..."
	}
	return line
}
