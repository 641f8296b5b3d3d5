package drainwait

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// readProc gives the connections with one of the local ports from the files tcp and tcp6 of /proc/self/net. They tell
// neither ages nor cookies. A file that does not exist is a family that the kernel does not have.
func readProc(dir fs.FS, ports []uint16) ([]Conn, error) {
	var conns []Conn
	found := 0
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := dir.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := parseProc(f, ports)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s of /proc/self/net: %w", name, err)
		}
		conns = append(conns, more...)
		found++
	}
	if found == 0 {
		return nil, errors.New("/proc/self/net has no table of TCP connections")
	}
	return conns, nil
}

// parseProc reads the lines of such a file.
func parseProc(r io.Reader, ports []uint16) ([]Conn, error) {
	var conns []Conn
	lines := bufio.NewScanner(r)
	for first := true; lines.Scan(); first = false {
		if first {
			continue // The heading.
		}
		c, err := parseProcLine(lines.Text())
		if err != nil {
			return nil, err
		}
		if c.State.carries() && slices.Contains(ports, c.Local.Port()) {
			conns = append(conns, c)
		}
	}
	return conns, lines.Err()
}

func parseProcLine(line string) (c Conn, err error) {
	// sl local remote state tx:rx timer:when retransmits uid timeout inode ...
	f := strings.Fields(line)
	if len(f) < 10 {
		return c, fmt.Errorf("line %q has %d fields", line, len(f))
	}
	if c.Local, err = procAddr(f[1]); err != nil {
		return c, err
	}
	if c.Remote, err = procAddr(f[2]); err != nil {
		return c, err
	}
	state, err := strconv.ParseUint(f[3], 16, 8)
	if err != nil {
		return c, fmt.Errorf("state %q: %w", f[3], err)
	}
	c.State = TCPState(state)
	tx, rx, _ := strings.Cut(f[4], ":")
	unsent, errTx := strconv.ParseUint(tx, 16, 32)
	unread, errRx := strconv.ParseUint(rx, 16, 32)
	inode, errInode := strconv.ParseUint(f[9], 10, 32)
	if err := errors.Join(errTx, errRx, errInode); err != nil {
		return c, fmt.Errorf("line %q: %w", line, err)
	}
	c.queues(uint32(unread), uint32(unsent))
	c.Inode = uint32(inode)
	return c, nil
}

// procAddr reads HEX:PORT, where HEX is the address in 32-bit words of the machine's own byte order.
func procAddr(text string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	p, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), nil
}

// queues sets the bytes of data that are queued. The kernel counts a FIN as one byte: the peer's while the app has
// not read the end, and ours while it is not acknowledged.
func (c *Conn) queues(unread, unsent uint32) {
	c.Unread, c.Unsent = unread, unsent
	if (c.State == CloseWait || c.State == LastAck || c.State == Closing) && c.Unread > 0 {
		c.Unread--
	}
	if (c.State == FinWait1 || c.State == LastAck || c.State == Closing) && c.Unsent > 0 {
		c.Unsent--
	}
}
