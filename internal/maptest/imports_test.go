package maptest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFile = 400 // lines of a file
	maxFunc = 60  // lines of a function, from "func" to "}"
)

// clocks are the names of package time that read or wait for the clock.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func TestEveryFileKeepsToTheMap(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		src, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Written and removed by another process while we walk.
		}
		if err != nil {
			return err
		}
		seen++
		rel, err := filepath.Rel(filepath.Join("..", ".."), name)
		if err != nil {
			return err
		}
		faults, err := inspect(filepath.ToSlash(rel), src)
		for _, f := range faults {
			t.Error(f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("read %d Go files, which cannot be all of the repository", seen)
	}
}

func TestAForbiddenImportIsFound(t *testing.T) {
	const at = module + "/"
	tests := []struct {
		file, imp string
		want      bool // a fault
	}{
		{"internal/endpoint/key.go", "strings", false},
		{"internal/endpoint/key.go", "net/netip", false},
		{"internal/endpoint/key.go", "net/http", true},
		{"internal/endpoint/key.go", "context", true},
		{"internal/endpoint/key.go", "log/slog", true},
		{"internal/endpoint/key.go", "os", true},
		{"internal/endpoint/key.go", "math/rand/v2", true},
		{"internal/endpoint/key.go", "github.com/google/go-cmp/cmp", true},
		{"internal/endpoint/key.go", at + "watcher", true},
		{"internal/endpoint/ledger/ledger.go", at + "internal/endpoint", false},
		{"internal/endpoint/ledger/ledger.go", "time", false},
		{"internal/endpoint/ledger/ledger.go", "sync", true},
		{"internal/endpoint/key_test.go", "github.com/google/go-cmp/cmp", false},
		{"internal/endpoint/endpointtest/trace.go", "os", false},
		{"watcher/source.go", "k8s.io/client-go/kubernetes", false},
		{"watcher/source.go", "github.com/prometheus/client_golang/prometheus", false},
		{"watcher/internal/dir/dir.go", at + "watcher/internal/manifest", false},
		{"watcher/source.go", "github.com/nats-io/nats.go", true},
		{"watcher/source.go", at + "proto/slicecast/v1", true},
		{"watcher/internal/dir/dir.go", at + "bus", true},
		{"watcher/source_test.go", at + "bus", true},
		{"watcher/source_test.go", at + "bus/bustest", false},
		{"watcher/source.go", at + "bus/bustest", true},
		{"bus/codec.go", at + "proto/slicecast/v1", false},
		{"bus/embedded.go", "github.com/nats-io/nats-server/v2/server", false},
		{"bus/codec.go", "google.golang.org/grpc", true},
		{"bus/codec.go", "k8s.io/api/discovery/v1", true},
		{"projector/fold.go", at + "internal/endpoint/ledger", false},
		{"projector/fold.go", at + "internal/endpoint/endpointtest", true},
		{"projector/fold.go", at + "bus", true},
		{"projector/fold.go", "google.golang.org/protobuf/proto", true},
		{"xdsserver/assign.go", "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3", false},
		{"xdsserver/assign.go", "github.com/nats-io/nats.go/jetstream", true},
		{"xdsserver/internal/hub/hub.go", at + "projector", true},
		{"proto/slicecast/v1/slicecast.pb.go", at + "bus", true},
		{"internal/config/config.go", at + "bus", true},
		{"cmd/slicecast/standalone.go", at + "bus", false},
		{"cmd/slicecast/standalone.go", at + "bus/bustest", true},
		{"cmd/slicecast/standalone.go", "github.com/nats-io/nats-server/v2/server", true},
		{"test/sandbox/kubelet.go", at + "watcher", false},
		{"test/e2e/files_test.go", "github.com/nats-io/nats-server/v2/server", false},
	}
	for _, tt := range tests {
		faults, err := inspect(tt.file, fmt.Appendf(nil, "package p\n\nimport _ %q\n", tt.imp))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(faults) > 0; got != tt.want {
			t.Errorf("%s importing %s: got faults %q, want a fault: %v", tt.file, tt.imp, faults, tt.want)
		}
	}
}

