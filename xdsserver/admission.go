package xdsserver

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// loadHold is how long a stream may take for its first load before another one begins beside it: a client that does not
// read must not keep others waiting.
const loadHold = 2 * time.Second

// The causes for which the beginning of a stream is delayed.
const (
	delayRate = "rate"
	delayLoad = "load"
)

// admission spaces the beginnings of streams, so that a thousand clients that come back at once do not slow down those
// that are here: their number per second, and how many take their first load at a time.
type admission struct {
	streams *rate.Limiter
	loads   chan struct{} // one for each first load under way
	hold    time.Duration
	delayed *prometheus.CounterVec // label "cause"
}

func newAdmission(perSecond, loads int, delayed *prometheus.CounterVec) *admission {
	return &admission{
		streams: rate.NewLimiter(rate.Limit(perSecond), perSecond), loads: make(chan struct{}, loads), hold: loadHold, delayed: delayed,
	}
}

// enter waits until another stream may begin. It returns the error of ctx when that ends first.
func (a *admission) enter(ctx context.Context) error {
	if a.streams.Allow() {
		return nil
	}
	a.delayed.WithLabelValues(delayRate).Inc()
	return a.streams.Wait(ctx)
}

// load waits until another first load may begin, and gives what ends it. It returns the error of ctx when that ends
// first.
func (a *admission) load(ctx context.Context) (done func(), err error) {
	select {
	case a.loads <- struct{}{}:
	default:
		a.delayed.WithLabelValues(delayLoad).Inc()
		select {
		case a.loads <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var once sync.Once
	leave := func() { once.Do(func() { <-a.loads }) }
	late := time.AfterFunc(a.hold, leave)
	return func() {
		late.Stop()
		leave()
	}, nil
}
