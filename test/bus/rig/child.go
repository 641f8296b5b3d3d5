package rig

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// childEnv tells a process of this program that it is a server: its value is the folder of the store and the port.
const childEnv = "SLICECAST_RIG_SERVER"

// ServeChild turns the process into a nats-server when it was started as one by NewChild, and then does not return
// before its standard input has ended. A program that makes children calls it first.
func ServeChild() (was bool, err error) {
	var port int
	var dir string
	text, was := os.LookupEnv(childEnv)
	if !was {
		return false, nil
	}
	if _, err := fmt.Sscanf(text, "%d %s", &port, &dir); err != nil {
		return true, fmt.Errorf("read %s: %w", childEnv, err)
	}
	s, err := NewServer(dir, func(o *server.Options) { o.Port = port })
	if err != nil {
		return true, err
	}
	defer s.Close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return true, err
}

// Child is a nats-server in a process of its own, which can be stopped as by a disk that does not answer, and killed.
type Child struct {
	dir   string
	port  int
	cmd   *exec.Cmd
	stdin io.Closer
}

// NewChild starts one whose data is below dir. The calling program has to call ServeChild.
func NewChild(dir string) (*Child, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to find a free port
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	c := &Child{dir: dir, port: l.Addr().(*net.TCPAddr).Port}
	_ = l.Close()
	return c, c.Start()
}

// URLs for clients.
func (c *Child) URLs() []string { return []string{fmt.Sprintf("nats://127.0.0.1:%d", c.port)} }

// Start starts the process.
func (c *Child) Start() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c.cmd = exec.Command(program) //nolint:noctx // it lives until Kill
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childEnv, c.port, c.dir))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a server: %w", err)
	}
	c.stdin = in
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start a server: %w", err)
	}
	return nil
}

// Freeze stops the process where it is, whatever it is at.
func (c *Child) Freeze() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func (c *Child) Thaw() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once: nothing more is written to its store.
func (c *Child) Kill() error {
	err := c.cmd.Process.Kill()
	var exit *exec.ExitError
	if werr := c.cmd.Wait(); err == nil && !errors.As(werr, &exit) {
		err = werr
	}
	_ = c.stdin.Close()
	return err
}
