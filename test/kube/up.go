package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// up runs a control plane in a folder until SIGTERM or SIGINT.
func up(args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder for everything that it makes (required)")
	port := flags.Int("port", 0, "port of the API server on 127.0.0.1; 0: a free one")
	timeout := flags.Duration("ready-timeout", 2*time.Minute, "how long the control plane may take to be ready")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New("give --dir DIR and no other argument than flags")
	}
	begin := time.Now()
	// The kernel sends the death signal of a child when the thread that started it ends.
	// The main goroutine keeps to the main thread, which lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	folder, unlock, err := lockFolder(*dir)
	if err != nil {
		return err
	}
	defer unlock()
	url, children, err := prepare(folder, *port)
	if err != nil {
		return err
	}
	s, err := newSupervisor(folder, children)
	if err != nil {
		return err
	}
	return s.run(ctx, *timeout, func() {
		fmt.Printf("kube: ready in %.1fs at %s, kubeconfig %s\n",
			time.Since(begin).Seconds(), url, filepath.Join(folder, kubeconfigFile))
	})
}

// lockFolder makes dir if need be and holds it against a second control plane. The lock
// ends with the process in any case.
func lockFolder(dir string) (abs string, unlock func(), err error) {
	if abs, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("find folder: %w", err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", nil, fmt.Errorf("make folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(abs, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return "", nil, fmt.Errorf("lock %s: in use by another control plane: %w", abs, err)
	}
	return abs, func() { f.Close() }, nil
}

// prepare writes the files of the control plane and returns the API server's address and
// the children to run, in the order in which they start.
func prepare(dir string, port int) (url string, children []*child, err error) {
	if err := writeSecrets(dir); err != nil {
		return "", nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return "", nil, err
	}
	if port == 0 {
		port = ports[2]
	}
	url = "https://127.0.0.1:" + strconv.Itoa(port)
	if err := writeKubeconfig(dir, url); err != nil {
		return "", nil, err
	}
	client := "http://127.0.0.1:" + strconv.Itoa(ports[0])
	peer := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	return url, []*child{
		{name: etcdName, args: etcdArgs(dir, client, peer)},
		{name: apiserverName, args: apiserverArgs(dir, client, port)},
		{name: controllersName, args: []string{"--kubeconfig=" + filepath.Join(dir, kubeconfigFile), "--tell-ready"}},
	}, nil
}

// etcdArgs gives up durability against a power cut: syncs cost most of etcd's time, and a
// killed process loses nothing without them.
func etcdArgs(dir, client, peer string) []string {
	return []string{
		"--name=test",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=test=" + peer,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

// apiserverArgs: the endpoint reconciler is off because it refuses a loopback address, and
// nothing here asks the Service "kubernetes" for endpoints.
func apiserverArgs(dir, etcd string, port int) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + in(certFile),
		"--tls-private-key-file=" + in(keyFile),
		"--token-auth-file=" + in(tokensFile),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + in(accountKeyFile),
		"--service-account-signing-key-file=" + in(accountKeyFile),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--profiling=false",
		"--enable-priority-and-fairness=false",
	}
}

// freePorts returns n different ports of 127.0.0.1 that nobody listens on now.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
