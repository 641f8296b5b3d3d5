package cases

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite what the cases expect")

// required are the kinds of faults that must have a case.
var required = []int{
	1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 17, 18, 19, 21, 22, 23, 25, 27, 29, 30,
	31, 32, 33, 34, 36, 37, 38, 39, 40, 41, 42, 44, 45, 47, 48, 49, 50, 53, 79, 85, 86,
}

// readCases reads all cases, by name.
func readCases(t testing.TB) []testCase {
	t.Helper()
	files, err := filepath.Glob("testdata/*.case")
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCase(strings.TrimSuffix(filepath.Base(file), ".case"), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// eachCase runs a test for every case, under its number and its sentence.
func eachCase(t *testing.T, run func(*testing.T, testCase)) {
	byNumber := map[string][]testCase{}
	for _, c := range readCases(t) {
		byNumber[c.number()] = append(byNumber[c.number()], c)
	}
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		t.Run("T"+number, func(t *testing.T) {
			for _, c := range byNumber[number] {
				t.Run(c.sentence(), func(t *testing.T) { run(t, c) })
			}
		})
	}
}

func TestCases(t *testing.T) {
	eachCase(t, func(t *testing.T, c testCase) {
		got, err := runCase(c)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, c, got)
	})
}

// compare compares a case with what came of it, or rewrites it.
func compare(t *testing.T, want, got testCase) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", want.name+".case"), []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("%s.case (-want +got):\n%s", want.name, diff)
	}
}

func TestEveryKindOfFaultHasACase(t *testing.T) {
	has := map[string]bool{}
	for _, c := range readCases(t) {
		has[c.number()] = true
		if !slices.ContainsFunc(required, func(n int) bool { return fmt.Sprintf("%03d", n) == c.number() }) {
			t.Errorf("%s.case has a number that means nothing", c.name)
		}
		assigned := false
		for _, st := range c.stages {
			for _, sec := range st.asked {
				assigned = assigned || sec.Kind() == "assign" && len(sec.Body) > 0
			}
		}
		if !assigned {
			t.Errorf("%s.case expects no assignment", c.name)
		}
	}
	for _, n := range required {
		if !has[fmt.Sprintf("%03d", n)] {
			t.Errorf("no case for %d", n)
		}
	}
}
