package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheNamespaceHasOnlyLoopbackAndAllPodAddresses(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(interfaces) != 1 || interfaces[0].Flags&net.FlagLoopback == 0 || interfaces[0].Flags&net.FlagUp == 0 {
		t.Errorf("got interfaces %v, want only lo, and up", interfaces)
	}
	var lc net.ListenConfig
	for _, addr := range []string{"127.0.0.1:0", "10.244.0.2:8080", "10.244.255.254:8080"} {
		listener, err := lc.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Errorf("listen: %v", err)
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Errorf("dial: %v", err)
			continue
		}
		_ = conn.Close()
		_ = listener.Close()
	}
	if _, err := lc.Listen(t.Context(), "tcp", "10.245.0.1:8080"); err == nil {
		t.Error("an address outside the pods' range is local")
	}
}

func TestAProcessDiesWithTheProcessThatStartedIt(t *testing.T) {
	// The test program runs itself as a parent that starts a child and then is killed.
	if os.Getenv("SANDBOX_TEST_PARENT") != "" {
		p, err := command{name: "child", path: "/bin/sleep", args: []string{"600"}, log: os.DevNull}.start()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("child " + strconv.Itoa(p.PID()) + "\n"); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		return
	}
	lines := make(chan string, 16)
	parent, err := command{
		name: "parent", path: os.Args[0], args: []string{"-test.run", "^" + t.Name() + "$"}, log: os.DevNull,
		env: []string{"SANDBOX_TEST_PARENT=1"}, onLine: func(l string) { lines <- l },
	}.start()
	if err != nil {
		t.Fatal(err)
	}
	child := strings.TrimPrefix(<-lines, "child ")
	if _, err := os.Stat("/proc/" + child); err != nil {
		t.Fatalf("the child does not run: %v", err)
	}
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	err = waitFor(within(t, 10*time.Second), nil, "the child's end", func(context.Context) error {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return errors.New("it still runs")
	})
	if err != nil {
		t.Error(err)
	}
}

func TestStopKillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	started := make(chan struct{})
	p, err := command{
		name: "stubborn", path: "/bin/sh", args: []string{"-c", "trap '' TERM; echo; while :; do sleep 0.01; done"}, log: os.DevNull,
		onLine: func(string) { close(started) },
	}.start()
	if err != nil {
		t.Fatal(err)
	}
	<-started
	if err := p.Stop(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, want SIGKILL", p.cmd.ProcessState)
	}
}

func TestTheEnterCommandReachesThisNamespace(t *testing.T) {
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	// The command is for people outside; from inside, the user namespace, if there is one, cannot be entered once more.
	enter := strings.ReplaceAll(EnterCommand(os.Getpid()), "--user --preserve-credentials ", "")
	line := strings.Fields(enter + " readlink /proc/self/ns/net")
	got, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput()
	if err != nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("%v: got %s (%v), want %s", line, got, err, want)
	}
}
