package gate

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/drainwait"
	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestDrainWaitReturnsAfterTheAcknowledgementAndTheLastRequest(t *testing.T) {
	f, _, base := served(t, nil)
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close() }()
	at8 := netip.MustParseAddrPort(app.Addr().String())
	proxy, err := net.Dial("tcp", app.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := app.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}

	here := at(cart, 7, "rs-", true)
	here.Addr, here.Ports = at8.Addr(), []endpoint.Port{{Name: "http", Number: at8.Port()}}
	gone := here
	gone.Version, gone.Conditions, gone.Used = version(8), endpoint.Serving|endpoint.Terminating, false
	f.show(here)
	s := f.connect("envoy-1", at8.String())

	var acknowledged, answered atomic.Bool
	looked := make(chan struct{})
	go func() {
		<-looked
		f.do(func() { f.show(gone); f.push(otherAddr) })
		time.Sleep(50 * time.Millisecond)
		acknowledged.Store(true)
		f.do(s.ack)
		time.Sleep(200 * time.Millisecond)
		answered.Store(true)
		_ = conn.Close()
		_ = proxy.Close()
	}()
	go func() {
		for n := 0; n == 0; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			n = f.looks
			f.mu.Unlock()
		}
		close(looked)
	}()
	o, err := drainwait.Run(t.Context(), drainwait.Config{
		URLs: []string{base}, Cluster: "prod", Namespace: "shop", Pod: "cart-1", UID: "u1", IPs: []netip.Addr{at8.Addr()},
		Timeout: 10 * time.Second, Linger: 9 * time.Second, Idle: time.Second, Grace: 30 * time.Second, FallbackWait: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !o.Answer.Drained || !acknowledged.Load() || !answered.Load() || o.Seen != 1 || len(o.Left) != 0 {
		t.Errorf("got %s (acknowledged %t, answered %t), want drained after both, with one connection done",
			o, acknowledged.Load(), answered.Load())
	}
}
