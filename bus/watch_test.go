package bus

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAWatchNoticesAnotherStream(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	e, err := StartEmbedded(EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown()
	b, err := Connect(t.Context(), Config{Name: "test", Server: e, Log: quiet, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	st, info, err := b.ensure(t.Context(), b.eventsSpec())
	if err != nil {
		t.Fatal(err)
	}
	check := func(created time.Time, seen uint64) error {
		w := watch{s: &session{b: b, r: reader{spec: b.eventsSpec(), filter: eventsRoot + ">"}, created: created}, st: st, last: seen}
		return w.check(t.Context())
	}
	if err := check(info.Created, 0); err != nil {
		t.Errorf("the same stream: got %v", err)
	}
	if err := check(info.Created.Add(-time.Second), 0); !errors.Is(err, errRecreated) {
		t.Errorf("a stream made later: got %v, want errRecreated", err)
	}
	if err := check(info.Created, 1); !errors.Is(err, errBack) {
		t.Errorf("a stream that went back: got %v, want errBack", err)
	}
	if err := b.DeleteStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := check(info.Created, 0); !errors.Is(err, errRecreated) {
		t.Errorf("no stream: got %v, want errRecreated", err)
	}
}