func TestAPureFileMayNotReadTheClock(t *testing.T) {
	const body = "package p\n\nimport \"time\"\n\nfunc f() time.Time { return time.Now() }\n"
	tests := []struct {
		name, file, src string
		want            int
	}{
		{"vocabulary", "internal/endpoint/key.go", body, 1},
		{"marked", "projector/fold.go", "// Pure: values in, values out.\n\n" + body, 1},
		{"not marked", "projector/worker.go", body, 0},
		{"a type is no clock", "internal/endpoint/key.go", "package p\n\nimport \"time\"\n\nvar t time.Time\n", 0},
		{"context", "projector/fold.go", "// Pure.\n\npackage p\n\nimport _ \"context\"\n", 1},
	}
	for _, tt := range tests {
		if faults, err := inspect(tt.file, []byte(tt.src)); err != nil || len(faults) != tt.want {
			t.Errorf("%s: got faults %q, error %v, want %d faults", tt.name, faults, err, tt.want)
		}
	}
}

func TestALongFileOrFunctionIsFound(t *testing.T) {
	function := func(lines int) string { return "func f() {\n" + strings.Repeat("\n", lines-2) + "}\n" }
	file := func(lines int) string { return "package p\n" + strings.Repeat("\n", lines-1) }
	tests := []struct {
		name, file, src string
		want            int
	}{
		{"function of 60", "bus/a.go", "package p\n" + function(60), 0},
		{"function of 61", "bus/a.go", "package p\n" + function(61), 1},
		{"function of 61 in a nested module", "test/kube/a.go", "package p\n" + function(61), 1},
		{"function of 61 in a test", "bus/a_test.go", "package p\n" + function(61), 0},
		{"file of 400", "bus/a.go", file(400), 0},
		{"file of 401", "bus/a.go", file(401), 1},
		{"generated file of 403", "proto/a.pb.go", "// Code generated by hand. DO NOT EDIT.\n\n" + file(401), 0},
	}
	for _, tt := range tests {
		if faults, err := inspect(tt.file, []byte(tt.src)); err != nil || len(faults) != tt.want {
			t.Errorf("%s: got faults %q, error %v, want %d faults", tt.name, faults, err, tt.want)
		}
	}
}

// inspect returns what is wrong with a file, given by its slash path from the root and its content.
func inspect(file string, src []byte) ([]string, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	pure := bytes.HasPrefix(src, []byte("// Pure"))
	var faults []string
	for _, spec := range tree.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if why := refusal(file, imp, pure); why != "" {
			faults = append(faults, fmt.Sprintf("%s: imports %s: %s", fset.Position(spec.Pos()), imp, why))
		}
	}
	if isTest(file) || ast.IsGenerated(tree) {
		return faults, nil
	}
	if pure || strings.HasPrefix(file, "internal/endpoint/") {
		faults = append(faults, clockFaults(fset, tree)...)
	}
	return append(faults, sizeFaults(fset, tree, file, bytes.Count(src, []byte("\n")))...), nil
}

// clockFaults finds uses of the clock.
func clockFaults(fset *token.FileSet, tree *ast.File) []string {
	var faults []string
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(clocks, sel.Sel.Name) {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
			faults = append(faults, fmt.Sprintf("%s: time.%s in pure code", fset.Position(sel.Pos()), sel.Sel.Name))
		}
		return true
	})
	return faults
}

// sizeFaults finds a file or a function that is too long.
func sizeFaults(fset *token.FileSet, tree *ast.File, file string, lines int) []string {
	var faults []string
	if lines > maxFile {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", file, lines, maxFile))
	}
	for _, decl := range tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		start := fset.Position(fn.Type.Func)
		if n := fset.Position(fn.End()).Line - start.Line + 1; n > maxFunc {
			faults = append(faults, fmt.Sprintf("%s: %s has %d lines, at most %d", start, fn.Name.Name, n, maxFunc))
		}
	}
	return faults
}
