package bus_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// poison puts bytes that nobody can read on every subject that there is, and on some that there should not be.
func (w *world) poison(r *rand.Rand, kind int) {
	w.t.Helper()
	w.admin(func(ctx context.Context, js jetstream.JetStream) error {
		for _, name := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE", "SLICECAST_HISTORY"} {
			st, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			info, err := st.Info(ctx, jetstream.WithSubjectFilter(">"))
			if err != nil {
				return err
			}
			subjects := slices.Sorted(maps.Keys(info.State.Subjects))
			for _, s := range append(subjects, strangers(name)...) {
				m := &nats.Msg{Subject: s, Header: nats.Header{}, Data: garbage(r)}
				if last, err := st.GetLastMsgForSubject(ctx, s); err == nil {
					spoil(r, kind, m, last)
				}
				if _, err := js.PublishMsg(ctx, m); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// spoil makes m of what is on its subject.
func spoil(r *rand.Rand, kind int, m *nats.Msg, last *jetstream.RawStreamMsg) {
	switch kind {
	case 1: // the headers are good, the body is not
		for k, v := range last.Header {
			if !strings.HasPrefix(k, "Nats-") { // those are for the server
				m.Header[k] = v
			}
		}
	case 2: // the body is good, the headers are not
		m.Data = last.Data
		for k := range last.Header {
			if !strings.HasPrefix(k, "Nats-") {
				m.Header.Set(k, fmt.Sprintf("%x", garbage(r)))
			}
		}
	case 3:
		m.Data = nil
	}
}

// strangers are subjects of a stream that no release of slicecast writes.
func strangers(stream string) []string {
	root := map[string]string{
		"SLICECAST_EVENTS": "slicecast.v1.events.", "SLICECAST_STATE": "slicecast.v1.state.", "SLICECAST_HISTORY": "slicecast.v1.history.",
	}[stream]
	return []string{
		root + "east", root + "east.shop.steady-0", root + "east._unknown", root + "nowhere._checkpoint", root + "east.shop.steady-0.new-slice", root + "UPPER.x.y.z",
	}
}

func garbage(r *rand.Rand) []byte {
	b := make([]byte, 1+r.IntN(200))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPoisonOnEverySubjectTakesNothingAwayAndIsHealed(t *testing.T) {
	t.Parallel()
	for kind, what := range []string{"bytes without headers", "a body that does not fit its headers", "headers that do not fit the body", "nothing"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, single(t).URLs())
			w.changes(50)
			w.poison(rand.New(rand.NewPCG(*seed, uint64(kind))), kind)
			w.changes(100)
			w.settle("after poison under change")
			w.poison(rand.New(rand.NewPCG(*seed, uint64(kind))), kind)
			w.settle("after poison in quiet")
			for _, role := range w.All() {
				role.Restart()
			}
			w.settle("after all have started anew")
		})
	}
}
