package watcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// release is what two releases of slicecast make of one object: the newer one names the pod, publishes what is called
// new, and hides what is called old.
func release(version uint32) func(Scope, *discoveryv1.EndpointSlice) (endpoint.Slice, bool) {
	return func(scope Scope, es *discoveryv1.EndpointSlice) (endpoint.Slice, bool) {
		sl, _, err := Translate(scope.Cluster, scope.Generation, es)
		sl.Translator = version
		if version == 1 {
			for i := range sl.Endpoints {
				sl.Endpoints[i].TargetUID = ""
			}
		}
		hides := map[uint32][]string{1: {"new", "s4"}, 2: {"old", "s5"}}[version]
		return sl, err == nil && !slices.Contains(hides, es.Name)
	}
}

func of(version uint32) func(*Config) { return func(c *Config) { c.translator = version } }

func TestTwoReleasesSideBySideEndWithTheNewerOnesBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		set := func(n int) {
			for _, name := range []string{"both", "new", "old"} {
				es := esl(name, 0, ep("10.0.0.1", "ttf", "x"))
				if n > 0 {
					es.Endpoints = append(es.Endpoints, ep("10.0.0.2", "ttf", "y"))
				}
				a.set(es)
			}
		}
		set(0)
		_, stop := r.start(&apiSource{a: a, translate: release(1)}, of(1))
		time.Sleep(10 * time.Second)
		r.want("the older one alone", "both@1/101 http:8080 10.0.0.1[rs-]", "old@1/103 http:8080 10.0.0.1[rs-]")
		_, stopNew := r.start(&apiSource{a: a, translate: release(2)}, of(2))
		time.Sleep(time.Minute)
		r.want("both: more is published, so the generation is raised", "both@2/101 http:8080 10.0.0.1[rs-]x", "new@2/102 http:8080 10.0.0.1[rs-]x")
		set(1)
		time.Sleep(time.Minute)
		seq := r.view().led.Seq()
		time.Sleep(24 * time.Hour)
		r.want("both: changes", "both@2/104 http:8080 10.0.0.1[rs-]x 10.0.0.2[rs-]y", "new@2/105 http:8080 10.0.0.1[rs-]x 10.0.0.2[rs-]y")
		v := r.view()
		if n := r.log.count("level=ERROR"); n != 1 || v.led.Seq() > seq+2 || v.record.Generation != 2 {
			t.Errorf("%d errors, sequence %d after %d in a quiet day, record %+v:\n%s", n, v.led.Seq(), seq, v.record, r.log)
		}
		if v.cp.Complete.Resource < 106 || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("checkpoint %+v", v.cp)
		}
		stopNew()
		a.set(esl("more", 0))
		a.remove("new")
		time.Sleep(time.Minute)
		r.want("the older one alone again: what the newer wrote stays until it changes, what is deleted goes",
			"both@2/104 http:8080 10.0.0.1[rs-]x 10.0.0.2[rs-]y", "more@2/107 http:8080")
		if v := r.view(); v.cp.Complete.Resource < 108 || v.led.Judge(v.cp) != ledger.Agrees {
			t.Errorf("the older one cannot certify: %+v", v.cp)
		}
		stop()
	})
}

func TestWhatLosesItsServiceGetsATombstoneAtItsOwnVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), newAPI()
		a.set(esl("a", 0))
		_, stop := r.start(&apiSource{a: a})
		r.want("start", "a@1/101")
		bare := esl("a", 0)
		bare.Labels = nil
		a.set(bare)
		a.set(esl("b", 0))
		time.Sleep(time.Minute)
		r.want("no service", "b@1/103")
		if ev := r.view().gone["a"]; ev == nil || ev.Slice.Version != ver(1, 102) {
			t.Errorf("tombstone %+v", ev)
		}
		stop()
		r.start(&apiSource{a: a})
		time.Sleep(time.Minute)
		r.want("restarted", "b@1/103")
	})
}
