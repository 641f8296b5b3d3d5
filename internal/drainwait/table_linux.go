package drainwait

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The wire format of NETLINK_SOCK_DIAG (linux/inet_diag.h); x/sys has no structs for it.
const (
	sizeRequest = 56 // struct inet_diag_req_v2
	sizeMessage = 72 // struct inet_diag_msg
	extInfo     = 2  // INET_DIAG_INFO: struct tcp_info
)

// wanted are the states that Conn.open knows, as the bits of a request.
const wanted = 1<<Established | 1<<FinWait1 | 1<<CloseWait | 1<<LastAck | 1<<Closing

// answerTimeout bounds one read of the kernel's answer, which it gives at once.
const answerTimeout = 200 * time.Millisecond

// readTable gives the TCP connections with one of the local ports, from sock_diag, or where that is refused (a
// sandbox, a filter of system calls, a kernel without it) from /proc, which tells no ages.
func readTable(ports []uint16) ([]Conn, error) {
	conns, err := readDiag(ports)
	if err == nil {
		return conns, nil
	}
	conns, procErr := readProc(os.DirFS("/proc/self/net"), ports)
	if procErr != nil {
		return nil, errors.Join(err, procErr)
	}
	return conns, nil
}

func readDiag(ports []uint16) ([]Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	bound := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &bound); err != nil {
		return nil, fmt.Errorf("bound sock_diag: %w", err)
	}
	var conns []Conn
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, port := range ports {
			if conns, err = dump(fd, family, port, conns); err != nil {
				return nil, fmt.Errorf("read sock_diag: %w", err)
			}
		}
	}
	return conns, nil
}

// dump appends the connections of one family with that local port.
func dump(fd int, family uint8, port uint16, conns []Conn) ([]Conn, error) {
	request := make([]byte, unix.SizeofNlMsghdr+sizeRequest)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0], body[1], body[2] = family, unix.IPPROTO_TCP, 1<<(extInfo-1)
	binary.NativeEndian.PutUint32(body[4:], wanted)
	binary.BigEndian.PutUint16(body[8:], port)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return conns, nil
			case unix.NLMSG_ERROR:
				return nil, diagError(m.Data)
			case unix.SOCK_DIAG_BY_FAMILY:
				// A port of 0 in the answer would be another's; the kernel filters by port, we check.
				if c, ok := parseDiag(m.Data); ok && c.Local.Port() == port {
					conns = append(conns, c)
				}
			}
		}
	}
}

func diagError(data []byte) error {
	if len(data) < 4 {
		return errors.New("short error message")
	}
	return syscall.Errno(-int32(binary.NativeEndian.Uint32(data)))
}

// parseDiag reads a struct inet_diag_msg and its attributes.
func parseDiag(b []byte) (c Conn, ok bool) {
	if len(b) < sizeMessage {
		return c, false
	}
	c.State = TCPState(b[1])
	c.Local = diagAddr(b[0], b[8:24], b[4:6])
	c.Remote = diagAddr(b[0], b[24:40], b[6:8])
	c.Cookie = uint64(binary.NativeEndian.Uint32(b[48:]))<<32 | uint64(binary.NativeEndian.Uint32(b[44:]))
	c.queues(binary.NativeEndian.Uint32(b[56:]), binary.NativeEndian.Uint32(b[60:]))
	c.Inode = binary.NativeEndian.Uint32(b[68:])
	for b = b[sizeMessage:]; len(b) >= unix.SizeofRtAttr; {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			return c, false
		}
		if kind == extInfo {
			c.info(b[unix.SizeofRtAttr:size])
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return c, true
}

func diagAddr(family uint8, addr, port []byte) netip.AddrPort {
	p := binary.BigEndian.Uint16(port)
	if family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr[:4])), p)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(addr)).Unmap(), p)
}

// info reads what matters of a struct tcp_info, which older kernels give shorter.
func (c *Conn) info(b []byte) {
	if len(b) < 136 {
		return
	}
	age := func(at int) time.Duration {
		return time.Duration(binary.NativeEndian.Uint32(b[at:])) * time.Millisecond
	}
	c.Timed = true
	c.LastSent, c.LastRecv, c.LastAck = age(44), age(52), age(56)
	c.Received = binary.NativeEndian.Uint64(b[128:])
}
