package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/vishvananda/netlink"
)

// PodCIDR is the range that pods get their addresses from; inside the namespace all of it is local.
const PodCIDR = "10.244.0.0/16"

// insideEnv marks a process that already runs inside the namespace.
const insideEnv = "SLICECAST_SANDBOX_INSIDE"

// Main is for a TestMain: it runs the tests inside a fresh network namespace and exits the process with their result. The test
// binary is also the pods' program, so Main must be the first call of TestMain.
func Main(tests interface{ Run() int }) {
	if len(os.Args) > 1 && os.Args[1] == podCommand {
		os.Exit(PodMain(os.Args[2:], os.Stdout, os.Stderr))
	}
	inside, code, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
	if inside {
		code = tests.Run()
	}
	os.Exit(code)
}

// Enter makes sure that the program runs inside a network namespace of its own. Outside, it runs the same program with the same
// arguments inside one, waits for it, and returns inside = false with its exit code: the caller then exits with that code.
// Inside, it sets the network up and returns true. Without root it uses a user namespace.
func Enter() (inside bool, code int, err error) {
	if os.Getenv(insideEnv) != "" {
		if err := setUpNetwork(); err != nil {
			return true, 1, fmt.Errorf("set up the namespace's network: %w", err)
		}
		return true, 0, nil
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		withUserNamespace(attr)
	}
	cmd, err := startSelf(attr)
	if errors.Is(err, syscall.EPERM) && attr.Cloneflags&syscall.CLONE_NEWUSER == 0 {
		withUserNamespace(attr) // Root without CAP_SYS_ADMIN, as in most containers.
		cmd, err = startSelf(attr)
	}
	if err != nil {
		return false, 1, fmt.Errorf("start inside a new network namespace (needs root or unprivileged user namespaces): %w", err)
	}
	return false, waitAndForward(cmd), nil
}

func withUserNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

func startSelf(attr *syscall.SysProcAttr) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: self, Args: os.Args, Env: append(os.Environ(), insideEnv+"=1"),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attr,
	}
	return cmd, cmd.Start()
}

// waitAndForward passes signals on to the program inside: its own end is what ends this one.
func waitAndForward(cmd *exec.Cmd) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // It may have ended already; then done says so.
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 1
			}
			if code := cmd.ProcessState.ExitCode(); code >= 0 {
				return code
			}
			return 1 // Ended by a signal.
		}
	}
}

func setUpNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	_, pods, err := net.ParseCIDR(PodCIDR)
	if err != nil {
		return err
	}
	// What `ip route add local 10.244.0.0/16 dev lo` does.
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: pods, Scope: netlink.SCOPE_HOST,
		Type: syscall.RTN_LOCAL, Table: syscall.RT_TABLE_LOCAL,
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("make %s local: %w", PodCIDR, err)
	}
	return nil
}

// EnterCommand is the command line that runs another command inside the namespace of process pid, to be shown to people.
func EnterCommand(pid int) string {
	if os.Geteuid() == 0 && !inUserNamespace() {
		return fmt.Sprintf("nsenter --net=/proc/%d/ns/net", pid)
	}
	return fmt.Sprintf("nsenter --target %d --user --preserve-credentials --net", pid)
}

// inUserNamespace reports whether user ids are mapped, that is, whether this is not the machine's first user namespace.
func inUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inner, outer, size uint64
	if _, err := fmt.Sscan(string(data), &inner, &outer, &size); err != nil {
		return false
	}
	return size != 1<<32-1
}
