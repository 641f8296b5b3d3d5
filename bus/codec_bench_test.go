package bus

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// The texts of a real cluster: what an EndpointSlice of a Deployment holds, spread over three zones and thirty nodes.
func realSlice(service, name string, first, endpoints int) endpoint.Slice {
	s := endpoint.Slice{
		Key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: service}, Name: name, UID: "0a6f1f04-5b1c-4a55-9d52-7a3e3f1f7c11",
		Version: version(1_234_567), Translator: 1, Observed: at, Triggered: at,
		Ports: []endpoint.Port{{Name: "http", Number: 8080}, {Name: "metrics", Number: 9090}},
	}
	for i := first; i < first+endpoints; i++ {
		s.Endpoints = append(s.Endpoints, endpoint.Endpoint{
			Addr:       netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}),
			Conditions: endpoint.Ready | endpoint.Serving,
			Zone:       fmt.Sprintf("europe-west1-%c", 'a'+i%3), ZoneHints: fmt.Sprintf("europe-west1-%c", 'a'+i%3),
			Node:       fmt.Sprintf("gke-prod-pool-1-2b1f0c77-%04d", i%30),
			TargetKind: "Pod", TargetName: fmt.Sprintf("%s-7d9c5b8f6c-%05d", service, i),
			TargetUID: fmt.Sprintf("9d1f7e52-0c0a-4f6e-8a3d-%012d", i*7919),
		})
	}
	return s
}

// realState spreads the endpoints over slices of at most 100, as the controller does.
func realState(endpoints int) endpoint.State {
	st := endpoint.State{Key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}, Floor: version(1_234_000)}
	for i := 0; i < endpoints; i += 100 {
		st.Slices = append(st.Slices, realSlice("shop", fmt.Sprintf("shop-%05d", i), i, min(100, endpoints-i)))
	}
	return st
}

// nextState is st with one endpoint changed in the slice of a number. What did not change is shared, as in a fold.
func nextState(st endpoint.State, n int) endpoint.State {
	n %= len(st.Slices)
	out := st
	out.Slices = append([]endpoint.Slice(nil), st.Slices...)
	sl := &out.Slices[n]
	sl.Endpoints = append([]endpoint.Endpoint(nil), sl.Endpoints...)
	sl.Endpoints[n%len(sl.Endpoints)].Conditions ^= endpoint.Ready
	sl.Version.Resource++
	return out
}

func BenchmarkEventEncode(b *testing.B) {
	for _, n := range [...]int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, ev := mustCodec(b), endpoint.Event{Slice: realSlice("shop", "shop-abcde", 0, n), Previous: version(9)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.event(ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEventDecode(b *testing.B) {
	for _, n := range [...]int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := mustCodec(b)
			m, err := c.event(endpoint.Event{Slice: realSlice("shop", "shop-abcde", 0, n), Previous: version(9)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.notice(m, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStateEncode writes a State of which one slice has changed since the last one.
func BenchmarkStateEncode(b *testing.B) {
	for _, n := range [...]int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, st, i := mustCodec(b), realState(n), 0
			b.ReportAllocs()
			for b.Loop() {
				st, i = nextState(st, i), i+1
				if _, err := c.state(st); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStateDecode(b *testing.B) {
	for _, n := range [...]int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := mustCodec(b)
			m, err := c.state(realState(n))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.notice(m, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBody is the body alone, without headers, hashes and compression.
func BenchmarkBody(b *testing.B) {
	for _, n := range [...]int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			st := realState(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encodeState(st); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
