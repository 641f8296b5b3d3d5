package gate

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustAddrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// leaving is a pod that all of the State knows to leave.
func leaving(b *bench) { b.show(at(cart, 7, "-st", false)) }

func TestAnAcknowledgementOfTheRemovalDrainsAndNamesTheProxy(t *testing.T) {
	withGate(t, func(b *bench) {
		s := b.connect("envoy-1", podAddr, otherAddr)
		since := s.Since
		b.show(at(cart, 6, "rs-", true))
		a := b.ask()
		time.Sleep(20 * time.Millisecond)
		b.do(func() { leaving(b); b.push(otherAddr) })
		time.Sleep(5 * time.Millisecond)
		a.waits("the proxy has not acknowledged")
		b.do(s.ack)
		a.says(true, Acknowledged, 25*time.Millisecond)
		if diff := cmp.Diff([]Proxy{{"envoy-1", "192.0.2.1:5000", "r1", since, false}}, a.answer.Proxies); diff != "" {
			t.Errorf("proxies (-want +got):\n%s", diff)
		}
		if got := a.answer.WaitedMS; got != (Waited{20, 5}) {
			t.Errorf("got waited %+v, want 20 and 5", got)
		}
		if a.answer.Mode != ModeRemoved || len(a.answer.Missing) != 0 {
			t.Errorf("got %+v, want mode removed and nobody missing", a.answer)
		}
	})
}

func TestAProxyThatNeverAcknowledgesIsMissingWhenTheTimeIsUp(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.connect("envoy-1", podAddr)
		a := b.ask(func(r *Request) { r.Timeout = Duration(3 * time.Second) })
		a.says(false, Unacknowledged, 3*time.Second)
		if len(a.answer.Missing) != 1 || a.answer.Missing[0].Node != "envoy-1" {
			t.Errorf("got missing %+v, want envoy-1", a.answer.Missing)
		}
	})
}

func TestAnOldAcknowledgementDoesNotCountWhileAPushWithTheAddressIsUnacknowledged(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", otherAddr)
		b.push(podAddr, otherAddr)
		b.push(otherAddr)
		a := b.ask()
		a.waits("a push with the address is on its way")
		b.do(s.ack)
		a.waits("now the proxy holds the address")
		b.do(s.ack)
		a.says(true, Acknowledged, 0)
	})
}

func TestARejectedRemovalKeepsTheOlderContent(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", podAddr)
		b.push(otherAddr)
		a := b.ask()
		b.do(s.nack)
		a.waits("the proxy has rejected the removal")
		b.do(func() { b.push(otherAddr); s.ack() })
		a.says(true, Acknowledged, 0)
	})
}

func TestAStreamWithoutItsFirstAcknowledgementBlocksForFiveSecondsAtMost(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.connect("envoy-1").Fresh = true
		time.Sleep(2 * time.Second)
		b.ask().says(true, Acknowledged, 3*time.Second)
	})
}

func TestAClientBetweenTwoStreamsBlocksUntilItIsHeardOfAgain(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", podAddr)
		a := b.ask()
		b.do(func() { s.Ended = time.Now() })
		time.Sleep(3 * time.Second)
		a.waits("the proxy is between two streams and still sends")
		b.do(func() { b.streams = nil; b.connect("envoy-1", otherAddr) })
		a.says(true, Acknowledged, 3*time.Second)
	})
}

func TestAProxyThatIsNotHeardOfAgainBlocksForTenSeconds(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", podAddr)
		s.Ended = time.Now()
		time.Sleep(time.Second)
		a := b.ask()
		time.Sleep(8 * time.Second)
		a.waits("it may still send")
		a.says(true, Acknowledged, 9*time.Second)
		if len(a.answer.Proxies) != 1 || !a.answer.Proxies[0].Ended {
			t.Errorf("got proxies %+v, want the ended stream", a.answer.Proxies)
		}
	})
}

