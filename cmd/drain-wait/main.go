// Command drain-wait is `slicecast drain-wait` as a small static binary of its own, for preStop hooks in images that
// should not carry the rest.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/slicecast/slicecast/internal/drainwait"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := drainwait.Main(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
