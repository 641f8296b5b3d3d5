package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// message is one object of the stream, as far as we read it; exactly one field is set.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string  `json:"osv"`
		FixedVersion string  `json:"fixed_version"`
		Trace        []frame `json:"trace"`
	} `json:"finding"`
}

// frame is a step of a call path; the first is the vulnerable code, the last our own.
type frame struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Package  string `json:"package"`
	Function string `json:"function"`
}

// report is what a stream says.
type report struct {
	goVersion string            // of the Go that would build
	modules   map[string]string // called, in a module: id to one line
	standard  []string          // called, in the standard library: ids, sorted
	goFixed   string            // the oldest Go without any of standard, or "" if one has no fix yet
	uncalled  int               // known for code that we have, but do not call
}

func main() {
	r, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulns:", err)
		os.Exit(2)
	}
	r.print(os.Stdout)
	if len(r.modules) > 0 {
		os.Exit(1)
	}
}

// read folds a stream into a report.
func read(in io.Reader) (report, error) {
	r := report{modules: map[string]string{}}
	known, called, fixed, summary := map[string]bool{}, map[string]frame{}, map[string]string{}, map[string]string{}
	for dec := json.NewDecoder(in); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return r, fmt.Errorf("read govulncheck's report: %w", err)
		}
		switch {
		case m.Config != nil:
			r.goVersion = m.Config.GoVersion
		case m.OSV != nil:
			summary[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil:
			known[m.Finding.OSV] = true
			if len(m.Finding.Trace) > 0 && m.Finding.Trace[0].Function != "" {
				called[m.Finding.OSV] = m.Finding.Trace[0]
				fixed[m.Finding.OSV] = m.Finding.FixedVersion
			}
		}
	}
	if r.goVersion == "" {
		return r, errors.New("govulncheck gave no report")
	}
	r.uncalled = len(known) - len(called)
	r.split(called, fixed, summary)
	return r, nil
}

// split tells vulnerabilities of modules from those of the standard library.
func (r *report) split(called map[string]frame, fixed, summary map[string]string) {
	open := false
	for _, id := range slices.Sorted(maps.Keys(called)) {
		f, fix := called[id], fixed[id]
		if f.Module != "stdlib" {
			r.modules[id] = fmt.Sprintf("%s: %s (%s@%s, fixed in %q, https://pkg.go.dev/vuln/%s)", id, summary[id], f.Module, f.Version, fix, id)
			continue
		}
		r.standard = append(r.standard, id)
		fix = "go" + strings.TrimPrefix(fix, "v")
		open = open || !version.IsValid(fix)
		if r.goFixed == "" || version.Compare(fix, r.goFixed) > 0 {
			r.goFixed = fix
		}
	}
	if open {
		r.goFixed = ""
	}
}

// print writes the report for people.
func (r *report) print(w io.Writer) {
	for _, id := range slices.Sorted(maps.Keys(r.modules)) {
		fmt.Fprintln(w, r.modules[id])
	}
	if n := len(r.standard); n > 0 {
		fix := "not all are fixed yet"
		if r.goFixed != "" {
			fix = "build releases with " + r.goFixed + " or newer"
		}
		fmt.Fprintf(w, "warning: %s has %d known vulnerabilities that our code calls; %s: %s\n", r.goVersion, n, fix, strings.Join(r.standard, " "))
	}
	fmt.Fprintf(w, "vulnerabilities: %d called in modules, %d called in the standard library, %d not called\n", len(r.modules), len(r.standard), r.uncalled)
}
