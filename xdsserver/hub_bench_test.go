package xdsserver

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// BenchmarkChange is one change of one service of 10,000, for streams that subscribe to 1,000 of them each: what the
// hub spends from the State to the acknowledgements, without the transport.
func BenchmarkChange(b *testing.B) {
	for _, subscribers := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("subscribers=%d", subscribers), func(b *testing.B) {
			m, err := newMetrics(nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			mu := &sync.Mutex{}
			store := newStore(mu, nil, failoverAny)
			hub := newHub(mu, store, m, 100, time.Second)
			tell := func(n ledger.Notice) {
				mu.Lock()
				defer mu.Unlock()
				if err := store.notice(n); err != nil {
					b.Fatal(err)
				}
			}
			tell(ledger.Notice{Kind: ledger.Opened})
			names := make([]string, 0, 1000)
			for i := range 10_000 {
				service := fmt.Sprint("svc-", i)
				tell(stateNoticeAt(uint64(i+1), otherAt(service, 7, "10.0.0.1", "10.0.0.2", "10.0.0.3")))
				if i < cap(names) {
					names = append(names, service+".shop:http")
				}
			}
			tell(ledger.Notice{Kind: ledger.Complete, Seq: 10_000})
			streams := make([]*stream, subscribers)
			drain := func() {
				for _, st := range streams {
					for r, _ := hub.next(st); r != nil; r, _ = hub.next(st) {
						hub.request(st, request{kind: assignments, nonce: r.nonce})
					}
				}
			}
			for i := range streams {
				streams[i] = hub.open(streamOptions{service: "ads", delta: true})
				hub.request(streams[i], request{kind: assignments, subscribe: names})
			}
			drain()
			seq := uint64(20_000)
			b.ReportAllocs()
			for b.Loop() {
				seq++
				tell(stateNoticeAt(seq, otherAt("svc-5", seq, "10.0.0.1", fmt.Sprintf("10.1.%d.%d", seq/250%250, seq%250))))
				drain()
			}
			if got := streams[0].types[assignments]; len(got.window) != 0 || got.dirty != 0 {
				b.Errorf("%d responses are open, %d names due", len(got.window), got.dirty)
			}
		})
	}
}
