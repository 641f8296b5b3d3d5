package maptest

import (
	"path"
	"slices"
	"strings"
)

const module = "github.com/slicecast/slicecast"

// rooms never import each other; only cmd and test join them.
var rooms = []string{"watcher", "bus", "projector", "xdsserver"}

// shared is what every room may import beside the standard library.
var shared = []string{module + "/internal/endpoint", "github.com/prometheus/client_golang", "golang.org/x"}

// allowed is the import table: what each room may import beyond shared and itself.
var allowed = map[string][]string{
	"watcher":   {"k8s.io", "sigs.k8s.io", "github.com/fsnotify/fsnotify"},
	"bus":       {module + "/proto", "github.com/nats-io", "google.golang.org/protobuf", "github.com/klauspost/compress"},
	"projector": {},
	"xdsserver": {
		"github.com/envoyproxy/go-control-plane", "github.com/cncf/xds/go", "google.golang.org/grpc",
		"google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
	},
}

// impure is the part of the standard library that values and pure functions do not need.
var impure = []string{
	"context", "crypto/rand", "io/ioutil", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "testing", "unsafe",
}

// pureNet are the packages below net that hold values only.
var pureNet = []string{"net/netip", "net/url"}

// refusal says why file, a slash path from the root of the repository, may not import imp; it is empty if it may.
// pure tells that the file calls itself so.
func refusal(file, imp string, pure bool) string {
	own := roomOf(file)
	test := isTest(file)
	target, inside := strings.CutPrefix(imp, module+"/")
	free := strings.HasPrefix(file, "cmd/") || strings.HasPrefix(file, "test/")
	other := roomOf(target + "/")
	helper := test && isTestHelper(target)
	if inside && other != "" && other != own && !free && !helper {
		return "only cmd joins rooms"
	}
	switch {
	case test || strings.HasPrefix(file, "test/"):
		return ""
	case inside && isTestHelper(target):
		return "test helpers are for tests"
	case strings.HasPrefix(imp, "github.com/nats-io/nats-server") && strings.HasPrefix(file, "cmd/"):
		return "the embedded server is reached through bus"
	case (pure || strings.HasPrefix(file, "internal/endpoint/")) && matches(imp, impure) && !matches(imp, pureNet):
		return "pure code needs values only"
	case isStandard(imp):
		return ""
	case strings.HasPrefix(file, "internal/endpoint/") && !matches(imp, []string{module + "/internal/endpoint"}):
		return "internal/endpoint stands on the standard library alone"
	case own != "" && !matches(imp, shared) && !matches(imp, allowed[own]) && !matches(imp, []string{module + "/" + own}):
		return "not in the import table of " + own
	}
	return ""
}

// roomOf returns the room that a path from the root lies in, or "".
func roomOf(file string) string {
	top, _, _ := strings.Cut(file, "/")
	if slices.Contains(rooms, top) {
		return top
	}
	return ""
}

// isTest tells whether a file is compiled for tests only: by its name, or because its package is a test helper.
func isTest(file string) bool {
	return strings.HasSuffix(file, "_test.go") || isTestHelper(path.Dir(file))
}

// isTestHelper tells whether a package is a test helper, as endpointtest and bustest are.
func isTestHelper(pkg string) bool {
	base := path.Base(pkg)
	return strings.HasSuffix(base, "test") && base != "test"
}

func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// matches tells whether imp is one of the packages of list or lies below one.
func matches(imp string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return imp == p || strings.HasPrefix(imp, p+"/") })
}
