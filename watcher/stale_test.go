package watcher

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// deaf is a Source that hears nothing while it is cut off, and whose first Watch then goes on where it was.
type deaf struct {
	*apiSource
	cut    atomic.Bool
	joined chan struct{} // closed: it hears again
}

func (d *deaf) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	return d.apiSource.Watch(ctx, scope, func(u Update) {
		if d.cut.Load() {
			<-d.joined
			handle(Update{Kind: Heard})
			time.Sleep(time.Second)
			d.cut.Store(false)
		}
		handle(u)
	})
}

func TestAWatcherThatWasDeafForDaysBringsNothingBackWhoseTombstoneHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		a.set(esl("b", 0))
		_, stop := r.start(&apiSource{a: a})
		d := &deaf{apiSource: &apiSource{a: a}, joined: make(chan struct{})}
		w, _ := r.start(d)
		r.want("start", "a@1/101", "b@1/102")
		d.cut.Store(true)
		a.remove("a")
		time.Sleep(2 * time.Second)
		stop()
		key := endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}
		time.Sleep(48 * time.Hour)
		r.fake.Events().Expire(key, "a")
		r.fake.Restart()
		time.Sleep(time.Minute)
		if w.Ready() {
			t.Error("ready")
		}
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan error, 1)
		go func() {
			followed <- r.fake.Events().Follow(ctx, "prod", true, func(n ledger.Notice) error {
				if n.Kind == ledger.Changed && n.Slice == "a" {
					t.Errorf("%s is written: %+v", n.Slice, n)
				}
				return nil
			})
		}()
		close(d.joined)
		time.Sleep(time.Minute)
		r.want("heard again", "b@1/102")
		cancel()
		if err := <-followed; err != nil {
			t.Error(err)
		}
		if !w.Ready() {
			t.Errorf("not ready: %s", w.Status().Why)
		}
	})
}
