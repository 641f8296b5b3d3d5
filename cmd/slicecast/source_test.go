package main

import (
	"strings"
	"testing"
)

func TestClusterFlagNamesASource(t *testing.T) {
	for text, want := range map[string]clusterSpec{
		"east=dir:./a":                      {name: "east", kind: fromDir, path: "./a"},
		"east=dir:./a,region=eu":            {name: "east", kind: fromDir, path: "./a", region: "eu"},
		"west=kubeconfig:/k":                {name: "west", kind: fromKubeconfig, path: "/k"},
		"west=kubeconfig:/k#admin,region=u": {name: "west", kind: fromKubeconfig, path: "/k", context: "admin", region: "u"},
		"own=incluster":                     {name: "own", kind: fromInCluster},
	} {
		got, err := parseCluster(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestABadClusterFlagIsNamed(t *testing.T) {
	for _, text := range []string{
		"", "east", "=dir:a", "East=dir:a", "a.b=dir:a", "east=", "east=dir:", "east=ftp:x", "east=incluster:x",
		"east=kubeconfig:", "east=dir:a,region=", "east=dir:a,zone=b",
	} {
		_, err := parseCluster(text)
		if err == nil || !strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("%q: error %v does not name it", text, err)
		}
	}
	if _, err := parseClusters([]string{"a=dir:x", "a=dir:y"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a cluster given twice: %v", err)
	}
}

func TestWithoutAClusterTheCurrentContextIsLocal(t *testing.T) {
	got, err := parseClusters(nil)
	if err != nil || len(got) != 1 || got[0] != (clusterSpec{name: "local", kind: fromKubeconfig}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
