package watcher

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func TestWhatCannotBeReadIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		a.set(esl("b", 0, ep("10.0.0.2", "ttf", "y")))
		_, stop := r.start(&apiSource{a: a})
		r.want("start", "a@1/101", "b@1/102")
		key := r.view().live["a"].Slice.Key
		e := r.fake.Events()

		e.Spoil(key, "a")
		r.want("a slice, in quiet", "a@1/101", "b@1/102")
		e.Spoil(key, "b")
		a.set(esl("b", 0, ep("10.0.0.3", "ttf", "z")))
		r.want("a slice, under change", "a@1/101", "b@1/103")

		e.SpoilCheckpoint("prod")
		time.Sleep(10 * time.Second)
		if v := r.view(); v.cp.Complete != ver(1, 103) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("checkpoint %+v: verdict %d, want it as of 103 and true", v.cp, v.led.Judge(v.cp))
		}
		before := r.view().record
		e.SpoilRecord("prod")
		time.Sleep(time.Second)
		if got := r.view().record; got != before {
			t.Errorf("record %+v, want %+v", got, before)
		}

		e.Spoil(key, "nobody-has-it")
		time.Sleep(time.Minute)
		if v := r.view(); v.gone["nobody-has-it"] == nil {
			t.Error("a slice that the cluster does not hold has no tombstone")
		}
		r.want("all", "a@1/101", "b@1/103")

		// While no watcher runs, and found by the next one.
		stop()
		e.Spoil(key, "a")
		e.SpoilCheckpoint("prod")
		a.remove("b")
		e.Spoil(key, "b")
		r.start(&apiSource{a: a})
		time.Sleep(time.Minute)
		r.want("after a restart", "a@1/101")
		if v := r.view(); v.cp.Complete != ver(1, 104) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("checkpoint %+v: verdict %d, want it as of 104 and true", v.cp, v.led.Judge(v.cp))
		}
	})
}

func TestABodyThatCannotBeReadBesideGoodHeadersIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		a.set(esl("b", 0, ep("10.0.0.2", "ttf", "y")))
		_, stop := r.start(&apiSource{a: a})
		r.start(&apiSource{a: a})
		r.want("start", "a@1/101", "b@1/102")
		key := r.view().live["a"].Slice.Key
		e := r.fake.Events()
		e.SpoilBody(key, "a")
		r.want("in quiet", "a@1/101", "b@1/102")
		stop()
		a.remove("b")
		r.want("one removed", "a@1/101")
		e.SpoilBody(key, "a")
		e.SpoilBody(key, "b")
		r.start(&apiSource{a: a})
		time.Sleep(time.Minute)
		r.want("after a restart", "a@1/101")
		if v := r.view(); v.gone["b"] == nil || v.cp.Complete != ver(1, 103) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("tombstone %v, checkpoint %+v, verdict %d, want a good tombstone, and a true checkpoint", v.gone["b"], v.cp, v.led.Judge(v.cp))
		}
	})
}

func TestEachMessageOfAnotherIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		for i := range 20 {
			a.set(esl(fmt.Sprint("s", i), 0, ep("10.0.0.1", "ttf", "x")))
		}
		_, stop := r.start(&apiSource{a: a})
		synctest.Wait()
		stop()
		reads := &countedReads{EventStore: r.fake.Events()}
		r.start(&apiSource{a: a}, func(c *Config) { c.Events = reads })
		synctest.Wait()
		for range 5 {
			r.fake.Restart()
			time.Sleep(time.Minute)
		}
		a.set(esl("own", 0, ep("10.0.0.2", "ttf", "y")))
		time.Sleep(time.Minute)
		if got := reads.n.Load(); got != 20 {
			t.Errorf("%d messages were read, want the 20 that another process wrote, once", got)
		}
	})
}

// countedReads counts calls of Get.
type countedReads struct {
	bustest.EventStore
	n atomic.Int32
}

func (c *countedReads) Get(ctx context.Context, key endpoint.Key, slice string) (ledger.Notice, error) {
	c.n.Add(1)
	return c.EventStore.Get(ctx, key, slice)
}

func TestARecordThatNobodyCanReadStopsAFreshWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		r.fake.Events().SpoilRecord("prod")
		w, _ := r.start(&apiSource{a: a})
		time.Sleep(time.Minute)
		r.want("nobody knows whose the name is")
		if w.Ready() || r.log.count("the record of the cluster cannot be written") != 1 {
			t.Errorf("ready %v, log:\n%s", w.Ready(), r.log)
		}
	})
}
