package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestATerminatingPodThatNoServiceUsesIsDrainedWithoutARead(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", false))
		a := b.ask()
		a.says(true, Acknowledged, 0)
		if b.floors != 0 {
			t.Errorf("got %d reads of the floor, want none", b.floors)
		}
		if diff := cmp.Diff([]Service{{"shop", "cart", "http", 8080}}, a.answer.Services); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
	})
}

func TestTheNewsOfAPodMayComeAfterTheQuestion(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "rs-", true))
		a := b.ask()
		time.Sleep(900 * time.Millisecond)
		a.waits("the pod is ready")
		b.do(func() { b.show(at(cart, 8, "-st", false)) })
		a.says(true, Acknowledged, 900*time.Millisecond)
		if got := a.answer.WaitedMS; got != (Waited{900, 0}) {
			t.Errorf("got waited %+v, want 900 and 0", got)
		}
		if b.floors != 0 {
			t.Errorf("got %d reads of the floor, want none", b.floors)
		}
	})
}

func TestAbsenceProvesNothingBelowTheFloorThatAWatcherReads(t *testing.T) {
	withGate(t, func(b *bench) {
		b.told = version(120)
		a := b.ask()
		time.Sleep(time.Second)
		a.waits("the floor is below what the API server had")
		b.do(func() { b.floor = version(119) })
		a.waits("the floor is still below")
		b.do(func() { b.floor = version(120) })
		a.says(true, NoService, time.Second)
	})
}

func TestAnAbsentPodMayStillAppear(t *testing.T) {
	withGate(t, func(b *bench) {
		b.told = version(120)
		a := b.ask()
		b.do(func() { b.show(at(cart, 110, "rs-", true)) })
		a.waits("it has appeared")
		b.do(func() { b.show(at(cart, 119, "-st", false)) })
		a.says(true, Acknowledged, 0)
	})
}

func TestTheFloorIsAskedForUntilAWatcherAnswers(t *testing.T) {
	withGate(t, func(b *bench) {
		b.told = version(0)
		b.told.Generation = 0
		a := b.ask()
		time.Sleep(3 * time.Second)
		a.waits("no watcher answers")
		b.mu.Lock()
		b.told = version(100)
		b.mu.Unlock()
		<-a.done
		if !a.answer.Drained || a.answer.Reason != NoService || a.took > 4*time.Second {
			t.Errorf("got %+v after %s, want no-service within a second of the watcher", a.answer, a.took)
		}
	})
}

func TestAPodThatWasSeenTerminatingAndIsGoneNeedsNoRead(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", true))
		a := b.ask()
		a.waits("it serves by fallback")
		b.do(func() { b.show(); b.versions[place{cart, "cart-x1"}] = version(8) })
		a.says(true, Acknowledged, 0)
		if b.floors != 0 {
			t.Errorf("got %d reads of the floor, want none", b.floors)
		}
	})
}

func TestAnUnavailableStateIsUnknownOnlyWhenTheTimeIsUp(t *testing.T) {
	withGate(t, func(b *bench) {
		b.told.Generation, b.told.Resource = 0, 0
		b.ask().says(false, Unknown, DefaultTimeout)
	})
}

func TestAPodThatIsNotTerminatingIsNotLeavingAfterTwoSeconds(t *testing.T) {
	for name, used := range map[string]bool{"ready": true, "unready": false} {
		t.Run(name, func(t *testing.T) {
			withGate(t, func(b *bench) {
				b.show(at(cart, 7, map[bool]string{true: "rs-", false: "---"}[used], used))
				b.ask().says(false, NotLeaving, 2*time.Second)
			})
		})
	}
}

func TestAPodIsNotCalledNotLeavingBelowTheFloor(t *testing.T) {
	withGate(t, func(b *bench) {
		b.told = version(120)
		b.show(at(cart, 7, "rs-", true))
		a := b.ask()
		time.Sleep(5 * time.Second)
		a.waits("the news may still be on its way")
		b.do(func() { b.floor = version(121) })
		a.says(false, NotLeaving, 5*time.Second)
	})
}

func TestAllServicesOfAPodMustKnowThatItLeaves(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", false), at(front, 5, "rs-", true))
		a := b.ask()
		time.Sleep(5 * time.Second)
		a.waits("another service still uses it as ready")
		b.do(func() { b.show(at(cart, 7, "-st", false), at(front, 9, "-st", false)) })
		a.says(true, Acknowledged, 5*time.Second)
	})
}

func TestAServiceThatPublishesUnreadyPodsNeverLetsGo(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "rst", true))
		b.ask().says(false, AlwaysReady, 2*time.Second)
	})
}

func TestTheLastEndpointWaitsForItsSuccessor(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", true))
		a := b.ask()
		time.Sleep(9 * time.Second)
		a.waits("it serves by fallback")
		b.do(func() { b.show(at(cart, 8, "-st", false)) })
		a.says(true, Acknowledged, 9*time.Second)
	})
}

func TestTheLastEndpointWithoutSuccessorIsNamedAfterTheFallbackWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, timeout, after time.Duration
	}{
		"default":                {0, 0, 10 * time.Second},
		"none, for StatefulSets": {-1, 0, 0},
		"its own":                {3 * time.Second, 0, 3 * time.Second},
		"cut by the timeout":     {0, 4 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withGate(t, func(b *bench) {
				b.show(at(cart, 7, "-st", true))
				a := b.ask(func(r *Request) { r.FallbackWait, r.Timeout = Duration(c.wait), Duration(c.timeout) })
				a.says(false, LastEndpoint, c.after)
			})
		})
	}
}

func TestASharedAddressIsNamedAtOnce(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", false))
		b.owners[mustAddrPort(podAddr)] = "u2"
		b.ask().says(false, SharedAddress, 0)
	})
}

func TestAnotherPortOfASharedAddressIsNotThePods(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "-st", false))
		b.owners[mustAddrPort("10.0.0.1:9090")] = "u2"
		b.connect("envoy-1", "10.0.0.1:9090")
		b.ask().says(true, Acknowledged, 0)
	})
}

func TestAServiceThatIsLateIsNotTakenForOneThatPublishesUnreadyPods(t *testing.T) {
	withGate(t, func(b *bench) {
		b.show(at(cart, 7, "rst", true), at(front, 5, "rs-", true))
		a := b.ask()
		time.Sleep(3 * time.Second)
		a.waits("the other service is late")
		b.do(func() { b.show(at(cart, 7, "rst", true), at(front, 9, "-st", false)) })
		time.Sleep(time.Second)
		a.waits("it publishes unready pods for a second only")
		a.says(false, AlwaysReady, 5*time.Second)
	})
}
