package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	maxRetries  = 5                      // starts in a row that may end at once
	retryPause  = 500 * time.Millisecond // before a start after one that ended at once
	gracePeriod = 8 * time.Second        // from SIGTERM to SIGKILL
)

// supervisor keeps the children running. The goroutine in run owns all state; others send
// it functions to run there.
type supervisor struct {
	dir      string
	children []*child
	listener net.Listener

	calls   chan func() error // executed by run's loop; an error ends run
	done    chan struct{}     // closed when the loop has ended: no call is taken any more
	stopped bool              // children end for good
	waits   sync.WaitGroup    // goroutines that wait for a child's end, or its readiness
}

func newSupervisor(dir string, children []*child) (*supervisor, error) {
	l, err := listenControl(dir)
	if err != nil {
		return nil, err
	}
	return &supervisor{
		dir: dir, children: children, listener: l,
		calls: make(chan func() error), done: make(chan struct{}),
	}, nil
}

// run starts the children, calls ready once when they are ready, and returns when ctx has
// ended and every child with it, or with an error if a child cannot be kept running or the
// whole is not ready after timeout.
func (s *supervisor) run(ctx context.Context, timeout time.Duration, ready func()) error {
	server := http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(s.listener) }) // ends with Close
	late := time.NewTimer(timeout)
	defer late.Stop()
	isReady := make(chan struct{}, 1)
	err := s.loop(ctx, late, isReady, ready)
	err = errors.Join(err, s.stopAll())
	close(s.done)
	server.Close()
	serving.Wait()
	s.waits.Wait()
	return err
}

func (s *supervisor) loop(ctx context.Context, late *time.Timer, isReady chan struct{}, ready func()) error {
	for _, c := range s.children {
		if err := s.start(c, isReady); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case call := <-s.calls:
			if err := call(); err != nil {
				return err
			}
		case <-isReady:
			if late.Stop() {
				ready()
			}
		case <-late.C:
			return fmt.Errorf("not ready in time; log of %s ends:\n%s", apiserverName, s.find(apiserverName).logTail(s.dir))
		}
	}
}

// do hands f to the loop; false means that the loop has ended.
func (s *supervisor) do(f func() error) bool {
	select {
	case s.calls <- f:
		return true
	case <-s.done:
		return false
	}
}

// start starts c. The controllers get a pipe by which they tell that they are ready.
func (s *supervisor) start(c *child, isReady chan<- struct{}) error {
	var w *os.File
	if c.name == controllersName {
		r, pw, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("start %s: %w", c.name, err)
		}
		w = pw
		defer w.Close()
		s.waits.Go(func() {
			defer r.Close()
			if n, _ := r.Read(make([]byte, 1)); n == 0 {
				return // it ended before it was ready
			}
			select {
			case isReady <- struct{}{}:
			default:
			}
		})
	}
	s.waits.Add(1)
	err := c.start(s.dir, w, func(end error) {
		defer s.waits.Done()
		s.do(func() error { return s.ended(c, end, isReady) })
	})
	if err != nil && c.process == nil {
		s.waits.Done() // there is nothing to wait for
	}
	return err
}

// ended starts c again unless it is to stay down.
func (s *supervisor) ended(c *child, end error, isReady chan<- struct{}) error {
	if err := c.reaped(s.dir); err != nil {
		return err
	}
	if s.stopped || c.held {
		return nil
	}
	if c.retries >= maxRetries {
		return fmt.Errorf("%s keeps ending; its log ends:\n%s", c.name, c.logTail(s.dir))
	}
	fmt.Fprintf(os.Stderr, "kube: %s ended (%v); starting it again\n", c.name, end)
	if c.retries == 0 {
		return s.start(c, isReady)
	}
	time.AfterFunc(retryPause, func() {
		s.do(func() error {
			if s.stopped || c.held || c.process != nil {
				return nil
			}
			return s.start(c, isReady)
		})
	})
	return nil
}

// stopAll ends the children, the last started first: a server that still has a store below
// it ends at once.
func (s *supervisor) stopAll() error {
	s.stopped = true
	for i := len(s.children) - 1; i >= 0; i-- {
		c := s.children[i]
		c.signal(syscall.SIGTERM)
		kill := time.NewTimer(gracePeriod)
		for c.process != nil {
			select {
			case call := <-s.calls:
				if err := call(); err != nil {
					fmt.Fprintf(os.Stderr, "kube: %v\n", err)
				}
			case <-kill.C:
				fmt.Fprintf(os.Stderr, "kube: %s did not end in %s; killed\n", c.name, gracePeriod)
				c.signal(syscall.SIGKILL)
			}
		}
		kill.Stop()
	}
	return nil
}

func (s *supervisor) find(name string) *child {
	for _, c := range s.children {
		if c.name == name {
			return c
		}
	}
	return nil
}
