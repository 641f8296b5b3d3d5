package sandbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// podCommand is the first argument that makes this program a pod.
const podCommand = "pod"

// PodHeader names the pod in every response.
const PodHeader = "X-Pod"

// listeningLine is what a pod prints once it accepts connections.
const listeningLine = "listening"

// PodMain is a pod's program: an HTTP/1.1 and h2c server that answers after a random time. It returns the exit code.
func PodMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(podCommand, flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:8080", "`IP:PORT` to listen on")
	name := flags.String("name", "pod", "name of the pod, sent in the header "+PodHeader)
	delay := flags.Duration("delay-max", 20*time.Millisecond, "longest time of a response; the shortest is 0")
	app := flags.String("app", string(Abrupt), "behaviour on SIGTERM: abrupt, graceful or stubborn")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := servePod(*addr, *name, *delay, App(*app), stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "pod:", err)
		return 1
	}
	return 0
}

func servePod(addr, name string, delay time.Duration, app App, stdout io.Writer) error {
	terminated := make(chan os.Signal, 1)
	switch app {
	case Abrupt: // The default action of SIGTERM is what is wanted.
	case Graceful, Stubborn:
		signal.Notify(terminated, syscall.SIGTERM)
	default:
		return fmt.Errorf("unknown behaviour %q", app)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: podHandlers(name, delay), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(stdout, listeningLine); err != nil {
		return err
	}
	for {
		select {
		case err := <-served:
			return err
		case <-terminated:
			if app == Stubborn {
				continue
			}
			err := server.Shutdown(context.Background())
			return errors.Join(err, ignoreClosed(<-served))
		}
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func podHandler(name string, delay time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if delay > 0 {
			timer := time.NewTimer(rand.N(delay))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set(PodHeader, name)
		_, _ = fmt.Fprintf(w, "hello from %s\n", name)
	})
}
