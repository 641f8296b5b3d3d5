package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/xdsserver"
)

func TestOnlyPlaintextOnLoopbackServesEverybodyUnasked(t *testing.T) {
	pair := xdsserver.TLSFiles{Cert: "c", Key: "k"}
	mutual := xdsserver.TLSFiles{Cert: "c", Key: "k", ClientCA: "ca"}
	tests := []struct {
		name   string
		flags  accessFlags
		listen string
		want   string // of the error, "" for none
	}{
		{"loopback", accessFlags{}, "127.0.0.1:18000", ""},
		{"loopback, IPv6", accessFlags{}, "[::1]:18000", ""},
		{"loopback by name", accessFlags{}, "localhost:18000", ""},
		{"everywhere", accessFlags{}, ":18000", "--xds-allow-all"},
		{"another address", accessFlags{}, "10.0.0.1:18000", "--xds-allow-all"},
		{"another address, on purpose", accessFlags{allowAll: true}, "10.0.0.1:18000", ""},
		{"TLS without rules", accessFlags{files: mutual}, "127.0.0.1:18000", "--xds-access"},
		{"TLS for everybody, on purpose", accessFlags{files: pair, allowAll: true}, ":18000", ""},
		{"rules without certificates", accessFlags{files: pair, rules: "f"}, ":18000", "--xds-client-ca"},
		{"rules and none", accessFlags{files: mutual, rules: "f", allowAll: true}, ":18000", "only one of"},
		{"half a pair", accessFlags{files: xdsserver.TLSFiles{Cert: "c"}}, ":18000", "belong together"},
		{"client CA alone", accessFlags{files: xdsserver.TLSFiles{ClientCA: "c"}}, ":18000", "--xds-client-ca needs"},
		{"no file", accessFlags{files: mutual, rules: filepath.Join(t.TempDir(), "none")}, ":18000", "no such file"},
	}
	for _, tt := range tests {
		_, err := tt.flags.access(tt.listen, slog.New(slog.DiscardHandler))
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

func TestChangedAccessRulesAreTakenAndWrongOnesAreNot(t *testing.T) {
	const one = "rules:\n- identity: a\n  namespaces: [shop]\n  clusters: ['*']\n"
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(text string, minute int) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(one, 0)
	f := accessFlags{files: xdsserver.TLSFiles{Cert: "c", Key: "k", ClientCA: "ca"}, rules: path}
	access, err := f.access(":18000", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	sees := func() bool { return access().Scope([]string{"a"}).Sees("shop", "ca") }
	if !sees() {
		t.Fatal("the first rules are not in force")
	}
	for i, text := range []string{"rules:\n- identity: a\n", "rules: [", "rule: []\n"} {
		if write(text, 1+i); !sees() {
			t.Fatalf("wrong rules %q are in force", text)
		}
	}
	if write(strings.Replace(one, "shop", "other", 1), 9); sees() {
		t.Error("changed rules are not in force")
	}
}

func TestWrongAccessRulesAreNamedByFileAndPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte("rules:\n- identity: a\n  namespaces: [shop]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := accessFlags{files: xdsserver.TLSFiles{Cert: "c", Key: "k", ClientCA: "ca"}, rules: path}
	_, err := f.access(":18000", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "rule 1") || !strings.Contains(err.Error(), "clusters") {
		t.Errorf("got %v, want %s, rule 1 and clusters named", err, path)
	}
}
