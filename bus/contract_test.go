package bus_test

import (
	"testing"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
)

func TestMain(m *testing.M) { bustest.Main(m) }

func TestTheFakeKeepsTheContract(t *testing.T) {
	bustest.Suite(t, func(t *testing.T) bustest.Made {
		f := bustest.NewFake()
		return bustest.Made{
			Events: f.Events(), States: f.States(),
			Restart: func(*testing.T) { f.SetDown(true); f.SetDown(false) },
			Wipe:    func(*testing.T) { f.Wipe() },
		}
	})
}

func TestAnExternalServerKeepsTheContract(t *testing.T) {
	bustest.Suite(t, func(t *testing.T) bustest.Made {
		s := startServer(t)
		b := connect(t, bus.Config{URLs: []string{s.url}})
		return bustest.Made{Events: b.Events(), States: b.States(), Restart: s.restart, Wipe: s.wipe}
	})
}

func TestAnEmbeddedServerKeepsTheContract(t *testing.T) {
	bustest.Suite(t, func(t *testing.T) bustest.Made {
		e, err := bus.StartEmbedded(bus.EmbeddedConfig{DataDir: t.TempDir(), Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Shutdown)
		b := connect(t, bus.Config{Server: e})
		return bustest.Made{
			Events: b.Events(), States: b.States(),
			// An embedded server lives as long as its process, so what it can lose is the connection.
			Restart: func(t *testing.T) { must(t, b.Reconnect()) },
			Wipe: func(t *testing.T) {
				must(t, b.DeleteStreams(t.Context()))
				must(t, b.Reconnect())
			},
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