func TestTwoPodsThatDrainAtOnceAreNotGivenBackByTheFallback(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.ask().says(true, Acknowledged, 0)
		// The promise is made in the moment of the answer: what comes after it cannot choose the pod again.
		if !b.promised["u1"] {
			t.Error("got no promise")
		}
	})
}

func TestAPodThatTheFallbackBringsBackBeforeTheAnswerIsNotDrained(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", podAddr, otherAddr)
		b.push(otherAddr)
		a := b.ask()
		// The other pod terminates too: the fallback chooses both, before the removal is acknowledged.
		b.do(func() { b.show(at(cart, 9, "-st", true)); b.push(podAddr, otherAddr); s.ack() })
		a.waits("the pod is in use again")
		b.do(s.ack)
		a.waits("the proxy holds it again")
		a.says(false, LastEndpoint, 10*time.Second)
	})
}

func TestTheAddressIsLookedForInWhatStreamsHoldNotInTodaysState(t *testing.T) {
	withGate(t, func(b *bench) {
		// The port has changed since; a proxy that is late still has the old one.
		leaving(b)
		s := b.connect("envoy-1", "10.0.0.1:7070")
		a := b.ask()
		a.waits("the proxy holds an older port of the pod")
		b.do(func() { s.acked = nil })
		a.says(true, Acknowledged, 0)
	})
}

func TestAnAbsentPodThatAProxyStillHoldsIsNotDrained(t *testing.T) {
	withGate(t, func(b *bench) {
		s := b.connect("envoy-1", podAddr)
		a := b.ask()
		a.waits("no slice has the pod, a proxy has")
		b.do(func() { s.acked = nil })
		a.says(true, NoService, 0)
	})
}

func TestHoldingTheAddressAsDrainingIsEnough(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		s := b.connect("envoy-1", podAddr)
		a := b.ask()
		a.waits("it holds it as healthy")
		b.do(func() { s.Draining = true })
		a.says(true, Acknowledged, 0)
		if a.answer.Mode != ModeDraining {
			t.Errorf("got mode %q, want draining", a.answer.Mode)
		}
	})
}

func TestAProxyThatIsSilentForLongIsLeftOutOnRequestOnly(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.connect("envoy-1", podAddr)
		b.push(otherAddr)
		silent := b.ask(func(r *Request) { r.IgnoreSilent = Duration(4 * time.Second) })
		a := b.ask(func(r *Request) { r.Timeout = Duration(6 * time.Second) })
		<-silent.done
		if !silent.answer.Drained || silent.took != 4*time.Second {
			t.Errorf("got %+v after %s, want drained after 4s", silent.answer, silent.took)
		}
		<-a.done
		if a.answer.Drained || a.took != 6*time.Second {
			t.Errorf("got %+v after %s, want not drained after 6s", a.answer, a.took)
		}
	})
}

func TestEvidenceThatTheReplicaDoesNotHaveIsWaitedFor(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.floor, b.versions[place{cart, "cart-x1"}] = version(3), version(6)
		a := b.ask()
		a.waits("the replica is behind the evidence")
		b.do(func() { b.floor = version(7) })
		a.says(true, Acknowledged, 0)
	})
}

func TestNothingIsLookedAtWhileNothingChanges(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		b.connect("envoy-1", podAddr)
		a := b.ask()
		b.mu.Lock()
		before := b.looks
		b.mu.Unlock()
		time.Sleep(14 * time.Second)
		a.waits("the proxy holds it")
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.looks != before {
			t.Errorf("got %d looks without a change, want none", b.looks-before)
		}
	})
}

func TestAReplicaThatHasRestartedDoesNotKnowItsClientsForTenSeconds(t *testing.T) {
	withGate(t, func(b *bench) {
		leaving(b)
		time.Sleep(2 * time.Second)
		a := b.ask()
		time.Sleep(7 * time.Second)
		a.waits("clients of the earlier process may still send")
		a.says(true, Acknowledged, 8*time.Second)
		b.ask().says(true, Acknowledged, 0)
	}, func(c *Config) { c.Restarted = time.Now() })
}
