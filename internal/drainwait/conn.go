package drainwait

import (
	"net/netip"
	"slices"
	"time"
)

// TCPState is the kernel's number of a TCP state.
type TCPState uint8

// The states in which a connection may still carry something.
const (
	Established TCPState = 1
	FinWait1    TCPState = 4
	CloseWait   TCPState = 8
	LastAck     TCPState = 9
	Closing     TCPState = 11
)

// carries reports whether a connection in state s may still carry something.
func (s TCPState) carries() bool {
	switch s {
	case Established, FinWait1, CloseWait, LastAck, Closing:
		return true
	default:
		return false
	}
}

// Conn is one TCP connection as the kernel's table has it.
type Conn struct {
	Local, Remote netip.AddrPort
	State         TCPState
	Cookie        uint64 // the kernel's name of the socket; 0 when the table does not tell
	Inode         uint32 // of the socket; 0 until the app has accepted it
	Unread        uint32 // bytes received that the app has not read
	Unsent        uint32 // bytes written by the app that the peer has not acknowledged

	Timed    bool          // the table tells what follows
	LastRecv time.Duration // age of the last data received, of the connection when there was none
	LastSent time.Duration // age of the last data sent, of the connection when there was none
	LastAck  time.Duration // age of the last segment received that acknowledges
	Received uint64        // bytes of data received
}

// id names a connection: an address may be used again by another one.
type id struct {
	local, remote netip.AddrPort
	socket        uint64
}

func (c Conn) id() id {
	if c.Cookie != 0 {
		return id{c.Local, c.Remote, c.Cookie}
	}
	return id{c.Local, c.Remote, uint64(c.Inode)}
}

// open reports whether c may still carry something: it is established, or one side has closed and bytes are queued.
func (c Conn) open() bool {
	return c.State.carries() && (c.State == Established || c.Unread > 0 || c.Unsent > 0)
}

// delayedAck is the longest that a peer with nothing to send waits before it acknowledges data.
const delayedAck = 250 * time.Millisecond

// done reports whether c has nothing pending and has carried no byte for idle: it never carried a request, or the
// last data moved was ours. Ages are in ticks of the kernel's clock, up to 10 ms: when the last data came and went in
// one tick, they do not tell which was last. Then an acknowledgement that came alone, shortly after, tells that ours
// was; without it c counts as pending.
func (c Conn) done(idle time.Duration) bool {
	if !c.Timed || c.Unread > 0 || c.Unsent > 0 || min(c.LastRecv, c.LastSent) < idle {
		return false
	}
	if c.Received == 0 || c.LastSent < c.LastRecv {
		return true
	}
	alone := c.LastRecv - c.LastAck
	return c.LastSent == c.LastRecv && alone > 0 && alone <= delayedAck
}

// inbound gives the open connections to one of the ports at one of the addresses (all, when there are none).
func inbound(table []Conn, ips []netip.Addr, ports []uint16) []Conn {
	return slices.DeleteFunc(slices.Clone(table), func(c Conn) bool {
		return !c.open() || !slices.Contains(ports, c.Local.Port()) || len(ips) > 0 && !slices.Contains(ips, c.Local.Addr())
	})
}

// remaining gives those of first that table still has and that are neither closed nor done, as table has them. It
// takes none that is not in first.
func remaining(first, table []Conn, idle time.Duration) []Conn {
	now := make(map[id]Conn, len(table))
	for _, c := range table {
		now[c.id()] = c
		if c.Cookie == 0 && c.Inode != 0 {
			// The app may have accepted it since: then it had no inode when it was seen first.
			now[id{c.Local, c.Remote, 0}] = c
		}
	}
	var left []Conn
	for _, c := range first {
		if n, ok := now[c.id()]; ok && n.open() && !n.done(idle) {
			left = append(left, n)
		}
	}
	return left
}
