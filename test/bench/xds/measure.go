package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	loading = 8                     // clients that connect at a time
	apart   = 10 * time.Millisecond // between a change that is everywhere and the next one
	warming = 2
	quiet   = 500 * time.Millisecond // after which nothing more is on its way
)

// result is one row.
type result struct {
	changes  int
	cpu      time.Duration // of the server, per change
	p50, p99 time.Duration // from before a change until the last subscriber has it
	sent     int64         // bytes to all clients, per change
	heap     int64         // bytes per stream, beyond the first
	rss      int64
}

// remote is a server in a process of its own.
type remote struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
	addr    string
}

func startServer(ctx context.Context, kind string, services int) (*remote, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	r := &remote{cmd: exec.CommandContext(ctx, self, "-serve", kind, "-services", strconv.Itoa(services))} //nolint:gosec // itself
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	r.answers = bufio.NewScanner(out)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	r.addr, err = r.answer()
	return r, err
}

func (r *remote) answer() (string, error) {
	if !r.answers.Scan() {
		return "", errors.Join(errors.New("the server has gone"), r.answers.Err())
	}
	return r.answers.Text(), nil
}

func (r *remote) ask(command string) (string, error) {
	if _, err := io.WriteString(r.in, command+"\n"); err != nil {
		return "", fmt.Errorf("ask the server: %w", err)
	}
	return r.answer()
}

func (r *remote) cpu() (time.Duration, error) {
	text, err := r.ask("cpu")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	return time.Duration(n), nil
}

func (r *remote) memory() (heap, rss int64, err error) {
	text, err := r.ask("memory")
	if err != nil {
		return 0, 0, err
	}
	a, b, _ := strings.Cut(text, " ")
	heap, err1 := strconv.ParseInt(a, 10, 64)
	rss, err2 := strconv.ParseInt(b, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("memory: %w", err)
	}
	return heap, rss, nil
}

func (r *remote) stop() error {
	return errors.Join(r.in.Close(), r.cmd.Wait())
}

// awaited is who has to get the change that is under way.
type awaited struct {
	mu      sync.Mutex
	pending []bool // by client
	left    int
	done    chan time.Time
}

func (a *awaited) arrive(client int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if client >= len(a.pending) || !a.pending[client] {
		return
	}
	a.pending[client] = false
	if a.left--; a.left == 0 {
		a.done <- at
	}
}

func (a *awaited) expect(clients int, wants func(client int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending, a.left = make([]bool, clients), 0
	for i := range a.pending {
		if a.pending[i] = wants(i); a.pending[i] {
			a.left++
		}
	}
}

// run is a row under way.
type rowRun struct {
	options
	shape
	server  *remote
	clients []*client
	waits   awaited
}

// measure gives one row.
func (o options) measure(ctx context.Context, kind string, sh shape, p protocol) (r result, err error) {
	server, err := startServer(ctx, kind, o.services)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	run := &rowRun{options: o, shape: sh, server: server, waits: awaited{done: make(chan time.Time, 1)}}
	defer func() {
		for _, c := range run.clients {
			c.close()
		}
	}()
	if err := run.load(ctx, p, &r); err != nil {
		return r, err
	}
	return r, run.change(ctx, &r)
}

// load connects the clients. The first one has the server make what all share.
func (run *rowRun) load(ctx context.Context, p protocol, r *result) error {
	run.clients = make([]*client, run.streams)
	open := func(i int) (err error) {
		run.clients[i], err = connect(ctx, run.server.addr, p, i, run.namesOf(i), func(at time.Time) { run.waits.arrive(i, at) })
		return err
	}
	var opened int
	defer func() {
		run.clients = slices.DeleteFunc(run.clients, func(c *client) bool { return c == nil })
	}()
	if err := open(0); err != nil {
		return err
	}
	heap, rss, err := run.server.memory()
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(loading)
	for opened = 1; opened < run.streams; opened++ {
		i := opened
		group.Go(func() error { return open(i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	heapAll, rssAll, err := run.server.memory()
	if err != nil {
		return err
	}
	others := int64(max(run.streams-1, 1))
	r.heap, r.rss = (heapAll-heap)/others, (rssAll-rss)/others
	return nil
}

// wants reports whether a client subscribes to a service: each to as many as the others, one after another.
func (run *rowRun) wants(client, service int) bool {
	return ((service-client*run.names)%run.services+run.services)%run.services < run.names
}

func (run *rowRun) namesOf(client int) (names []string) {
	for i := range run.services {
		if run.wants(client, i) {
			names = append(names, nameOf(i))
		}
	}
	return names
}

// change makes changes one after another. The first few, after the collection that told the memory, do not count.
func (run *rowRun) change(ctx context.Context, r *result) error {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same services in each run
	n := 0
	for range warming {
		n++
		if _, err := run.one(ctx, random, n); err != nil {
			return err
		}
	}
	before, err := run.server.cpu()
	if err != nil {
		return err
	}
	bytesBefore := run.received()
	var took []time.Duration
	for started := time.Now(); len(took) < run.changes && (len(took) < 3 || time.Since(started) < run.patience); {
		n++
		d, err := run.one(ctx, random, n)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	after, err := run.server.cpu()
	if err != nil {
		return err
	}
	slices.Sort(took)
	r.changes, r.cpu = len(took), (after-before)/time.Duration(len(took))
	r.p50, r.p99 = took[len(took)/2], took[min(len(took)*99/100, len(took)-1)]
	r.sent = (run.received() - bytesBefore) / int64(len(took))
	return nil
}

// one makes the nth change, to a service that somebody subscribes to, and gives the time until all who do have it.
func (run *rowRun) one(ctx context.Context, random *rand.Rand, n int) (time.Duration, error) {
	service := random.IntN(min(run.services, run.streams*run.names))
	run.waits.expect(len(run.clients), func(c int) bool { return run.wants(c, service) })
	from := time.Now()
	if _, err := run.server.ask(fmt.Sprint("change ", service, " ", n)); err != nil {
		return 0, err
	}
	select {
	case at := <-run.waits.done:
		return at.Sub(from), pause(ctx, apart)
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("change %d did not reach all in two minutes", n)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (run *rowRun) received() (n int64) {
	for _, c := range run.clients {
		n += c.received.Load()
	}
	return n
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
