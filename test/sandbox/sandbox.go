package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config says where a Sandbox works.
type Config struct {
	// Dir gets logs, manifests and generated files. Default: a new temporary folder, which Close removes.
	Dir string
	// Root is the folder that holds bin/slicecast, .tools/envoy and .tools/kube. Default: the folder of the go.mod of module
	// slicecast at or above the working directory, else the working directory.
	Root string
	// Log gets lifecycle steps. Default: nothing is logged.
	Log *slog.Logger
}

// A Sandbox owns every process that was started in it.
type Sandbox struct {
	dir, root string
	temporary bool
	log       *slog.Logger
	self      string // This program: the pods run it.

	mu      sync.Mutex
	closers []func() error // Guarded by mu; Close runs them last first.
}

// New makes an empty Sandbox. The program must be inside a namespace (Enter or Main) before anything is started in it.
func New(cfg Config) (*Sandbox, error) {
	s := &Sandbox{dir: cfg.Dir, root: cfg.Root, log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if s.root == "" {
		if s.root, err = findRoot(); err != nil {
			return nil, fmt.Errorf("find the root folder: %w", err)
		}
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "slicecast-sandbox-"); err != nil {
			return nil, err
		}
		s.temporary = true
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	return s, nil
}

// Dir is the folder that holds logs and generated files.
func (s *Sandbox) Dir() string { return s.dir }

// Tool is the path of a program below the root folder, such as "bin/slicecast"; it is an error if there is none.
func (s *Sandbox) Tool(name string) (string, error) {
	path := filepath.Join(s.root, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing, build it first: %w", name, err)
	}
	return path, nil
}

// Close stops everything, last started first, and waits for it. The Sandbox is empty afterwards.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i]())
	}
	if s.temporary {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Logs are the last n lines of each log file that has any.
func (s *Sandbox) Logs(n int) string {
	paths, err := filepath.Glob(s.logFile("*"))
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, path := range paths {
		if text := tail(path, n); text != "" {
			fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(path), text)
		}
	}
	return all.String()
}

func (s *Sandbox) onClose(f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

func (s *Sandbox) logFile(name string) string { return filepath.Join(s.dir, name+".log") }

func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return start, nil
		}
	}
}

// waitFor asks every 10 ms until ok, and returns the last reason when ctx or p ends first. p may be nil.
func waitFor(ctx context.Context, p *Process, what string, ok func(context.Context) error) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var ended <-chan struct{}
	if p != nil {
		ended = p.Done()
	}
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("wait for %s: %w", what, p.endedError())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", what, err, ctx.Err())
		case <-ticker.C:
		}
	}
}

// get reads an HTTP answer; any status but 200 is an error.
func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // Asked rarely: an idle connection would only outlive the asked.
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %.200s", url, resp.Status, body)
	}
	return body, nil
}
