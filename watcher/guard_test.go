package watcher

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// only sees the objects whose name begins with one of the prefixes.
func only(prefixes ...string) func(*discoveryv1.EndpointSlice) bool {
	return func(es *discoveryv1.EndpointSlice) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(es.Name, p) {
				return true
			}
		}
		return false
	}
}

func narrow(reg *registry, extent string, confirm bool) func(*Config) {
	return func(c *Config) {
		if c.Extent, c.ConfirmRemoval = extent, confirm; reg != nil {
			c.Registry = reg.one()
		}
	}
}

func TestOneFifthIsWhatMayGoUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		removed, all int
		want         bool
	}{{0, 0, false}, {0, 10, false}, {2, 10, false}, {3, 10, true}, {1, 1, true}, {2001, 10_000, true}, {2000, 10_000, false}} {
		if got := TooMany(tt.removed, tt.all); got != tt.want {
			t.Errorf("%d of %d: %v", tt.removed, tt.all, got)
		}
	}
}

func TestAChangeOfScopeThatRemovesMuchIsHeldUntilItIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for _, n := range []string{"a1", "a2", "a3", "b1", "b2"} {
			a.set(esl(n, 0))
		}
		_, stop := r.start(&apiSource{a: a}, narrow(reg, "all", false))
		r.want("start", "a1@1/101", "a2@1/102", "a3@1/103", "b1@1/104", "b2@1/105")
		time.Sleep(10 * time.Second)
		stop()
		a.remove("a1") // while nobody watches: neither evidence nor not, the list does not tell it from a change of scope
		w, stop := r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", false))
		time.Sleep(time.Hour)
		a.set(esl("a2", 0))
		a.set(esl("a4", 0))
		a.remove("a3")
		time.Sleep(time.Hour)
		r.want("held, but what is seen goes on", "a1@1/101", "a2@1/107", "a4@1/108", "b1@1/104", "b2@1/105")
		if s := w.Status(); s.HeldRemovals != 3 || !s.Ready || r.log.count("--confirm-removal") != 1 {
			t.Errorf("status %+v, log:\n%s", s, r.log)
		}
		if v := r.view(); v.record.Scope != "all" || v.led.Judge(v.cp) == ledger.Agrees && v.cp.Complete.Resource > 105 {
			t.Errorf("record %+v, checkpoint %+v", v.record, v.cp)
		}
		r.fake.Wipe()
		time.Sleep(time.Minute)
		if v := r.view(); v.record.Scope != "all" {
			t.Errorf("a wiped bus has confirmed the change: %+v", v.record)
		} else if v.cpSeq != 0 {
			t.Errorf("a part of the cluster is certified to be all of it: %+v", v.cp)
		}
		stop()
		w, _ = r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", true))
		time.Sleep(time.Minute)
		r.want("confirmed", "a2@1/107", "a4@1/108")
		if v := r.view(); v.record.Scope != "prefix=a" || v.record.Generation != 1 || v.cp.Complete.Resource < 109 || v.led.Judge(v.cp) != ledger.Agrees || w.Status().HeldRemovals != 0 {
			t.Errorf("record %+v, checkpoint %+v, status %+v", v.record, v.cp, w.Status())
		}
	})
}

func TestAHeldRemovalIsDoneOnceConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for _, n := range []string{"a1", "b1"} {
			a.set(esl(n, 0))
		}
		_, stop := r.start(&apiSource{a: a}, narrow(reg, "all", false))
		r.want("start", "a1@1/101", "b1@1/102")
		stop()
		_, stop = r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", false))
		time.Sleep(time.Minute)
		r.want("held", "a1@1/101", "b1@1/102")
		stop()
		r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", true))
		time.Sleep(time.Minute)
		a.set(esl("a1", 0))
		time.Sleep(time.Minute)
		r.want("confirmed", "a1@1/103")
	})
}

func TestAListInTheScopeInForceIsNeverHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for i := range 10 {
			a.set(esl(fmt.Sprint("a", i), 0))
		}
		_, stop := r.start(&apiSource{a: a}, narrow(reg, "all", false))
		time.Sleep(time.Second)
		stop()
		for i := range 9 {
			a.remove(fmt.Sprint("a", i))
		}
		r.start(&apiSource{a: a}, narrow(reg, "all", false))
		time.Sleep(time.Second)
		r.want("deleted while nobody watched", "a9@1/110")
	})
}

