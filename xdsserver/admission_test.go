package xdsserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMoreStreamsThanTheRateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(nil, nil)
		must(t, err)
		a := newAdmission(10, 1, m.delayed)
		start := time.Now()
		for range 20 {
			must(t, a.enter(t.Context()))
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("20 streams at 10 a second and a burst of 10 took %s, want 1s", took)
		}
		if n := counter(t, m.delayed.WithLabelValues(delayRate)); n != 10 {
			t.Errorf("%v were counted as delayed, want 10", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a stream that has ended waits: %v", err)
		}
	})
}

func TestAFirstLoadThatDoesNotEndLetsOthersBeginAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(nil, nil)
		must(t, err)
		a := newAdmission(10, 2, m.delayed)
		start := time.Now()
		stuck, err := a.load(t.Context())
		must(t, err)
		quick, err := a.load(t.Context())
		must(t, err)
		time.AfterFunc(time.Second, quick)
		third, err := a.load(t.Context())
		must(t, err)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the third began after %s, want 1s, when the second ended", took)
		}
		fourth, err := a.load(t.Context())
		must(t, err)
		if took := time.Since(start); took != loadHold {
			t.Errorf("the fourth began after %s, want %s, when the first had its time", took, loadHold)
		}
		stuck()
		third()
		fourth()
		fourth()
		if n := len(a.loads); n != 0 {
			t.Errorf("%d loads are under way, want none", n)
		}
	})
}

func TestAStoppingReplicaServesItsStreamsWhileTheyEndOneByOne(t *testing.T) {
	b := newBench(t, func(c *Config) { c.DrainSpread, c.StopTimeout = 3*time.Second, 30*time.Second })
	b.with(cartAt(7, "10.0.0.1"))
	clients := make([]*client, 20)
	for i := range clients {
		clients[i] = b.deltaClient()
		clients[i].subscribe("eds", nil, cart)
		clients[i].expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
	}
	b.stop()
	b.put(cartAt(8, "10.0.0.2"))
	served := 0
	for _, c := range clients {
		for g := range c.in {
			if g.res[cart] == "p0 / w1 10.0.0.2:8080" {
				served++
			}
		}
		if err := <-c.err; status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v, want Unavailable", err)
		}
	}
	if served == 0 {
		t.Error("no stream was served a change while the replica was stopping")
	}
}

func TestAConnectionEndsWhenItIsOldAndItsClientComesBack(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxStreamAge, c.DrainSpread = 200*time.Millisecond, 100*time.Millisecond })
	b.with(cartAt(7, "10.0.0.1"))
	for range 2 {
		c := b.deltaClient()
		c.subscribe("eds", nil, cart)
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"})
		if err := c.end(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v, want Unavailable", err)
		}
	}
}
