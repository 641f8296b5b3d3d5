package endpointtest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

//go:embed testdata/*.trace
var files embed.FS

// Files are the traces that all rooms run.
func Files() fs.FS {
	sub, err := fs.Sub(files, "testdata")
	if err != nil {
		panic(err) // The folder is embedded above.
	}
	return sub
}

// Answer gives the section that is true after the steps: its whole head and body, for a section of which at least
// the first words of the head are given.
type Answer func(told []Step, asked Section) (Section, error)

// Run runs every shared trace as a subtest and compares those expectations whose first word is in answers; the others
// belong to other rooms. With update, the traces on disk are rewritten instead. A kind that no trace asks for is an
// error: its test would prove nothing.
func Run(t *testing.T, update bool, answers map[string]Answer) {
	t.Helper()
	names, err := fs.Glob(Files(), "*.trace")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, name := range names {
		t.Run(strings.TrimSuffix(name, ".trace"), func(t *testing.T) {
			text, err := fs.ReadFile(Files(), name)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := tr.answer(answers, asked)
			if err != nil {
				t.Fatal(err)
			}
			if update {
				write(t, name, got.String())
			} else if got.String() != tr.String() {
				t.Errorf("got\n%s\nwant\n%s\n(go test -update rewrites it)", got, tr)
			}
		})
	}
	for kind := range answers {
		if !asked[kind] {
			t.Errorf("no trace has a section %q", kind)
		}
	}
}

// answer gives the trace with the expectations of the kinds in answers replaced by what is true.
func (t Trace) answer(answers map[string]Answer, asked map[string]bool) (Trace, error) {
	var told []Step
	out := Trace{Stages: slices.Clone(t.Stages)}
	for i := range out.Stages {
		st := &out.Stages[i]
		told = append(told, st.Steps...)
		st.Expected = slices.Clone(st.Expected)
		for j, sec := range st.Expected {
			answer, mine := answers[sec.Kind()]
			if !mine {
				continue
			}
			asked[sec.Kind()] = true
			var err error
			if st.Expected[j], err = answer(slices.Clip(told), sec); err != nil {
				return Trace{}, fmt.Errorf("stage %d, %q: %w", i+1, sec.Head, err)
			}
		}
	}
	return out, nil
}

// write rewrites a trace in the source tree.
func write(t *testing.T, name, text string) {
	t.Helper()
	root, err := root()
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "internal", "endpoint", "endpointtest", "testdata", name), []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// root is the folder of go.mod, found upwards from the working directory of the test.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the test")
		}
		dir = parent
	}
}
