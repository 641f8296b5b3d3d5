package main

import (
	"strings"
	"testing"
)

const config = `{"config":{"go_version":"go1.26.8"}}`

func finding(id, module, fixed, function string) string {
	return `{"finding":{"osv":"` + id + `","fixed_version":"` + fixed + `","trace":[{"module":"` + module + `","version":"v1.0.0","function":"` + function + `"}]}}`
}

func TestACalledVulnerabilityOfAModuleFails(t *testing.T) {
	r, err := read(strings.NewReader(config + finding("GO-1", "example.com/m", "v1.0.1", "") + finding("GO-1", "example.com/m", "v1.0.1", "F")))
	if err != nil || len(r.modules) != 1 || r.uncalled != 0 {
		t.Errorf("got %+v, error %v, want one vulnerability of a module", r, err)
	}
}

func TestAVulnerabilityThatIsNotCalledIsCounted(t *testing.T) {
	r, err := read(strings.NewReader(config + finding("GO-1", "example.com/m", "v1.0.1", "")))
	if err != nil || len(r.modules) != 0 || r.uncalled != 1 {
		t.Errorf("got %+v, error %v, want one that is not called", r, err)
	}
}

func TestTheStandardLibraryIsAWarningThatNamesTheGoToUse(t *testing.T) {
	r, err := read(strings.NewReader(config + finding("GO-1", "stdlib", "v1.26.10", "F") + finding("GO-2", "stdlib", "v1.26.9", "G")))
	if err != nil || len(r.modules) != 0 || len(r.standard) != 2 || r.goFixed != "go1.26.10" {
		t.Errorf("got %+v, error %v, want two fixed by go1.26.10", r, err)
	}
	r, err = read(strings.NewReader(config + finding("GO-1", "stdlib", "v1.26.10", "F") + finding("GO-2", "stdlib", "", "G")))
	if err != nil || r.goFixed != "" {
		t.Errorf("got %+v, error %v, want no Go that fixes both", r, err)
	}
}

func TestSilenceIsNoReport(t *testing.T) {
	for _, in := range []string{"", "{", `{"progress":{}}`} {
		if _, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("read(%q) gave no error", in)
		}
	}
}
