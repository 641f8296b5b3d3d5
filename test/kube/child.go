package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// child is one process of the control plane. The supervisor's loop owns all fields.
type child struct {
	name string
	args []string

	process *os.Process // nil while it does not run
	began   time.Time   // when process started
	held    bool        // kept down until asked to start
	retries int         // starts in a row that ended within quickEnd
	waiters []chan<- error
}

// quickEnd is the lifetime under which an end counts as a failed start.
const quickEnd = 3 * time.Second

// start starts the process, with its log appended to NAME.log and its number in NAME.pid,
// and calls ended from another goroutine when it has been reaped. extra becomes its file
// descriptor 3, if not nil. It must be called from the main thread (see up).
func (c *child) start(dir string, extra *os.File, ended func(error)) error {
	log, err := os.OpenFile(filepath.Join(dir, c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	cmd := exec.Command(self, c.args...)
	cmd.Args[0] = c.name // the name says which part it is, in ps as well
	cmd.Stdout, cmd.Stderr = log, log
	// A process group of its own keeps the terminal's Ctrl-C from it: the supervisor ends
	// the children in the right order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if extra != nil {
		cmd.ExtraFiles = []*os.File{extra}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.process, c.began = cmd.Process, time.Now()
	go func() { ended(cmd.Wait()) }()
	pid := []byte(strconv.Itoa(cmd.Process.Pid) + "\n")
	if err := os.WriteFile(c.pidFile(dir), pid, 0o600); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	return nil
}

// reaped notes that the process has ended.
func (c *child) reaped(dir string) error {
	if time.Since(c.began) < quickEnd {
		c.retries++
	} else {
		c.retries = 0
	}
	c.process = nil
	if err := os.Remove(c.pidFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note the end of %s: %w", c.name, err)
	}
	for _, w := range c.waiters {
		w <- nil
	}
	c.waiters = nil
	return nil
}

func (c *child) pidFile(dir string) string { return filepath.Join(dir, c.name+".pid") }

// signal sends sig, if the process runs. That it has just ended by itself is no error.
func (c *child) signal(sig syscall.Signal) {
	if c.process != nil {
		_ = c.process.Signal(sig)
	}
}

// logTail returns the last lines of the child's log, at most 2 KiB.
func (c *child) logTail(dir string) string {
	content, err := os.ReadFile(filepath.Join(dir, c.name+".log"))
	if err != nil {
		return err.Error()
	}
	content = content[max(0, len(content)-2048):]
	return string(bytes.TrimSpace(content))
}
