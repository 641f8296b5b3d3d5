package sandbox

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// newSandbox is closed at the end of the test; what it logs becomes the test's output.
func newSandbox(t *testing.T) *Sandbox {
	t.Helper()
	sb, err := New(Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close the sandbox: %v", err)
		}
	})
	return sb
}

// within bounds what a test waits for.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
