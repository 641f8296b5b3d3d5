package drainwait

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var addrs = cmpopts.EquateComparable(netip.AddrPort{})

func TestAConnectionIsDoneOnlyWhenTheLastDataWasOursAndIsOld(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for what, c := range map[string]struct {
		conn Conn
		want bool
	}{
		"response after request":                   {Conn{Timed: true, Received: 9, LastRecv: 3 * s, LastSent: 2 * s}, true},
		"request after response":                   {Conn{Timed: true, Received: 9, LastRecv: 2 * s, LastSent: 3 * s}, false},
		"response too young":                       {Conn{Timed: true, Received: 9, LastRecv: 3 * s, LastSent: 999 * ms}, false},
		"bytes to read":                            {Conn{Timed: true, Received: 9, LastRecv: 3 * s, LastSent: 2 * s, Unread: 1}, false},
		"bytes on their way":                       {Conn{Timed: true, Received: 9, LastRecv: 3 * s, LastSent: 2 * s, Unsent: 1}, false},
		"ages unknown":                             {Conn{Received: 9, LastRecv: 3 * s, LastSent: 2 * s}, false},
		"never a byte":                             {Conn{Timed: true, LastRecv: 2 * s, LastSent: 2 * s}, true},
		"never a byte, young":                      {Conn{Timed: true, LastRecv: 9 * ms, LastSent: 9 * ms}, false},
		"one tick, nothing tells":                  {Conn{Timed: true, Received: 9, LastRecv: 2 * s, LastSent: 2 * s, LastAck: 2 * s}, false},
		"one tick, acknowledged alone":             {Conn{Timed: true, Received: 9, LastRecv: 2 * s, LastSent: 2 * s, LastAck: 1960 * ms}, true},
		"one tick, a probe was acknowledged later": {Conn{Timed: true, Received: 9, LastRecv: 20 * s, LastSent: 20 * s, LastAck: 5 * s}, false},
	} {
		if got := c.conn.done(s); got != c.want {
			t.Errorf("%s: got %t, want %t", what, got, c.want)
		}
	}
}

func TestAConnectionIsKnownByItsSocketNotByItsAddresses(t *testing.T) {
	local, remote := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:5000")
	conn := func(cookie uint64, inode uint32) Conn {
		return Conn{Local: local, Remote: remote, State: Established, Cookie: cookie, Inode: inode}
	}
	for what, c := range map[string]struct {
		first, now Conn
		want       int
	}{
		"the same":                           {conn(7, 1), conn(7, 1), 1},
		"accepted since":                     {conn(7, 0), conn(7, 1), 1},
		"another one":                        {conn(7, 1), conn(8, 2), 0},
		"without cookies, the same":          {conn(0, 1), conn(0, 1), 1},
		"without cookies, accepted since":    {conn(0, 0), conn(0, 1), 1},
		"without cookies, another one":       {conn(0, 1), conn(0, 2), 0},
		"without cookies, not accepted ever": {conn(0, 0), conn(0, 0), 1},
	} {
		if got := remaining([]Conn{c.first}, []Conn{c.now}, time.Second); len(got) != c.want {
			t.Errorf("%s: got %v, want %d", what, got, c.want)
		}
	}
}

const procLines = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 96465 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0200007F:9366 01 00000000:00000005 00:00000000 00000000     0        0 96470 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:1F90 0300007F:9367 08 00000000:00000001 00:00000000 00000000     0        0 96471 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:0050 0200007F:9368 01 00000000:00000000 00:00000000 00000000     0        0 96472 1 0000000000000000 20 4 30 10 -1
`

func TestTheLinesOfProcAreRead(t *testing.T) {
	got, err := parseProc(strings.NewReader(procLines), []uint16{8080})
	if err != nil {
		t.Fatal(err)
	}
	want := []Conn{
		{Local: netip.MustParseAddrPort("127.0.0.1:8080"), Remote: netip.MustParseAddrPort("127.0.0.2:37734"), State: Established, Inode: 96470, Unread: 5},
		{Local: netip.MustParseAddrPort("127.0.0.1:8080"), Remote: netip.MustParseAddrPort("127.0.0.3:37735"), State: CloseWait, Inode: 96471},
	}
	if diff := cmp.Diff(want, got, addrs); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}

func FuzzLinesOfProcAreReadOrRefused(f *testing.F) {
	for line := range strings.Lines(procLines) {
		f.Add(line)
	}
	f.Add("0: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000001000000:0000 01 00:00 0 0 0 0 1")
	f.Fuzz(func(t *testing.T, line string) {
		if c, err := parseProcLine(line); err == nil && (!c.Local.IsValid() || !c.Remote.IsValid()) {
			t.Errorf("%q: got %+v without an error", line, c)
		}
	})
}
