package watcher

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

func TestWhatTheSourceSaysReachesTheBusWithACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		w, _ := r.start(&apiSource{a: a}, func(c *Config) { c.Region = "eu" })
		r.want("after start", "a@1/101 http:8080 10.0.0.1[rs-]x")
		if !w.Ready() {
			t.Errorf("not ready: %s", w.Status().Why)
		}
		time.Sleep(50 * time.Millisecond)
		v := r.view()
		if want := (ledger.Record{UID: "uid-1", Generation: 1, Region: "eu", Scope: "all"}); v.record != want {
			t.Errorf("record %+v, want %+v", v.record, want)
		}
		if v.cp.Complete != ver(1, 101) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("checkpoint %+v: verdict %d", v.cp, v.led.Judge(v.cp))
		}
		a.set(esl("b", 0, ep("10.0.0.2", "ttf", "y")))
		a.set(esl("a", 0, ep("10.0.0.1", "ftt", "x"), ep("10.0.0.3", "ttf", "z")))
		r.want("after changes", "a@1/103 http:8080 10.0.0.1[-st]x 10.0.0.3[rs-]z", "b@1/102 http:8080 10.0.0.2[rs-]y")
		ev := r.view().live["a"]
		if ev.Previous != ver(1, 101) || len(ev.Peers) != 1 || ev.Peers[0] != (endpoint.Ref{Name: "b", Version: ver(1, 102)}) {
			t.Errorf("previous %s, peers %+v", ev.Previous, ev.Peers)
		}
		if len(ev.Transitions) != 2 || ev.Transitions[0].Before.String() != "rs-" || ev.Transitions[0].After.String() != "-st" {
			t.Errorf("transitions %+v", ev.Transitions)
		}
		a.remove("a")
		r.want("after the removal", "b@1/102")
		if ev := r.view().gone["a"]; ev == nil || ev.Slice.Version != ver(1, 104) || ev.Slice.UID != "uid-a" || len(ev.Transitions) != 2 {
			t.Errorf("tombstone %+v", ev)
		}
		time.Sleep(2 * time.Second)
		if v := r.view(); v.cp.Complete != ver(1, 104) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("checkpoint %+v: verdict %d", v.cp, v.led.Judge(v.cp))
		}
	})
}

func TestTheSecondWatcherWritesNothingTwiceAndTheDeathOfOneCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		_, stop := r.start(&apiSource{a: a})
		r.start(&apiSource{a: a, lag: 20 * time.Millisecond})
		synctest.Wait()
		for i := range 20 {
			a.set(esl("a", 0, ep("10.0.0.1", "ttf", fmt.Sprint(i))))
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		a.set(esl("a", 0, ep("10.0.0.9", "ttf", "last")))
		a.remove("a")
		a.set(esl("b", 0, ep("10.0.0.9", "ttf", "last")))
		time.Sleep(time.Second)
		r.want("after the death of the first", "b@1/123")
		if n := r.log.count("level=WARN") + r.log.count("level=ERROR"); n > 0 {
			t.Errorf("log:\n%s", r.log)
		}
	})
}

func TestLosingTheAPIServerRemovesNothingAndIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		w, _ := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		a.setDown(true)
		time.Sleep(30 * time.Minute)
		r.want("lost", "a@1/101")
		if w.Ready() || r.log.count("cannot be heard") != 1 {
			t.Errorf("ready %v, log:\n%s", w.Ready(), r.log)
		}
		a.remove("a")
		a.set(esl("b", 0))
		a.setDown(false)
		r.want("back", "b@1/103")
		if !w.Ready() || r.log.count("can be heard again") != 1 {
			t.Errorf("ready %v, log:\n%s", w.Ready(), r.log)
		}
	})
}

func TestAnUnreachableAPIServerAtStartIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		a.setDown(true)
		w, _ := r.start(&apiSource{a: a})
		time.Sleep(10 * time.Minute)
		r.want("down")
		if w.Ready() || r.log.count("cannot be heard") != 1 {
			t.Errorf("ready %v, log:\n%s", w.Ready(), r.log)
		}
		a.setDown(false)
		time.Sleep(time.Minute)
		r.want("up", "a@1/101")
	})
}

func TestNothingIsWrittenWhileTheSourceWasNotHeardForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		w, _ := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		a.setDown(true)
		time.Sleep(2 * time.Hour)
		r.fake.Wipe()
		time.Sleep(time.Minute)
		r.want("stale: a wiped bus is not refilled from an old cache")
		if s := w.Status(); s.Ready || r.log.count("nothing is written") != 1 {
			t.Errorf("status %+v, log:\n%s", s, r.log)
		}
		a.setDown(false)
		r.want("heard again", "a@1/101")
	})
}

func TestAWipedBusIsRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		a.set(esl("b", 0))
		r.start(&apiSource{a: a})
		r.want("start", "a@1/101", "b@1/102")
		r.fake.Wipe()
		time.Sleep(10 * time.Second)
		r.want("wiped", "a@1/101", "b@1/102")
		if v := r.view(); v.cp.Complete != ver(1, 102) || v.led.Judge(v.cp) != ledger.Agrees || v.record.Generation != 1 {
			t.Errorf("checkpoint %+v verdict %d record %+v", v.cp, v.led.Judge(v.cp), v.record)
		}
	})
}

func TestTheLastStateOfEachSliceSurvivesALostBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		for i := range 300 {
			a.set(esl(fmt.Sprintf("s%03d", i), 0))
		}
		w, _ := r.start(&apiSource{a: a})
		time.Sleep(2 * time.Second)
		r.fake.Fail(errors.New("no response from stream"))
		for i := range 300 {
			if i%3 == 0 {
				a.remove(fmt.Sprintf("s%03d", i))
			} else {
				a.set(esl(fmt.Sprintf("s%03d", i), 0, ep("10.0.0.1", "ttf", "x")))
				a.set(esl(fmt.Sprintf("s%03d", i), 0, ep("10.0.0.2", "ttf", "x")))
			}
		}
		time.Sleep(time.Minute)
		if s := w.Status(); s.Dirty != 300 || s.OldestDirty.IsZero() || time.Since(s.OldestDirty) < 30*time.Second {
			t.Errorf("status %+v", s)
		}
		if _, cp := r.bus(); cp.Complete != ver(1, 400) {
			t.Errorf("checkpoint %+v while writes fail", cp)
		}
		r.fake.Fail(nil)
		time.Sleep(20 * time.Second)
		live, cp := r.bus()
		if len(live) != 200 || cp.Complete != ver(1, 900) || w.Status().Dirty != 0 {
			t.Errorf("%d live slices, checkpoint %s, status %+v", len(live), cp.Complete, w.Status())
		}
		if n := r.log.count("events are not written"); n < 1 || n > 10 {
			t.Errorf("%d warnings", n)
		}
	})
}

func TestOneSliceThatCannotBeWrittenHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		stuck := &stuckEvents{FakeEvents: r.fake.Events(), name: "bad"}
		a.set(esl("good", 0))
		w, _ := r.start(&apiSource{a: a}, func(c *Config) { c.Events = stuck })
		time.Sleep(3 * time.Second)
		a.set(esl("other", 0))
		a.set(esl("bad", 0))
		a.set(esl("good", 0, ep("10.0.0.1", "ttf", "x")))
		time.Sleep(3 * time.Second)
		r.want("stuck", "good@1/104", "other@1/102")
		if _, cp := r.bus(); cp.Complete != ver(1, 102) {
			t.Errorf("checkpoint %s, want the last one before the slice that cannot be written", cp.Complete)
		}
		if s := w.Status(); s.Dirty != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestARestartedWatcherTombstonesWhatWentMeanwhileAndRewritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		a.set(esl("b", 0))
		_, stop := r.start(&apiSource{a: a})
		r.want("start", "a@1/101", "b@1/102")
		stop()
		a.remove("a")
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg)
		r.start(&apiSource{a: a}, func(c *Config) { c.Metrics = m })
		r.want("restarted", "b@1/102")
		if puts := testutil.ToFloat64(m.events.WithLabelValues("prod", "put")); puts != 0 {
			t.Errorf("%v puts after a restart without a change", puts)
		}
		if n, err := testutil.GatherAndCount(reg); err != nil || n < 20 {
			t.Errorf("%d metrics, error %v", n, err)
		}
	})
}

func TestAnotherIdentityWritesNothingUntilItIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, b := newRig(t), newAPI(), newAPI()
		a.set(esl("a", 0))
		_, stop := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		stop()
		b.uid, b.version = "uid-2", 5
		b.set(esl("other", 0))
		w, _ := r.start(&apiSource{a: b})
		time.Sleep(time.Hour)
		r.want("another cluster", "a@1/101")
		if w.Ready() || r.log.count("another identity") != 1 || r.log.count("cluster adopt") != 1 {
			t.Errorf("ready %v, log:\n%s", w.Ready(), r.log)
		}
		e := r.fake.Events()
		rec, seq, err := e.Record(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		rec.UID, rec.Generation = "uid-2", rec.Generation+1
		if res, err := e.PutRecord(t.Context(), "prod", rec, seq); err != nil || !res.Saved {
			t.Fatal(res, err)
		}
		time.Sleep(time.Second)
		r.want("adopted: leftovers go, without a restart", "other@2/6")
		if !w.Ready() {
			t.Errorf("not ready: %s", w.Status().Why)
		}
	})
}

func TestAHistoryThatWentBackRaisesTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		r.start(&apiSource{a: a})
		r.start(&apiSource{a: a, lag: 5 * time.Millisecond})
		r.want("start", "a@1/101")
		old := a.now[object{"shop", "a"}]
		a.set(esl("a", 0, ep("10.0.0.2", "ttf", "y")))
		a.set(esl("lost", 0))
		time.Sleep(time.Second)
		r.want("before", "a@1/102", "lost@1/103")
		a.restore(101, old)
		time.Sleep(10 * time.Second)
		r.want("restored", "a@2/101 http:8080 10.0.0.1[rs-]x")
		if v := r.view(); v.record.Generation != 2 || v.cp.Complete != ver(2, 101) || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("record %+v, checkpoint %+v", v.record, v.cp)
		}
		if n := r.log.count("generation of the cluster is raised"); n < 1 {
			t.Errorf("log:\n%s", r.log)
		}
	})
}

func TestOtherContentAtTheSameVersionIsReportedAndOutvotedOnceByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		w, _ := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		e := r.fake.Events()
		other := func() {
			t.Helper()
			ev := *r.view().live["a"]
			ev.Slice.Endpoints, ev.Transitions = nil, nil
			n, err := e.Get(t.Context(), ev.Slice.Key, "a")
			if err != nil {
				t.Fatal(err)
			}
			if res, err := e.Put(t.Context(), ev, n.Seq); err != nil || !res.Saved {
				t.Fatal(res, err)
			}
			time.Sleep(time.Minute)
		}
		other()
		r.want("a list has shown what the cluster says", "a@2/101 http:8080 10.0.0.1[rs-]x")
		other()
		r.want("not at once again: this may be no restore", "a@2/101 http:8080")
		if n := r.log.count("other content"); n != 2 || w.Status().Dirty != 0 {
			t.Errorf("reported %d times:\n%s", n, r.log)
		}
		if v := r.view(); v.led.Judge(v.cp) == ledger.Agrees {
			t.Errorf("checkpoint %+v certifies what the watcher does not believe", v.cp)
		}
		time.Sleep(time.Hour)
		r.want("but later", "a@3/101 http:8080 10.0.0.1[rs-]x")
	})
}

func TestTheFloorIsAnsweredAndACheckpointFollowsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		w, _ := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		time.Sleep(10 * time.Second)
		a.set(esl("a", 0, ep("10.0.0.1", "ttf", "x")))
		synctest.Wait()
		a.set(esl("a", 0, ep("10.0.0.2", "ttf", "x")))
		floor, err := w.Floor(t.Context())
		if err != nil || floor != ver(1, 103) {
			t.Fatalf("floor %s, error %v", floor, err)
		}
		time.Sleep(50 * time.Millisecond)
		if _, cp := r.bus(); cp.Complete != floor {
			t.Errorf("checkpoint %s after a query for %s", cp.Complete, floor)
		}
	})
}

func TestASliceThatMovesToAnotherServiceLeavesTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		moved := esl("a", 0)
		moved.Labels[labelService] = "other"
		a.set(moved)
		synctest.Wait()
		e := r.fake.Events()
		old, _ := e.Get(t.Context(), endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "cart"}, "a")
		now, _ := e.Get(t.Context(), endpoint.Key{Cluster: "prod", Namespace: "shop", Service: "other"}, "a")
		if !old.Gone || now.Gone || now.Version != ver(1, 102) {
			t.Errorf("old %+v, new %+v", old, now)
		}
		moved.Labels = nil
		a.set(moved)
		r.want("without a service")
	})
}

func TestAConfigWithoutItsPartsIsRefused(t *testing.T) {
	e := bustest.NewFake().Events()
	for name, cfg := range map[string]Config{
		"no name":   {Source: &apiSource{}, Events: e, Certifier: e, Records: e},
		"no source": {Cluster: "c", Events: e, Certifier: e, Records: e},
		"no events": {Cluster: "c", Source: &apiSource{}, Certifier: e, Records: e},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	_ = cmp.Diff
}
