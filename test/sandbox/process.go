package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// command is a program to be started.
type command struct {
	// name is what errors and the log file call it.
	name string
	path string
	args []string
	env  []string
	// log is the file that stderr, and stdout without onLine, are appended to.
	log string
	// onLine, when set, is called with each line of stdout, from one goroutine.
	onLine func(string)
}

// A Process is a running program of the sandbox. It dies with the process that started it.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // Set before done is closed.
}

func (c command) start() (*Process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }() // The child has its own copy.
	cmd := &exec.Cmd{
		Path: c.path, Args: append([]string{c.path}, c.args...), Env: append(os.Environ(), c.env...),
		Stdout: log, Stderr: log,
		// A process group of its own: a Ctrl-C is for the sandbox, which ends its children in the right order.
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
	}
	var out io.ReadCloser
	if c.onLine != nil {
		cmd.Stdout = nil
		if out, err = cmd.StdoutPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.name, err)
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	p := &Process{name: c.name, cmd: cmd, log: c.log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if out != nil {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				c.onLine(lines.Text())
			}
		}
		p.err = cmd.Wait()
	}()
	return p, nil
}

// PID is the process id, as seen in the sandbox and outside.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends s; it is no error if the process has ended already.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process at once, as the OOM killer would, and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Stop sends SIGTERM, after the grace SIGKILL, and waits for the end.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

// endedError describes an end that was not asked for, with the last lines of the log.
func (p *Process) endedError() error {
	state := "ended"
	if p.cmd.ProcessState != nil {
		state = p.cmd.ProcessState.String()
	}
	return fmt.Errorf("%s: %s; %s ends with:\n%s", p.name, state, filepath.Base(p.log), tail(p.log, 12))
}

// tail returns the last n lines of a file.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
