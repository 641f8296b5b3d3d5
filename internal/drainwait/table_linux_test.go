package drainwait

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
)

// pair is one connection to a listener of the test, with both of its ends.
type pair struct{ client, server *net.TCPConn }

// listener gives a listener on address, its port, and a function that connects to it.
func listener(t *testing.T, address string) (uint16, func() pair) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	return port, func() pair {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p := pair{client.(*net.TCPConn), server.(*net.TCPConn)}
		t.Cleanup(func() { _, _ = p.client.Close(), p.server.Close() })
		return p
	}
}

func (p pair) peer() netip.AddrPort { return netip.MustParseAddrPort(p.client.LocalAddr().String()) }

func (p pair) request(t *testing.T) {
	t.Helper()
	send(t, p.client, p.server)
}

func (p pair) respond(t *testing.T) {
	t.Helper()
	send(t, p.server, p.client)
}

func send(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// readers are the two ways to read the kernel's table.
var readers = map[string]func([]uint16) ([]Conn, error){
	"sock_diag": readDiag,
	"proc":      func(ports []uint16) ([]Conn, error) { return readProc(os.DirFS("/proc/self/net"), ports) },
}

// eventually looks until ok holds: the kernel moves a segment when it likes to.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func find(t *testing.T, read func([]uint16) ([]Conn, error), port uint16, peer netip.AddrPort) (Conn, bool) {
	t.Helper()
	table, err := read([]uint16{port})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(table, func(c Conn) bool { return c.Remote == peer })
	if i < 0 {
		return Conn{}, false
	}
	return table[i], true
}

func TestTheTableShowsInboundConnectionsOfItsPortOnlyInBothFamilies(t *testing.T) {
	for name, read := range readers {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(name+" "+address, func(t *testing.T) {
				port, connect := listener(t, address)
				_, other := listener(t, address)
				p := connect()
				other()
				table, err := read([]uint16{port})
				if err != nil {
					t.Fatal(err)
				}
				want := netip.MustParseAddrPort(p.server.LocalAddr().String())
				if len(table) != 1 || table[0].Local != want || table[0].Remote != p.peer() || table[0].State != Established {
					t.Errorf("got %+v, want the one connection from %s to %s", table, p.peer(), want)
				}
			})
		}
	}
}

func TestAClientOfIPv4AtADualStackListenerIsShownWithItsPlainAddress(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "[::]:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			port := netip.MustParseAddrPort(l.Addr().String()).Port()
			client, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			// It is not accepted yet, and in use all the same.
			peer := netip.MustParseAddrPort(client.LocalAddr().String())
			if c, ok := find(t, read, port, peer); !ok || !c.Local.Addr().Is4() || !c.open() {
				t.Errorf("got %+v (%t), want the connection from %s", c, ok, peer)
			}
		})
	}
}

func TestAnIdleKeepAliveConnectionIsDoneAndOneWithARequestIsNot(t *testing.T) {
	port, connect := listener(t, "127.0.0.1:0")
	idle, busy, silent := connect(), connect(), connect()
	idle.request(t)
	// More than a tick of the kernel's clock, so that the ages tell which came last.
	time.Sleep(20 * time.Millisecond)
	idle.respond(t)
	busy.request(t)
	time.Sleep(20 * time.Millisecond)
	busy.respond(t)
	time.Sleep(20 * time.Millisecond)
	busy.request(t)

	const age = 100 * time.Millisecond
	for what, p := range map[string]pair{"answered": idle, "without a byte": silent} {
		eventually(t, what+" connection is done", func() bool {
			c, ok := find(t, readDiag, port, p.peer())
			return ok && c.done(age)
		})
	}
	eventually(t, "request is older than idle", func() bool {
		c, _ := find(t, readDiag, port, busy.peer())
		return min(c.LastRecv, c.LastSent) > age
	})
	if c, ok := find(t, readDiag, port, busy.peer()); !ok || c.done(age) {
		t.Errorf("a request is pending, got done: %+v", c)
	}
	if c, ok := find(t, readers["proc"], port, idle.peer()); !ok || c.done(0) {
		t.Errorf("the ages are unknown, got done: %+v", c)
	}
}

func TestARequestThatTheAppHasNotReadIsPending(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			port, connect := listener(t, "127.0.0.1:0")
			p := connect()
			if _, err := p.client.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "five bytes wait for the app", func() bool {
				c, ok := find(t, read, port, p.peer())
				return ok && c.Unread == 5 && !c.done(0)
			})
		})
	}
}

func TestAHalfClosedConnectionCountsOnlyWithBytesQueued(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			port, connect := listener(t, "127.0.0.1:0")
			// The client is done and gone from its side; the app has not noticed. The FIN alone is no byte.
			gone := connect()
			if err := gone.client.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "half-closed without bytes is not open", func() bool {
				c, ok := find(t, read, port, gone.peer())
				return ok && c.State == CloseWait && !c.open()
			})
			// The client half-closes behind its request: that request is not read yet.
			asked := connect()
			if _, err := asked.client.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := asked.client.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "half-closed with an unread request is open", func() bool {
				c, ok := find(t, read, port, asked.peer())
				return ok && c.State == CloseWait && c.Unread == 5 && c.open()
			})
			// The app has closed behind its response, which the client does not read.
			slow := connect()
			_ = slow.server.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			for _, err := slow.server.Write(make([]byte, 1<<20)); err == nil; {
				_, err = slow.server.Write(make([]byte, 1<<20))
			}
			if err := slow.server.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "closed by the app with bytes on their way is open", func() bool {
				c, ok := find(t, read, port, slow.peer())
				return ok && c.State == FinWait1 && c.Unsent > 0 && c.open()
			})
		})
	}
}

func FuzzMessagesOfSockDiagAreReadOrRefused(f *testing.F) {
	message := make([]byte, sizeMessage+4+232)
	message[0], message[1] = 2, byte(Established)
	message[sizeMessage], message[sizeMessage+2] = 236, extInfo
	f.Add(message)
	f.Add(message[:sizeMessage])
	f.Add(append(message[:sizeMessage:sizeMessage], 5, 0, 8, 0, 'x', 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseDiag(b); ok && (!c.Local.IsValid() || !c.Remote.IsValid()) {
			t.Errorf("%x: got %+v", b, c)
		}
	})
}
