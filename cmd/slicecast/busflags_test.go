package main

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestBusFlagsSayWhoTheClientIs(t *testing.T) {
	parse := func(args ...string) *busFlags {
		var b busFlags
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		b.add(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	// The password is not read here but for each connection, so that it can be rotated.
	cfg, err := parse("--nats=nats://a:1,nats://b:2", "--nats-password-file=/none", "--nats-inbox-prefix=_INBOX_xds").config("xds/1", telemetry{})
	if err != nil || len(cfg.URLs) != 2 || cfg.User != "slicecast" || cfg.PasswordFile != "/none" || cfg.Password != "" || cfg.InboxPrefix != "_INBOX_xds" {
		t.Errorf("a password file: got %+v, %v", cfg, err)
	}
	if cfg, err := parse("--nats-user=xds", "--nats-password-file=/none").config("xds/1", telemetry{}); err != nil || cfg.User != "xds" {
		t.Errorf("a user: got %+v, %v", cfg, err)
	}
	if cfg, err := parse("--nats-creds=/c", "--nats-ca=/ca").config("xds/1", telemetry{}); err != nil || cfg.CredsFile != "/c" || cfg.CAFile != "/ca" || cfg.User != "" {
		t.Errorf("credentials: got %+v, %v", cfg, err)
	}
	if _, err := parse("--nats-user=xds").config("xds/1", telemetry{}); err == nil {
		t.Error("a user without a password: got no error")
	}
}
