package projector

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// BenchmarkChange is one changed slice, from its notice to the accepted write that the session has read.
func BenchmarkChange(b *testing.B) {
	for _, size := range []struct{ services, slices, endpoints int }{{10_000, 1, 10}, {1, 10, 100}, {1, 200, 100}} {
		b.Run(fmt.Sprintf("services=%d/slices=%d/endpoints=%d", size.services, size.slices, size.endpoints), func(b *testing.B) {
			m := newMachine("prod")
			m.event(ledger.Notice{Kind: ledger.Opened})
			m.event(ledger.Notice{Kind: ledger.Complete})
			m.event(ledger.Notice{Kind: ledger.Certified, Seq: 1})
			m.state(ledger.Notice{Kind: ledger.Opened})
			m.state(ledger.Notice{Kind: ledger.Complete})
			seq := uint64(1)
			change := func(service, slice int) {
				seq++
				s := endpoint.Slice{
					Key: endpoint.Key{Cluster: "prod", Namespace: "shop", Service: fmt.Sprint("s", service)}, Name: fmt.Sprintf("s-%03d", slice),
					Version: endpoint.Version{Generation: 1, Resource: seq}, Ports: []endpoint.Port{{Name: "http", Number: 80}},
				}
				for i := range size.endpoints {
					s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
						Addr: netip.AddrFrom4([4]byte{10, byte(slice), byte(i >> 8), byte(i)}), Conditions: 3, Zone: "zone-1", Node: "node-1",
						TargetKind: "Pod", TargetName: fmt.Sprint("pod-", slice, "-", i), TargetUID: fmt.Sprint("uid-", slice, "-", i),
					})
				}
				m.event(noticeOf(endpoint.Event{Slice: s}, seq))
				key, _ := m.pop()
				if w, ok := m.look(key); ok {
					m.done(w, seq)
					st := w.state
					m.state(ledger.Notice{Kind: ledger.Changed, Cluster: "prod", Seq: seq, Key: st.Key, State: &st})
				}
			}
			for i := range size.services {
				for j := range size.slices {
					change(i, j)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change(i%size.services, i%size.slices)
			}
		})
	}
}
