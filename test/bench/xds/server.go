package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The servers.
const (
	ours     = "slicecast"
	linear   = "LinearCache"
	snapshot = "SnapshotCache"
)

// backend is a server under test.
type backend struct {
	addr   string
	change func(i, n int) error // makes the nth change to the i-th service
	stop   func() error
}

// serve runs a server of a kind until standard input ends. It prints its address, then an answer to each line: "change I
// N" makes a change, "usage" gives its CPU time in ns, the bytes of its heap and stacks after a collection, and its RSS.
func serve(ctx context.Context, kind string, services int) error {
	var b *backend
	var err error
	switch kind {
	case ours:
		b, err = serveOurs(ctx, services)
	case linear:
		b, err = serveLinear(ctx, services)
	case snapshot:
		b, err = serveSnapshot(ctx, services)
	default:
		return fmt.Errorf("there is no server %q", kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	fmt.Println(b.addr)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := b.answer(strings.Fields(lines.Text()))
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	return b.stop()
}

func (b *backend) answer(words []string) (string, error) {
	switch {
	case len(words) == 3 && words[0] == "change":
		i, err1 := strconv.Atoi(words[1])
		n, err2 := strconv.Atoi(words[2])
		if err1 != nil || err2 != nil {
			return "", fmt.Errorf("change %q of service %q", words[2], words[1])
		}
		return "done", b.change(i, n)
	case len(words) == 1 && words[0] == "cpu":
		d, err := cpuTime()
		return strconv.FormatInt(int64(d), 10), err
	case len(words) == 1 && words[0] == "memory":
		return memory()
	default:
		return "", fmt.Errorf("no such command: %q", words)
	}
}

func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

func memory() (string, error) {
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return "", fmt.Errorf("RSS: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return "", fmt.Errorf("RSS: statm is %q", text)
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return "", fmt.Errorf("RSS: %w", err)
	}
	return fmt.Sprint(m.HeapAlloc+m.StackInuse, " ", pages*os.Getpagesize()), nil
}
