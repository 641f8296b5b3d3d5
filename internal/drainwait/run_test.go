package drainwait

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// says is a drain gate that answers the same to everybody.
func says(t *testing.T, code int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// hangs is a drain gate that never answers.
func hangs(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(s.Close)
	return s.URL
}

// nobody is the address of no drain gate.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return "http://" + l.Addr().String()
}

func drained(port uint16) string {
	return fmt.Sprintf(`{"drained":true,"reason":"acknowledged","services":[{"number":%d}],"waited_ms":{"seen":12,"acknowledged":3}}`, port)
}

// config is a Config with short bounds.
func config(urls ...string) Config {
	return Config{
		URLs: urls, UID: "u1", Timeout: 5 * time.Second, Linger: 4 * time.Second, Idle: time.Second,
		Grace: 30 * time.Second, Reserve: 10 * time.Second, FallbackWait: -1,
	}
}

func run(t *testing.T, c Config) Outcome {
	t.Helper()
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestABusyConnectionIsWaitedForUntilItCloses(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	busy := connect()
	busy.request(t)
	var closed atomic.Bool
	go func() {
		time.Sleep(300 * time.Millisecond)
		closed.Store(true)
		_ = busy.server.Close()
		_ = busy.client.Close()
	}()
	o := run(t, config(says(t, 200, drained(port))))
	if !closed.Load() || o.Seen != 1 || len(o.Left) != 0 {
		t.Errorf("got %s (closed %t), want one connection waited for", o, closed.Load())
	}
}

func TestAConnectionThatStaysBusyIsWaitedForUntilLingerOnly(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	busy := connect()
	busy.request(t)
	c := config(says(t, 200, drained(port)))
	c.Linger = 300 * time.Millisecond
	o := run(t, c)
	if o.Took < c.Linger || o.Took >= c.Timeout || len(o.Left) != 1 || o.Left[0].Remote != busy.peer() {
		t.Errorf("got %s, want the one connection left after %s", o, c.Linger)
	}
}

func TestAnIdleConnectionIsNotWaitedForUntilItCloses(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	idle := connect()
	idle.request(t)
	time.Sleep(20 * time.Millisecond)
	idle.respond(t)
	c := config(says(t, 200, drained(port)))
	c.Idle = 200 * time.Millisecond
	if o := run(t, c); o.Seen != 1 || len(o.Left) != 0 || o.Took >= c.Linger {
		t.Errorf("got %s, want the idle connection done before %s", o, c.Linger)
	}
}

func TestAConnectionMadeAfterTheFirstLookIsNotWaitedFor(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	busy := connect()
	busy.request(t)
	c := config(says(t, 200, drained(port)))
	looks := 0
	c.Table = func(ports []uint16) ([]Conn, error) {
		table, err := readTable(ports)
		// The first look chooses the settle time, the second takes the connections.
		if looks++; looks == 2 {
			connect().request(t)
			_ = busy.server.Close()
			_ = busy.client.Close()
		}
		return table, err
	}
	if o := run(t, c); o.Seen != 1 || len(o.Left) != 0 || o.Took >= c.Linger {
		t.Errorf("got %s, want the later connection left out", o)
	}
}

func TestConnectionsOfOtherAddressesAndPortsAreNotWaitedFor(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	_, other := listener(t, "127.0.0.1:0")
	connect().request(t)
	other().request(t)
	c := config(says(t, 200, drained(port)))
	c.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	if o := run(t, c); o.Seen != 0 || len(o.Left) != 0 {
		t.Errorf("got %s, want none of them", o)
	}
}

func TestWithoutConnectionsItSettlesLonger(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	none := run(t, config(says(t, 200, drained(port))))
	busy := connect()
	busy.request(t)
	c := config(says(t, 200, drained(port)))
	c.Table = func(ports []uint16) ([]Conn, error) {
		defer func() { _, _ = busy.client.Close(), busy.server.Close() }()
		return readTable(ports)
	}
	some := run(t, c)
	if rest := none.Took - none.Asked; rest < settleNone {
		t.Errorf("without connections: settled %s, want at least %s", rest, settleNone)
	}
	if rest := some.Took - some.Asked; rest < settleSeen {
		t.Errorf("with connections: settled %s, want at least %s", rest, settleSeen)
	}
}

func TestConnectionsThatCloseWhileTheGateIsAskedCountAsSeen(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	idle := connect()
	c := config(says(t, 200, drained(port)))
	c.Ports = []uint16{port}
	c.Table = func(ports []uint16) ([]Conn, error) {
		defer func() { _, _ = idle.client.Close(), idle.server.Close() }()
		return readTable(ports)
	}
	if o := run(t, c); o.Took-o.Asked >= settleNone || o.Took-o.Asked < settleSeen {
		t.Errorf("settled %s after the answer, want from %s to below %s", o.Took-o.Asked, settleSeen, settleNone)
	}
}

func TestAPodThatIsNotDrainedIsNotLingeredFor(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	connect().request(t)
	c := config(says(t, 200, `{"drained":false,"reason":"not-leaving","services":[{"number":`+fmt.Sprint(port)+`}]}`))
	c.Table = func([]uint16) ([]Conn, error) { t.Error("the table is read"); return nil, nil }
	run(t, c)
}

func TestTheBudgetHoldsWhateverTheGateDoes(t *testing.T) {
	garbage := says(t, 200, "<html>It works!</html>")
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}))
	t.Cleanup(slow.Close)
	// It accepts a connection and never reads.
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	for name, urls := range map[string][]string{
		"gone":    {nobody(t)},
		"hanging": {hangs(t)},
		"deaf":    {"http://" + deaf.Addr().String()},
		"slow":    {slow.URL},
		"garbage": {garbage},
		"busy":    {says(t, 429, "too many drain waits are open\n")},
		"all":     {hangs(t), garbage, nobody(t), slow.URL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(urls...)
			c.Timeout = 700 * time.Millisecond
			done := make(chan Outcome, 1)
			go func() { done <- run(t, c) }()
			select {
			case o := <-done:
				if o.AskErr == nil || o.Took < c.Timeout-answerWay {
					t.Errorf("got %s, want no answer and the whole budget waited", o)
				}
			case <-time.After(c.Timeout + 10*time.Second):
				t.Fatal("it hangs")
			}
		})
	}
}

