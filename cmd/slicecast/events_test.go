package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
)

func TestEventsAreReplayedFromHistoryAndFollowed(t *testing.T) {
	folder, busArgs := standalone(t)
	writeManifest(t, folder, "false")
	replay := func(args ...string) []string {
		return strings.Split(strings.TrimSpace(command(t, busArgs, append([]string{"events", "--follow=false"}, args...)...)), "\n")
	}
	until(t, "history to hold both events", func() bool { return len(replay("--since", "1h")) == 2 })
	if got := replay("--since", "87600h"); !strings.HasSuffix(got[0], "10.244.0.1 absent->rs-") || !strings.HasSuffix(got[1], "10.244.0.1 rs-->-s-") {
		t.Errorf("--since ten years: got %q", got)
	}
	if got := replay("--last", "1"); len(got) != 1 || !strings.HasSuffix(got[0], "rs-->-s-") {
		t.Errorf("--last 1: got %q", got)
	}
	if got := replay("--since-time", time.Now().Add(time.Hour).Format(time.RFC3339)); len(got) != 1 || got[0] != "" {
		t.Errorf("--since-time in an hour: got %q", got)
	}
	if got := replay("--last", "5", "--service", "other"); len(got) != 1 || got[0] != "" {
		t.Errorf("another service: got %q", got)
	}
	if got := replay("--current"); len(got) != 1 || !strings.HasSuffix(got[0], "rs-->-s-") {
		t.Errorf("--current: got %q", got)
	}
	var entry jsonEvent
	if err := json.Unmarshal([]byte(replay("--last", "1", "-o", "json", "-n", "shop", "--cluster", "east")[0]), &entry); err != nil {
		t.Fatal(err)
	}
	if entry.Service != "web" || entry.Previous == "" || entry.Missing != "" {
		t.Errorf("as JSON: got %+v", entry)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var out output
	var running sync.WaitGroup
	running.Go(func() { run(ctx, append([]string{"events", "--last", "1"}, busArgs...), &out, &out) })
	until(t, "the replay", func() bool { return strings.Count(out.String(), "\n") == 1 })
	writeManifest(t, folder, "true")
	until(t, "what follows", func() bool { return strings.Contains(out.String(), "10.244.0.1 -s-->rs-") })
	cancel()
	running.Wait()
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("got %d lines, want the last of history and the new one:\n%s", got, out.String())
	}
}

func TestAGapInHistoryIsShown(t *testing.T) {
	version := func(r uint64) endpoint.Version { return endpoint.Version{Generation: 1, Resource: r} }
	e := bus.HistoryEntry{
		Event: endpoint.Event{
			Slice: endpoint.Slice{
				Key: endpoint.Key{Cluster: "east", Namespace: "shop", Service: "web"}, Name: "web-1", Version: version(9),
				Endpoints: []endpoint.Endpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Conditions: endpoint.Ready}},
			},
			Previous: version(7),
		},
		Stored: time.Date(2026, 7, 1, 12, 0, 0, 0, time.Local), Missing: version(7),
	}
	var text, lines strings.Builder
	for p, out := range map[*eventPrinter]*strings.Builder{{config: eventsConfig{output: "text"}}: &text, {config: eventsConfig{output: "json"}}: &lines} {
		p.out = out
		if err := p.replayed(e); err != nil {
			t.Fatal(err)
		}
	}
	want := "12:00:00.000  east/shop/web  web-1  gap: version 1/7 was not recorded\n12:00:00.000  east/shop/web  web-1  rv=1/9  10.0.0.1 r--\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
	if !strings.Contains(lines.String(), `"missing":"1/7"`) || strings.Count(lines.String(), "\n") != 1 {
		t.Errorf("as JSON: got %s", lines.String())
	}
}

func TestFlagsOfEventsThatContradictAreRefused(t *testing.T) {
	for _, args := range [...][]string{
		{"--since", "-2h"}, {"--since", "0"}, {"--last", "0"}, {"--last", "-1"}, {"--since", "1h", "--since-time", "2026-01-01T00:00:00Z"},
		{"--since-time", "yesterday"}, {"--current", "--last", "1"}, {"--follow=false"}, {"--since", "two hours"},
	} {
		var out output
		if code := run(t.Context(), append([]string{"events"}, args...), &out, &out); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, exitUsage, out.String())
		}
	}
}