func TestAChangeOfScopeThatRemovesLittleNeedsNoConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for _, n := range []string{"a1", "a2", "a3", "a4", "b1"} {
			a.set(esl(n, 0))
		}
		_, stop := r.start(&apiSource{a: a}, narrow(reg, "all", false))
		time.Sleep(time.Second)
		stop()
		r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", false))
		time.Sleep(time.Second)
		a.set(esl("a1", 0))
		r.want("narrowed", "a1@1/106", "a2@1/102", "a3@1/103", "a4@1/104")
		if v := r.view(); v.record.Scope != "prefix=a" {
			t.Errorf("record %+v", v.record)
		}
	})
}

// Readers drop a slice at a version that they were told to be complete as of without it. So more of a cluster can be
// published only with a new generation.
func TestAWiderScopeRaisesTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for _, n := range []string{"b1", "b2", "a1", "a2"} {
			a.set(esl(n, 0))
		}
		_, stop := r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", false))
		time.Sleep(10 * time.Second)
		r.want("narrow", "a1@1/103", "a2@1/104")
		stop()
		r.start(&apiSource{a: a}, narrow(reg, "all", false))
		time.Sleep(time.Minute)
		r.want("wide", "a1@2/103", "a2@2/104", "b1@2/101", "b2@2/102")
		if v := r.view(); v.record.Generation != 2 || v.record.Scope != "all" || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("record %+v, checkpoint %+v", v.record, v.cp)
		}
	})
}

func TestTwoScopesAtOnceDoNotFight(t *testing.T) {
	for _, registered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, a := newRig(t), newAPI()
			var reg *registry
			if registered {
				reg = newRegistry()
			}
			for _, n := range []string{"a1", "a2", "b1", "b2"} {
				a.set(esl(n, 0))
			}
			first, stop := r.start(&apiSource{a: a, in: only("a")}, narrow(reg, "prefix=a", false))
			time.Sleep(10 * time.Second)
			second, _ := r.start(&apiSource{a: a, in: only("b", "a1")}, narrow(reg, "prefix=b", false))
			time.Sleep(time.Hour)
			a.set(esl("a2", 0))
			a.set(esl("b2", 0))
			time.Sleep(time.Hour)
			if registered {
				r.want("the second writes nothing", "a1@1/101", "a2@1/105")
				if second.Ready() || !first.Ready() || r.log.count("end one of them") != 1 {
					t.Errorf("ready %v %v, log:\n%s", first.Ready(), second.Ready(), r.log)
				}
				stop()
				time.Sleep(time.Minute)
				if s := second.Status(); s.HeldRemovals != 1 || !s.Ready {
					t.Errorf("alone, half of the slices would go: %+v", s)
				}
				return
			}
			// Nobody can say who else is there: what the second may remove is held, and the first goes on.
			if live, _ := r.bus(); len(live) != 3 || second.Status().HeldRemovals == 0 {
				t.Errorf("the bus holds %q, status %+v, log:\n%s", live, second.Status(), r.log)
			}
		})
	}
}

func TestAConfirmedScopeReplacesAnotherThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, reg := newRig(t), newAPI(), newRegistry()
		for _, n := range []string{"a1", "a2", "b1", "b2"} {
			a.set(esl(n, 0))
		}
		first, _ := r.start(&apiSource{a: a}, narrow(reg, "all", true))
		time.Sleep(10 * time.Second)
		r.start(&apiSource{a: a, in: only("b")}, narrow(reg, "prefix=b", true))
		time.Sleep(time.Minute)
		a.set(esl("a2", 0))
		time.Sleep(time.Minute)
		r.want("the second has replaced the first, which does not fight back", "b1@1/103", "b2@1/104")
		if first.Ready() {
			t.Error("the first is ready")
		}
	})
}

func TestAWatcherThatIsStaleWritesNoRecordEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		a.setDown(true)
		time.Sleep(2 * time.Hour)
		r.fake.Wipe()
		time.Sleep(time.Minute)
		if v := r.view(); v.record != (ledger.Record{}) {
			t.Errorf("record %+v", v.record)
		}
		a.setDown(false)
		time.Sleep(time.Minute)
		r.want("heard again", "a@1/101")
	})
}