func TestTheNextGateIsAskedWhenOneFailsOrIsSilent(t *testing.T) {
	for name, first := range map[string]string{
		"gone": nobody(t), "hanging": hangs(t), "ending": says(t, 503, "the replica ends\n"), "garbage": says(t, 200, "{}"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := run(t, config(first, says(t, 200, `{"drained":true,"reason":"no-service"}`)))
			if o.AskErr != nil || o.Answer.Reason != "no-service" {
				t.Errorf("got %s, want the answer of the second", o)
			}
		})
	}
}

func TestAGateThatComesBackIsAskedAgain(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"drained":true,"reason":"no-service"}`))
	}))
	t.Cleanup(s.Close)
	if o := run(t, config(s.URL)); o.AskErr != nil || asked.Load() != 3 {
		t.Errorf("got %s after %d questions, want an answer to the third", o, asked.Load())
	}
}

func TestTheQuestionNamesThePodAndLeavesTimeForTheAnswer(t *testing.T) {
	got := make(chan map[string][]string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.URL.Query()
		_, _ = w.Write([]byte(`{"drained":true,"reason":"no-service"}`))
	}))
	t.Cleanup(s.Close)
	c := config(s.URL + "/")
	c.Cluster, c.Namespace, c.Pod = "prod", "shop", "cart-1"
	c.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	c.IgnoreSilent, c.FallbackWait = time.Minute, 0
	run(t, c)
	q := <-got
	timeout, err := time.ParseDuration(q["timeout"][0])
	if err != nil || timeout > c.Timeout-answerWay || timeout < c.Timeout/2 {
		t.Errorf("got timeout %v (%v), want a little less than %s", q["timeout"], err, c.Timeout)
	}
	delete(q, "timeout")
	want := map[string][]string{
		"cluster": {"prod"}, "namespace": {"shop"}, "pod": {"cart-1"}, "uid": {"u1"}, "ip": {"10.0.0.1,fd00::1"},
		"ignore-silent": {"1m0s"}, "fallback-wait": {"0s"},
	}
	if diff := cmp.Diff(want, q); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
}

// command runs Main and gives its lines with the times replaced.
func command(t *testing.T, ctx context.Context, env map[string]string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if code := Main(ctx, args, lookup, &out, &errs); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	text := errs.String() + out.String()
	text = regexp.MustCompile(`(asked|took) [0-9.]+m?s`).ReplaceAllString(text, "$1 T")
	return regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).ReplaceAllString(text, "HOST")
}

func TestTheLinesOfTheCommand(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	connect().request(t)
	missing := `{"drained":false,"reason":"unacknowledged","missing":[` +
		strings.Repeat(`{"node":"envoy-1","address":"192.0.2.1:5000"},`, 6) + `{"node":"e","address":"a"}],"waited_ms":{"seen":12,"acknowledged":14800}}`
	identity := map[string]string{"POD_UID": "u1", "POD_IPS": "127.0.0.1", "POD_NAME": "cart-1", "POD_NAMESPACE": "shop"}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	drainedURL := says(t, 200, drained(port))
	for name, c := range map[string]struct {
		ctx  context.Context
		env  map[string]string
		args []string
		want string
	}{
		"left": {args: []string{"--url", drainedURL, "--linger", "100ms"}, want: "drain-wait: drained: acknowledged; 1 of 1 connections still in use, from HOST " +
			"(a proxy that goes on sending may have active health checks without ignore_health_on_host_removal); asked T (seen 12ms, acknowledged 3ms), took T\n"},
		"done": {args: []string{"--url", drainedURL, "--ip", "10.0.0.1"}, want: "drain-wait: drained: acknowledged; 0 connections done; asked T (seen 12ms, acknowledged 3ms), took T\n"},
		"no port": {args: []string{"--url", says(t, 200, `{"drained":true,"reason":"no-service"}`)},
			want: "drain-wait: drained: no-service; connections not looked at: no port is known; asked T (seen 0ms, acknowledged 0ms), took T\n"},
		"missing": {args: []string{"--url", says(t, 200, missing)}, want: `drain-wait: not drained: unacknowledged, missing ` +
			strings.Repeat(`"envoy-1" at 192.0.2.1:5000, `, 4) + `"envoy-1" at 192.0.2.1:5000 and 2 more; asked T (seen 12ms, acknowledged 14800ms), took T` + "\n"},
		"gone": {args: []string{"--url", nobody(t), "--timeout", "200ms"},
			want: "drain-wait: not drained: no drain gate has answered: http://HOST: dial tcp HOST: connect: connection refused; asked T, took T\n"},
		"stopped": {ctx: cancelled, args: []string{"--url", hangs(t)},
			want: "drain-wait: not drained: stopped before a drain gate has answered: no time to ask; asked T, took T\n"},
		"refused budget": {env: map[string]string{"SLICECAST_TIMEOUT": "1h", "SLICECAST_GRACE": "10200ms", "POD_UID": "u1"}, args: []string{"--url", hangs(t)},
			want: "drain-wait: --timeout 1h0m0s is refused: --grace 10.2s minus --reserve 10s leaves 200ms, which is used\n" +
				"drain-wait: not drained: no drain gate has answered: http://HOST: silent; asked T, took T\n"},
		"no grace": {args: []string{"--url", drainedURL, "--grace", "5s"},
			want: "drain-wait: --timeout 15s is refused: --grace 5s minus --reserve 10s leaves 0s, which is used\n" +
				"drain-wait: not drained: no drain gate has answered: no time to ask; asked T, took T\n"},
		"bad flag":        {args: []string{"--tiemout", "1s"}, want: "drain-wait: not asked: flag provided but not defined: -tiemout\n"},
		"bad value":       {args: []string{"--port", "http"}, want: "drain-wait: not asked: invalid value \"http\" for flag -port: \"http\" is not a port\n"},
		"bad environment": {env: map[string]string{"SLICECAST_IDLE": "x"}, want: "drain-wait: not asked: environment variable SLICECAST_IDLE: parse error\n"},
		"bad address":     {env: map[string]string{"POD_IP": "me"}, want: "drain-wait: not asked: environment variable POD_IP: \"me\" is not an address\n"},
		"bad url":         {args: []string{"--url", "slicecast:18081"}, want: "drain-wait: not asked: --url: \"slicecast:18081\" is not an http:// or https:// address\n"},
		"argument":        {args: []string{"now"}, want: "drain-wait: not asked: unexpected argument \"now\"\n"},
		"no pod":          {env: map[string]string{"POD_NAME": "cart-1"}, want: "drain-wait: not asked: --uid and --ip are missing: set POD_UID and POD_IP by the downward API\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.ctx == nil {
				c.ctx = context.Background()
			}
			if c.env == nil {
				c.env = identity
			}
			if diff := cmp.Diff(c.want, command(t, c.ctx, c.env, c.args...)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlagsBeatTheEnvironmentWhichBeatsTheDownwardNames(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		got <- strings.Join([]string{q.Get("namespace"), q.Get("pod"), q.Get("uid"), q.Get("ip")}, " ")
		_, _ = w.Write([]byte(`{"drained":true,"reason":"no-service"}`))
	}))
	t.Cleanup(s.Close)
	env := map[string]string{
		"POD_NAMESPACE": "n0", "POD_NAME": "p0", "POD_UID": "u0", "POD_IP": "10.0.0.9", "POD_IPS": "10.0.0.1,fd00::1",
		"SLICECAST_POD": "p1", "SLICECAST_UID": "u1", "SLICECAST_URL": s.URL,
	}
	command(t, t.Context(), env, "--uid", "u2")
	if q := <-got; q != "n0 p1 u2 10.0.0.1,fd00::1" {
		t.Errorf("got %q", q)
	}
}
