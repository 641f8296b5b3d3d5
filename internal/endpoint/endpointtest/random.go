package endpointtest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Random makes legal values; the same seed makes the same ones. Names come from small sets, so that values meet.
type Random struct{ *rand.Rand }

// NewRandom gives a Random of that seed.
func NewRandom(seed uint64) Random { return Random{rand.New(rand.NewPCG(seed, 0x736c696365))} }

// OneOf picks one of the choices.
func OneOf[T any](r Random, choices ...T) T { return choices[r.IntN(len(choices))] }

// Key gives one of a few Keys.
func (r Random) Key() endpoint.Key {
	return endpoint.Key{Cluster: OneOf(r, "prod", "edge"), Namespace: OneOf(r, "shop", "ops"), Service: OneOf(r, "cart", "api-2")}
}

// Version gives a version of low numbers, mostly of the first generation.
func (r Random) Version() endpoint.Version {
	return endpoint.Version{Generation: 1 + r.Uint64N(8)/7, Resource: 1 + r.Uint64N(30)}
}

// Text gives a text as foreign data may hold it, often an empty one.
func (r Random) Text() string {
	return OneOf(r, "", "", "", "a", "z1", "node-1.example", "a b", "x=y,{z}[q]@+%", "größe", "\x00\xff", "#\t\n")
}

// Conditions gives any of the eight.
func (r Random) Conditions() endpoint.Conditions { return endpoint.Conditions(r.UintN(8)) }

// Endpoint gives an endpoint of a family.
func (r Random) Endpoint(v6 bool) endpoint.Endpoint {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + r.UintN(12))})
	if v6 {
		addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(1 + r.UintN(12))})
	}
	return endpoint.Endpoint{
		Addr: addr, Conditions: r.Conditions(), Zone: r.Text(), Node: r.Text(), ZoneHints: r.hints(), NodeHints: r.hints(),
		TargetKind: OneOf(r, "", "Pod"), TargetName: r.Text(), TargetUID: r.Text(), Hostname: r.Text(),
	}
}

// hints gives a sorted list without repeats, often an empty one.
func (r Random) hints() string {
	var items []string
	for range r.IntN(3) {
		items = append(items, strings.ReplaceAll(r.Text(), ",", ";"))
	}
	slices.Sort(items)
	items = slices.DeleteFunc(slices.Compact(items), func(s string) bool { return s == "" })
	return strings.Join(items, ",")
}

// Slice gives a slice of key.
func (r Random) Slice(key endpoint.Key) endpoint.Slice {
	s := endpoint.Slice{
		Key: key, Name: OneOf(r, "cart-a", "cart-b", "cart.c"), UID: r.Text(), Version: r.Version(),
		TerminatingPolicy: OneOf(r, "", "", "drain", "what is this"), FailoverPolicy: OneOf(r, "", "", "any", "region", "none"),
		Translator: uint32(r.UintN(3)), Observed: r.Time(), Triggered: r.Time(),
	}
	for _, name := range []string{"", "admin", "http", "grpc"} {
		if r.UintN(2) == 0 {
			s.Ports = append(s.Ports, endpoint.Port{Name: name, Number: uint16(1 + r.UintN(65535)), AppProtocol: OneOf(r, "", "grpc", "kubernetes.io/h2c", "a b,c")})
		}
	}
	v6 := r.UintN(3) == 0
	for range r.IntN(5) {
		s.Endpoints = append(s.Endpoints, r.Endpoint(v6))
	}
	s = s.Canonical()
	s.Endpoints = slices.CompactFunc(s.Endpoints, func(a, b endpoint.Endpoint) bool { return a.Compare(b) == 0 })
	return s
}

// Time gives a time in UTC, or none.
func (r Random) Time() time.Time {
	if r.UintN(2) == 0 {
		return time.Time{}
	}
	return time.Unix(1_700_000_000+r.Int64N(1e6), r.Int64N(1e9)).UTC()
}

// Event gives an event of key.
func (r Random) Event(key endpoint.Key) endpoint.Event {
	e := endpoint.Event{Slice: r.Slice(key)}
	if r.UintN(4) == 0 {
		s := e.Slice
		e = endpoint.Event{Gone: true, Slice: endpoint.Slice{
			Key: key, Name: s.Name, UID: s.UID, Version: s.Version, Translator: s.Translator, Observed: s.Observed,
		}}
	}
	if before := r.Version(); e.Slice.Version.After(before) {
		e.Previous = before
	}
	for _, peer := range []string{"cart-a", "cart-b", "cart.c", "cart.d"} {
		if peer != e.Slice.Name && r.UintN(3) == 0 {
			e.Peers = append(e.Peers, endpoint.Ref{Name: peer, Version: r.Version()})
		}
	}
	return e
}

// State gives a legal State of key.
func (r Random) State(key endpoint.Key) endpoint.State {
	st := endpoint.State{Key: key}
	if r.UintN(3) > 0 {
		st.Floor = r.Version()
	}
	for _, name := range []string{"cart-a", "cart-b", "cart.c"} {
		s := r.Slice(key)
		s.Name = name
		switch r.UintN(3) {
		case 0:
			st.Slices = append(st.Slices, s)
		case 1:
			if s.Version.After(st.Floor) {
				st.Gone = append(st.Gone, endpoint.Ref{Name: name, Version: s.Version, Translator: s.Translator, Observed: s.Observed})
			}
		}
	}
	return st
}

// Trace gives a trace of legal values.
func (r Random) Trace() Trace {
	var t Trace
	for range 1 + r.IntN(3) {
		var st Stage
		for range r.IntN(3) {
			st.Comment = append(st.Comment, OneOf(r, "", "A pod is replaced.", "# twice"))
		}
		for range r.IntN(4) {
			switch r.UintN(5) {
			case 0:
				st.Steps = append(st.Steps, Step{Open: r.Key().Cluster})
			case 1:
				st.Steps = append(st.Steps, Step{Checkpoint: r.Key().Cluster, Complete: r.Version()})
			default:
				e := r.Event(r.Key())
				st.Steps = append(st.Steps, Step{Event: &e})
			}
		}
		for range r.IntN(3) {
			st.Expected = append(st.Expected, FormatState(r.State(r.Key())))
		}
		if r.UintN(2) == 0 {
			st.Expected = append(st.Expected, Section{Head: fmt.Sprintf("assign zone=z%d", r.UintN(3)), Body: []string{"cart.shop:http  p0 z1 10.0.0.1:8080 healthy"}})
		}
		t.Stages = append(t.Stages, st)
	}
	return t
}
