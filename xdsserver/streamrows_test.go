package xdsserver

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// streamRows are the faults about streams that come, go, hang and share.
var streamRows = map[int]row{
	82:  {what: "streams that open and close race with pushes", run: rowStreamsRace},
	90:  {what: "each stream leaves a goroutine", run: rowStreamsLeaveNothing},
	111: {what: "one slow client holds up all", run: rowSlowClient},
	118: {what: "what streams are given changes under them", run: rowSharedWithReaders},
}

// streamsDuring opens streams, has each say what it wants, and ends them, while States change.
func streamsDuring(t *testing.T, b *bench, open func(*bench) *subscriber, streams int) {
	t.Helper()
	var changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.put(grpcCart(uint64(10+i), i%3 == 0, fmt.Sprintf("10.0.%d.%d", i/200%200, 1+i%200)))
			}
		}
	})
	for range streams {
		p := open(b)
		p.want("cds")
		p.want("eds", cart)
		for g := p.recv(); g.kind != "eds"; g = p.recv() {
			if p.delta != nil {
				p.ack(g)
			} else {
				p.accept(g, p.names[g.kind]...)
			}
		}
		p.cancel()
	}
	close(stop)
	changes.Wait()
}

// deaf opens a stream on a connection of its own that wants much and reads nothing.
func deaf(t *testing.T, b *bench, names []string) {
	t.Helper()
	own := &bench{t: t, server: b.server}
	own.dial()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = own.conn.Close()
	})
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(own.conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeAssignment, ResourceNames: names}); err != nil {
		t.Fatal(err)
	}
}

func rowStreamsRace(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	streamsDuring(t, b, open, 100)
}

func rowStreamsLeaveNothing(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	first := open(b)
	first.want("eds", cart)
	first.takes(cart, atOne)
	before := runtime.NumGoroutine()
	for range 1000 {
		p := open(b)
		p.want("eds", cart)
		p.takes(cart, atOne)
		p.cancel()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		b.server.hub.mu.Lock()
		streams := len(b.server.hub.streams)
		b.server.hub.mu.Unlock()
		more := runtime.NumGoroutine() - before
		if streams == 1 && more <= 10 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d streams and %d more goroutines after 1,000 streams", streams, more)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func rowSlowClient(t *testing.T, open func(*bench) *subscriber) {
	var states []endpoint.State
	var names []string
	for i := range 40 { // More than the windows of HTTP/2 take.
		st := bigService(1000).States[0]
		for j, sl := range st.Slices {
			st.Slices[j] = ofService(sl, "shop", fmt.Sprintf("big-%02d", i))
		}
		st.Key = st.Slices[0].Key
		states = append(states, st)
		names = append(names, fmt.Sprintf("big-%02d.shop:http", i))
	}
	b := serving(t, append(states, cartAt(7, "10.0.0.1"))...)
	deaf(t, b, append(names, cart))
	var others []*subscriber
	for range 20 {
		p := open(b)
		p.want("eds", cart)
		p.takes(cart, atOne)
		others = append(others, p)
	}
	for i := range 20 {
		at := fmt.Sprintf("10.0.3.%d", i)
		b.put(cartAt(uint64(10+i), at))
		for _, p := range others {
			p.takes(cart, "p0 / w1 "+at+":8080")
		}
	}
}

func rowSharedWithReaders(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	// Held by many, and looked at meanwhile.
	for range 20 {
		p := open(b)
		p.want("eds", cart)
		p.take("eds")
		go func() { // Takes what comes, until the stream ends.
			for g := range p.in {
				if !strings.HasPrefix(g.res[cart], "p0 / w1 10.0.") {
					t.Errorf("got %v", g.res)
				}
			}
		}()
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				b.server.hub.mu.Lock()
				n := len(b.server.hub.streams)
				b.server.hub.mu.Unlock()
				if n == 0 {
					t.Error("no stream")
				}
				runtime.Gosched()
			}
		}
	}()
	streamsDuring(t, b, open, 50)
	close(stop)
	<-done
}
