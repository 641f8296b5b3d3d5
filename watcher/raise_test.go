package watcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// sinking is a Source whose every list is older than the one before.
type sinking struct {
	*apiSource
	at uint64
}

func (s *sinking) Watch(ctx context.Context, _ Scope, handle func(Update)) error {
	for ctx.Err() == nil {
		s.at--
		handle(Update{Kind: Listing})
		handle(Update{Kind: Listed, AsOf: s.at})
		pause(ctx, time.Second)
	}
	return nil
}

func TestAProofThatNeverEndsRaisesNowAndThenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		r.start(&sinking{&apiSource{a: a}, 100_000})
		time.Sleep(time.Hour)
		if g := r.view().record.Generation; g < 5 || g > 20 {
			t.Errorf("generation %d after an hour", g)
		}
	})
}
