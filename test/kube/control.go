package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const socketFile = "control.sock"

// socketPath returns a path of the control socket that is short enough for the kernel
// (108 bytes) however deep dir lies: it leads through the open folder.
func socketPath(dir string) (path string, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("open folder: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketFile), func() { f.Close() }, nil
}

// listenControl listens for the subcommands stop, kill and start. Only the holder of the
// folder's lock may call it, so a socket that is there has no owner any more.
func listenControl(dir string) (net.Listener, error) {
	if err := os.RemoveAll(filepath.Join(dir, socketFile)); err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	// The path is gone after done; the next up in this folder removes the file.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// handler answers POST /VERB/NAME when the child has ended or has been started.
func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{verb}/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer := make(chan error, 1)
		if !s.do(func() error { return s.control(r.PathValue("verb"), r.PathValue("name"), answer) }) {
			http.Error(w, "the control plane is ending", http.StatusServiceUnavailable)
			return
		}
		select {
		case err := <-answer:
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		case <-s.done:
			http.Error(w, "the control plane is ending", http.StatusServiceUnavailable)
		case <-r.Context().Done():
		}
	})
	return mux
}

// control runs in the loop. Its error ends the supervisor; what the caller asked wrongly
// goes into answer instead.
func (s *supervisor) control(verb, name string, answer chan<- error) error {
	c := s.find(name)
	if c == nil {
		answer <- fmt.Errorf("no child is called %q", name)
		return nil
	}
	switch verb {
	case "start":
		c.held, c.retries = false, 0
		defer close(answer)
		if c.process != nil {
			return nil
		}
		return s.start(c, nil)
	case "stop", "kill":
		c.held = true
		if c.process == nil {
			close(answer)
			return nil
		}
		c.waiters = append(c.waiters, answer)
		if verb == "kill" {
			c.signal(syscall.SIGKILL)
		} else {
			s.terminate(c)
		}
	default:
		answer <- fmt.Errorf("cannot %q a child", verb)
	}
	return nil
}

// control is the other end: it asks the "up" of a folder to stop, kill or start one child,
// and returns when that has been done.
func control(verb string, args []string) error {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the running control plane (required)")
	timeout := flags.Duration("timeout", time.Minute, "how long to wait")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() != 1 {
		return errors.New("give --dir DIR and the name of one child")
	}
	path, done, err := socketPath(*dir)
	if err != nil {
		return err
	}
	defer done()
	client := http.Client{Timeout: *timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	answer, err := client.Post("http://kube/"+verb+"/"+flags.Arg(0), "", nil)
	if err != nil {
		return fmt.Errorf("ask the control plane in %s: %w", *dir, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

// terminate ends c, by SIGKILL where SIGTERM takes too long: an API server waits a minute for open watches.
func (s *supervisor) terminate(c *child) {
	c.signal(syscall.SIGTERM)
	process := c.process
	time.AfterFunc(gracePeriod, func() {
		s.do(func() error {
			if c.process == process {
				c.signal(syscall.SIGKILL)
			}
			return nil
		})
	})
}
