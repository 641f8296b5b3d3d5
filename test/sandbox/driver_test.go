package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// drive runs a load of d against handler.
func drive(t *testing.T, cfg DriverConfig, d time.Duration) Result {
	t.Helper()
	driver, err := NewDriver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return driver.Run(within(t, d))
}

func serve(t *testing.T, handler http.HandlerFunc) netip.AddrPort {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

// checkTotal wants rate x time requests, within 1 %.
func checkTotal(t *testing.T, r Result, rate int) {
	t.Helper()
	want := r.Elapsed.Seconds() * float64(rate)
	if got := float64(r.Total()); got < want*0.99 || got > want*1.01+1 {
		t.Errorf("%d requests in %v at %d/s, want %.0f", r.Total(), r.Elapsed, rate, want)
	}
}

func TestTheDriverSendsRateTimesTimeOverBothProtocols(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			var seen, wrong atomic.Int64
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen.Add(1)
				if (r.ProtoMajor == 2) != http2 {
					wrong.Add(1)
				}
				w.Header().Set(PodHeader, "a")
			})
			r := drive(t, DriverConfig{Target: target, Rate: 400, HTTP2: http2}, 2*time.Second)
			checkTotal(t, r, 400)
			if r.Failed() != 0 || int(seen.Load()) != r.Total() || wrong.Load() != 0 || r.ByPod["a"] != r.Total() {
				t.Errorf("%v, by pod %v; the server saw %d, %d of another protocol", r, r.ByPod, seen.Load(), wrong.Load())
			}
		})
	}
}

func TestAServerThatStallsChangesNothingInTheScheduleAndWhatCannotBeSentIsAFailure(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	target := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	r := drive(t, DriverConfig{Target: target, Rate: 200, MaxInFlight: 50, Timeout: 3 * time.Second}, time.Second)
	checkTotal(t, r, 200)
	if r.Outcomes[TimedOut] != 50 || r.Outcomes[NotSent] != r.Total()-50 {
		t.Errorf("got %v, want 50 timeouts and the rest not sent", r)
	}
}

// cutter is a server that answers the first request of a connection and cuts the connection when the second one has arrived:
// the very case in which an http.Transport would send a request again.
func cutter(t *testing.T, seen *atomic.Int64) netip.AddrPort {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for n := 0; ; n++ {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					seen.Add(1)
					if n == 1 {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); wg.Wait() })
	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestTheDriverNeverSendsARequestTwice(t *testing.T) {
	var seen atomic.Int64
	r := drive(t, DriverConfig{Target: cutter(t, &seen), Rate: 100}, 2*time.Second)
	if int(seen.Load()) != r.Total() {
		t.Errorf("the server saw %d requests, the driver counts %d", seen.Load(), r.Total())
	}
	if cut := r.Outcomes[ConnectionError]; cut < r.Total()/3 || cut != r.Failed() {
		t.Errorf("got %v, want about half of them cut", r)
	}
}

func TestATransportWouldHideWhatTheDriverCounts(t *testing.T) {
	// The control of the test above: net/http's own client sends such a request again and reports success.
	var seen atomic.Int64
	target := cutter(t, &seen)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 10 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_ = resp.Body.Close()
	}
	if seen.Load() <= 10 {
		t.Errorf("the server saw %d requests, so nothing was sent again and the driver's own test proves nothing", seen.Load())
	}
}

func TestOutcomesAreCountedByKind(t *testing.T) {
	var n atomic.Int64
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 3 {
		case 0:
			w.Header().Set(flagsHeader, "UF")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			panic(http.ErrAbortHandler)
		}
	})
	for _, http2 := range []bool{false, true} {
		r := drive(t, DriverConfig{Target: target, Rate: 300, HTTP2: http2}, time.Second)
		third := r.Total() / 3
		for _, kind := range []string{OK, ConnectionError, "status 503 UF"} {
			if got := r.Outcomes[kind]; got < third*9/10 || got > third*11/10+1 {
				t.Errorf("http2=%v: %d of kind %q in %v, want about %d", http2, got, kind, r.Outcomes, third)
			}
		}
	}
}

func TestNobodyListeningIsAConnectionErrorForEachRequest(t *testing.T) {
	r := drive(t, DriverConfig{Target: netip.MustParseAddrPort("127.0.0.1:1"), Rate: 200}, time.Second)
	checkTotal(t, r, 200)
	if r.Outcomes[ConnectionError] != r.Total() {
		t.Errorf("got %v, want only connection errors", r)
	}
}
