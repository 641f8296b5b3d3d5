package bus

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

var at = time.Unix(1_800_000_000, 5).UTC()

func mustCodec(t testing.TB) *codec {
	t.Helper()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func version(r uint64) endpoint.Version { return endpoint.Version{Generation: 1, Resource: r} }

// fullEvent has a value in every field.
func fullEvent() endpoint.Event {
	return endpoint.Event{
		Slice: endpoint.Slice{
			Key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}, Name: "shop-a.b", UID: "u1", Version: version(7),
			Ports: []endpoint.Port{{Number: 9000}, {Name: "http", Number: 8080, AppProtocol: "kubernetes.io/h2c"}},
			Endpoints: []endpoint.Endpoint{
				{Addr: netip.MustParseAddr("2001:db8::1"), Conditions: endpoint.Ready | endpoint.Serving, Zone: "z1", Node: "n1", ZoneHints: "z1,z2", NodeHints: "n1", TargetKind: "Pod", TargetName: "p1", TargetUID: "pu1", Hostname: "h1"},
				{Addr: netip.MustParseAddr("2001:db8::2"), Conditions: endpoint.Serving | endpoint.Terminating},
			},
			TerminatingPolicy: "drain", FailoverPolicy: "region", Translator: 3, Observed: at, Triggered: at.Add(-time.Second),
		},
		Previous: version(5),
		Peers:    []endpoint.Ref{{Name: "shop-c", Version: version(6)}},
		Transitions: []endpoint.Transition{
			{Addr: netip.MustParseAddr("2001:db8::1"), Before: endpoint.Absent, After: endpoint.Ready},
			{Addr: netip.MustParseAddr("2001:db8::3"), Before: endpoint.Ready | endpoint.Terminating, After: endpoint.Absent},
		},
	}
}

func randomEvent(r *rand.Rand) endpoint.Event {
	word := func(n int) string { return fmt.Sprintf("w%d", r.IntN(n)) }
	s := endpoint.Slice{
		Key: endpoint.Key{Cluster: word(3), Namespace: word(3), Service: word(3)}, Name: word(9) + "." + word(9), UID: word(9),
		Version: endpoint.Version{Generation: 1 + r.Uint64N(3), Resource: 1 + r.Uint64N(1e9)}, Translator: r.Uint32N(5),
	}
	if r.IntN(2) == 0 {
		s.Observed = at.Add(time.Duration(r.IntN(1e9)))
	}
	if r.IntN(5) == 0 {
		return endpoint.Event{Slice: s, Gone: true}
	}
	for i := range r.IntN(4) {
		s.Ports = append(s.Ports, endpoint.Port{Name: fmt.Sprintf("p%d", i), Number: uint16(1 + r.IntN(65535)), AppProtocol: [...]string{"", "grpc"}[r.IntN(2)]})
	}
	addr := netip.AddrFrom4([4]byte{10, byte(r.IntN(256)), 0, 0})
	for range r.IntN(20) {
		addr = addr.Next()
		s.Endpoints = append(s.Endpoints, endpoint.Endpoint{Addr: addr, Conditions: endpoint.Conditions(r.IntN(8)), Zone: word(3), TargetUID: word(100), ZoneHints: [...]string{"", "a", "a,b"}[r.IntN(3)]})
	}
	ev := endpoint.Event{Slice: s}
	for i := range r.IntN(3) {
		ev.Peers = append(ev.Peers, endpoint.Ref{Name: fmt.Sprintf("x%d", i), Version: version(1 + r.Uint64N(100))})
	}
	return ev
}

func TestAnEventReadsBackAsItWasWritten(t *testing.T) {
	c := mustCodec(t)
	r := rand.New(rand.NewPCG(1, 2))
	events := []endpoint.Event{fullEvent()}
	for range 500 {
		events = append(events, randomEvent(r))
	}
	for _, ev := range events {
		m, err := c.event(ev)
		if err != nil {
			t.Fatalf("%+v: %v", ev, err)
		}
		again, _ := c.event(ev)
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("two encodings of %+v differ", ev)
		}
		n, err := c.notice(m, false)
		if err != nil {
			t.Fatalf("%+v: %v", ev, err)
		}
		if !reflect.DeepEqual(*n.Event, ev) {
			t.Fatalf("got %+v, want %+v", *n.Event, ev)
		}
		heads, err := c.notice(message{m.subject, m.header, nil}, true)
		if err != nil {
			t.Fatalf("%+v: %v", ev, err)
		}
		want := ledger.Notice{
			Kind: ledger.Changed, Cluster: ev.Slice.Key.Cluster, Key: ev.Slice.Key, Slice: ev.Slice.Name,
			Version: ev.Slice.Version, Gone: ev.Gone, Hash: ev.Slice.Hash(), Translator: ev.Slice.Translator,
		}
		if !reflect.DeepEqual(heads, want) {
			t.Fatalf("headers: got %+v, want %+v", heads, want)
		}
	}
}

func TestAStateReadsBackAndIsCompressedWhenLarge(t *testing.T) {
	c := mustCodec(t)
	st := endpoint.State{Key: fullEvent().Slice.Key, Floor: version(3), Gone: []endpoint.Ref{{Name: "shop-z", Version: version(9), Translator: 2, Observed: at}}}
	compressed := 0
	for i := range 40 {
		m, err := c.state(st)
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := encodeState(st)
		if got, want := m.header.get(contentEncoding) == zstdEncoding, len(plain) > compressAbove; got != want {
			t.Errorf("%d bytes: compressed is %v, want %v", len(plain), got, want)
		} else if got {
			compressed++
			if len(m.body) >= len(plain) {
				t.Errorf("%d bytes became %d", len(plain), len(m.body))
			}
		}
		count, sum := ledger.OfState(st)
		if m.header.get(hCount) != fmt.Sprint(count) || m.header.get(hSum) != sum.String() || m.header.get(hFloor) != "1/3" {
			t.Errorf("headers are %v, want count %d, sum %s, floor 1/3", m.header, count, sum)
		}
		n, err := c.notice(m, false)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*n.State, st) {
			t.Fatalf("got %+v, want %+v", *n.State, st)
		}
		sl := fullEvent().Slice
		sl.Name, sl.Endpoints = fmt.Sprintf("shop-%02d", i), nil
		for j := range 60 {
			sl.Endpoints = append(sl.Endpoints, endpoint.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)}), TargetUID: fmt.Sprintf("%036d", i*j)})
		}
		st.Slices = append(st.Slices, sl)
	}
	if compressed == 0 {
		t.Error("no state was large")
	}
}

func TestCheckpointsAndRecordsReadBackFromBodyAndFromHeaders(t *testing.T) {
	c := mustCodec(t)
	cp := ledger.Checkpoint{Complete: version(9), AsOf: 7, Count: 2, Sum: ledger.Sum{Hi: 1 << 63, Lo: 5}, Written: at}
	rec := ledger.Record{UID: "a b\"%\r\nü", Generation: 4, Region: "eu", Policy: "expire=1h", Scope: "namespaces=a,b selector=x in (y,z)"}
	for _, root := range [...]string{eventsRoot, stateRoot} {
		m, err := c.checkpoint(root, "ca", cp)
		if err != nil {
			t.Fatal(err)
		}
		for _, headersOnly := range [...]bool{false, true} {
			n, err := c.notice(m, headersOnly)
			if want := (ledger.Notice{Kind: ledger.Certified, Cluster: "ca", Checkpoint: cp}); err != nil || !reflect.DeepEqual(n, want) {
				t.Errorf("%s, headers only %v: got %+v, %v, want %+v", m.subject, headersOnly, n, err, want)
			}
		}
	}
	m, err := c.record("ca", rec)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range m.header {
		if strings.ContainsAny(values[0], "\r\n ") {
			t.Errorf("header %s is %q", name, values[0])
		}
	}
	for _, headersOnly := range [...]bool{false, true} {
		n, err := c.notice(m, headersOnly)
		if want := (ledger.Notice{Kind: ledger.Recorded, Cluster: "ca", Record: rec}); err != nil || !reflect.DeepEqual(n, want) {
			t.Errorf("headers only %v: got %+v, %v, want %+v", headersOnly, n, err, want)
		}
	}
	if _, err := c.checkpoint(eventsRoot, "c.a", cp); err == nil {
		t.Error("a checkpoint of no cluster name: got no error")
	}
}

func TestHeadersAreCloudEvents(t *testing.T) {
	m, err := mustCodec(t).event(fullEvent())
	if err != nil {
		t.Fatal(err)
	}
	want := header{
		"Content-Type": {"application/protobuf"}, "ce-specversion": {"1.0"}, "ce-type": {"slicecast.v1.event.set"},
		"ce-source": {"/clusters/ca"}, "ce-id": {"ca/prod/shop/shop-a.b@1/7"}, "ce-subject": {"ca/prod/shop/shop-a.b"},
		"ce-time": {"2027-01-15T08:00:00.000000005Z"}, "Slicecast-Operation": {"set"}, "Slicecast-Version": {"1/7"},
		"Slicecast-Previous": {"1/5"}, "Slicecast-Translator": {"3"}, "Slicecast-Hash": {formatHash(fullEvent().Slice.Hash())},
	}
	if !reflect.DeepEqual(m.header, want) {
		t.Errorf("got %v, want %v", m.header, want)
	}
	if m.subject != "slicecast.v1.events.ca.prod.shop.shop-a_b" {
		t.Errorf("subject is %s", m.subject)
	}
}

// breakEvent is an event message after do has changed its parts.
func breakEvent(t *testing.T, do func(m *message, body *slicecastv1.Event)) message {
	t.Helper()
	m, err := mustCodec(t).event(fullEvent())
	if err != nil {
		t.Fatal(err)
	}
	var body slicecastv1.Event
	if err := proto.Unmarshal(m.body, &body); err != nil {
		t.Fatal(err)
	}
	do(&m, &body)
	if m.body != nil {
		if m.body, err = proto.Marshal(&body); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestABrokenEventIsRefused(t *testing.T) {
	tests := map[string]struct {
		do   func(m *message, body *slicecastv1.Event)
		want string
	}{
		"operation":         {func(m *message, _ *slicecastv1.Event) { m.header.set(hOperation, "x") }, `Slicecast-Operation is "x"`},
		"no version":        {func(m *message, _ *slicecastv1.Event) { delete(m.header, hVersion) }, "Slicecast-Version"},
		"zero version":      {func(m *message, _ *slicecastv1.Event) { m.header.set(hVersion, "0/1") }, "Slicecast-Version"},
		"short hash":        {func(m *message, _ *slicecastv1.Event) { m.header.set(hHash, "1:ab") }, "Slicecast-Hash"},
		"form of hash":      {func(m *message, _ *slicecastv1.Event) { m.header.set(hHash, "x:"+strings.Repeat("0", 32)) }, "Slicecast-Hash"},
		"digits of hash":    {func(m *message, _ *slicecastv1.Event) { m.header.set(hHash, "1:"+strings.Repeat("x", 32)) }, "Slicecast-Hash"},
		"other hash":        {func(m *message, _ *slicecastv1.Event) { m.header.set(hHash, "1:"+strings.Repeat("0", 32)) }, "does not have the hash"},
		"translator":        {func(m *message, _ *slicecastv1.Event) { m.header.set(hTranslator, "-1") }, "Slicecast-Translator"},
		"other version":     {func(m *message, _ *slicecastv1.Event) { m.header.set(hVersion, "1/8") }, "headers and body differ"},
		"other subject":     {func(m *message, _ *slicecastv1.Event) { m.subject += "x" }, "headers and body differ"},
		"encoding":          {func(m *message, _ *slicecastv1.Event) { m.header.set(contentEncoding, "br") }, "content encoding"},
		"not compressed":    {func(m *message, _ *slicecastv1.Event) { m.header.set(contentEncoding, "zstd") }, "decompress"},
		"no slice":          {func(_ *message, b *slicecastv1.Event) { b.Slice = nil }, "not a DNS subdomain"},
		"gone with content": {func(_ *message, b *slicecastv1.Event) { b.Gone = true }, "is gone and has content"},
		"address":           {func(_ *message, b *slicecastv1.Event) { b.Slice.Endpoints[0].Address = []byte{1} }, "an address of 1 bytes"},
		"mapped address": {func(_ *message, b *slicecastv1.Event) {
			b.Slice.Endpoints[0].Address = netip.MustParseAddr("::ffff:1.2.3.4").AsSlice()
		}, "not a plain"},
		"port":               {func(_ *message, b *slicecastv1.Event) { b.Slice.Ports[0].Number = 65536 }, "port number 65536"},
		"port 0":             {func(_ *message, b *slicecastv1.Event) { b.Slice.Ports[0].Number = 0 }, "number 0"},
		"empty hint":         {func(_ *message, b *slicecastv1.Event) { b.Slice.Endpoints[0].ZoneHints = []string{""} }, "hint"},
		"comma in hint":      {func(_ *message, b *slicecastv1.Event) { b.Slice.Endpoints[0].NodeHints = []string{"a,b"} }, "hint"},
		"order of endpoints": {func(_ *message, b *slicecastv1.Event) { e := b.Slice.Endpoints; e[0], e[1] = e[1], e[0] }, "out of order"},
		"transition":         {func(_ *message, b *slicecastv1.Event) { b.Transitions[0].Address = nil }, "transition"},
		"time":               {func(_ *message, b *slicecastv1.Event) { b.Slice.ObservedAt = &timestamppb.Timestamp{Nanos: -1} }, "observed_at"},
		"trigger time":       {func(_ *message, b *slicecastv1.Event) { b.Slice.TriggeredAt = &timestamppb.Timestamp{Nanos: -1} }, "triggered_at"},
		"peer":               {func(_ *message, b *slicecastv1.Event) { b.Peers[0].Name = "shop-a.b" }, "its own peer"},
		"too many": {func(_ *message, b *slicecastv1.Event) {
			b.Slice.Endpoints = make([]*slicecastv1.Endpoint, endpoint.MaxEndpoints+1)
			for i := range b.Slice.Endpoints {
				b.Slice.Endpoints[i] = &slicecastv1.Endpoint{}
			}
		}, "more than 1000"},
	}
	c := mustCodec(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, err := c.notice(breakEvent(t, tt.do), false)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v, want an error with %q", n, err, tt.want)
			}
		})
	}
	good := breakEvent(t, func(*message, *slicecastv1.Event) {})
	good.body = []byte{0xff}
	if _, err := c.notice(good, false); err == nil {
		t.Error("no protobuf: got no error")
	}
}

func TestAReaderOfThisReleaseReadsWhatALaterOneAdds(t *testing.T) {
	m := breakEvent(t, func(m *message, b *slicecastv1.Event) {
		b.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x01, 'x'})
		m.header.set(hHash, "2:"+strings.Repeat("0", 32))
		m.header.set("Slicecast-Later", "x")
	})
	n, err := mustCodec(t).notice(m, false)
	if err != nil || n.Event == nil || n.Hash != (endpoint.Hash{}) {
		t.Errorf("got %+v, %v, want the event with the hash of its header", n, err)
	}
}

func TestABrokenStateIsRefused(t *testing.T) {
	c := mustCodec(t)
	good, err := c.state(endpoint.State{Key: fullEvent().Slice.Key, Slices: []endpoint.Slice{fullEvent().Slice}})
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]*slicecastv1.State{
		"another key": {Cluster: "ca", Namespace: "prod", Service: "other"},
		"no key":      {},
		"bad slice":   {Cluster: "ca", Namespace: "prod", Service: "shop", Slices: []*slicecastv1.Slice{{Name: "x", Ports: []*slicecastv1.Port{{Number: 1 << 20}}}}},
	}
	for name, b := range bodies {
		body, err := proto.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.notice(message{good.subject, good.header, body}, false); err == nil {
			t.Errorf("%s: got %+v, want an error", name, n)
		}
	}
	if _, err := c.notice(message{good.subject, good.header, []byte{0xff}}, false); err == nil {
		t.Error("no protobuf: got no error")
	}
	if _, err := c.notice(message{good.subject, header{contentEncoding: {"br"}}, good.body}, false); err == nil {
		t.Error("unknown encoding: got no error")
	}
	bomb := c.enc.EncodeAll(make([]byte, maxBody+1), nil)
	if n, err := c.notice(message{good.subject, header{contentEncoding: {"zstd"}}, bomb}, false); err == nil || !strings.Contains(err.Error(), "decompress") {
		t.Errorf("a body of %d bytes that grows to %d: got %+v, %v, want an error", len(bomb), maxBody+1, n, err)
	}
}

func TestABrokenCheckpointOrRecordIsRefused(t *testing.T) {
	c := mustCodec(t)
	cp, err := c.checkpoint(eventsRoot, "ca", ledger.Checkpoint{Complete: version(9), Written: at})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := c.record("ca", ledger.Record{UID: "u", Generation: 1, Region: "r"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range [...]struct {
		m           message
		name, value string
	}{
		{cp, hOperation, "x"}, {cp, hVersion, ""}, {cp, hVersion, "0/0"}, {cp, hAsOf, "x"}, {cp, hCount, "-1"}, {cp, hSum, "zz"}, {cp, hSum, "00"}, {cp, "ce-time", "today"},
		{rec, hOperation, "x"}, {rec, hGeneration, "x"}, {rec, hGeneration, "0"}, {rec, hUID, ""}, {rec, hRegion, "%zz"},
	} {
		h := header{}
		for k, v := range tt.m.header {
			h[k] = v
		}
		h.set(tt.name, tt.value)
		if n, err := c.notice(message{tt.m.subject, h, tt.m.body}, true); err == nil {
			t.Errorf("%s with %s %q: got %+v, want an error", tt.m.subject, tt.name, tt.value, n)
		}
	}
	for _, body := range [...][]byte{{0xff}, {}, {0x22, 0x01, 0x00}} {
		for _, m := range [...]message{cp, rec} {
			if n, err := c.notice(message{m.subject, m.header, body}, false); err == nil {
				t.Errorf("%s with body %x: got %+v, want an error", m.subject, body, n)
			}
		}
	}
	late, err := proto.Marshal(&slicecastv1.Checkpoint{Sum: make([]byte, 16), WrittenAt: &timestamppb.Timestamp{Nanos: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.notice(message{cp.subject, cp.header, late}, false); err == nil {
		t.Error("a checkpoint of no time: got no error")
	}
}

func TestAMessageWithoutWordsIsPassedOver(t *testing.T) {
	n, err := mustCodec(t).notice(message{"slicecast.v1.state.ca._stale", nil, []byte("x")}, false)
	if err != nil || n.Kind != 0 {
		t.Errorf("got %+v, %v, want kind 0", n, err)
	}
}

func TestSubjects(t *testing.T) {
	good := map[string]subject{
		"slicecast.v1.events.ca.prod.shop.a_b-c":  {kind: eventSubject, root: eventsRoot, cluster: "ca", key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}, slice: "a.b-c"},
		"slicecast.v1.history.ca.prod.shop.a_b-c": {kind: historySubject, root: historyRoot, cluster: "ca", key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}, slice: "a.b-c"},
		"slicecast.v1.state.ca.prod.shop.0":       {kind: stateSubject, root: stateRoot, cluster: "ca", key: endpoint.Key{Cluster: "ca", Namespace: "prod", Service: "shop"}, part: "0"},
		"slicecast.v1.events.ca._checkpoint":      {kind: checkpointSubject, root: eventsRoot, cluster: "ca"},
		"slicecast.v1.state.ca._checkpoint":       {kind: checkpointSubject, root: stateRoot, cluster: "ca"},
		"slicecast.v1.events.ca._cluster":         {kind: recordSubject, root: eventsRoot, cluster: "ca"},
		"slicecast.v1.state.ca._stale":            {kind: staleSubject, root: stateRoot, cluster: "ca"},
	}
	for text, want := range good {
		got, err := parseSubject(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v (%s), %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range [...]string{
		"", "slicecast.v1.events", "slicecast.v1.events.", "slicecast.v1.events.ca", "slicecast.v1.events.ca.prod.shop", "slicecast.v2.events.ca.prod.shop.a",
		"slicecast.v1.events.ca.prod.shop.a.b", "slicecast.v1.events.CA.prod.shop.a", "slicecast.v1.events.ca.prod.-.a", "slicecast.v1.events.ca.prod.shop._a",
		"slicecast.v1.events.ca.prod.shop.", "slicecast.v1.state.ca.prod.shop.1", "slicecast.v1.state.ca._cluster", "slicecast.v1.events.ca._stale",
		"slicecast.v1.history.ca._checkpoint", "slicecast.v1.events.c_a._checkpoint", "slicecast.v1.events.ca.prod.shop.*", "slicecast.v1.query.drain",
		"slicecast.v1.events." + strings.Repeat("x", 300),
	} {
		if got, err := parseSubject(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		} else if len(err.Error()) > 400 {
			t.Errorf("%q: an error of %d bytes", text, len(err.Error()))
		}
	}
	if s := (subject{}).String(); s != "" {
		t.Errorf("nothing is %q", s)
	}
}

func TestFiltersAndQueriesTakeNoWildcards(t *testing.T) {
	for in, want := range map[string]string{"": eventsRoot + ">", "ca": eventsRoot + "ca.>", "*": "", "a.b": "", ">": ""} {
		if got, err := filterOf(eventsRoot, in); got != want || (err == nil) != (want != "") {
			t.Errorf("filter of %q: got %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"drain": queryRoot + "drain", "floor.ca": queryRoot + "floor.ca", "": "", "a..b": "", "floor.*": "", ">": "", "a b": "", strings.Repeat("x", 300): ""} {
		if got, err := querySubject(in); got != want || (err == nil) != (want != "") {
			t.Errorf("query %q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestSpacingOfSessions(t *testing.T) {
	const s = time.Second
	steps := []struct {
		reason   string
		complete bool
		lasted   time.Duration
		want     time.Duration
	}{
		{whyLost, false, 0, 0},
		{whyFailed, false, 0, s}, {whyFailed, false, 0, 2 * s}, {whyGap, true, s / 2, 4 * s},
		{whyHeartbeat, true, 10 * s, 0}, {whyFailed, false, 0, s},
		{whyResync, true, 10 * s, 2 * s}, {whyResync, true, 10 * s, 4 * s}, {whyResync, true, 60 * s, s},
		{whyFailed, false, 0, 2 * s}, {whyFailed, false, 0, 4 * s}, {whyFailed, false, 0, 8 * s}, {whyFailed, false, 0, 16 * s},
		{whyFailed, false, 0, 32 * s}, {whyFailed, false, 0, 60 * s}, {whyFailed, false, 0, 60 * s}, {whyLost, true, 0, 0}, {whyFailed, false, 0, s},
	}
	sp := spacing{least: s, most: 60 * s}
	for i, st := range steps {
		if got := sp.next(st.reason, st.complete, st.lasted, 0); got != st.want {
			t.Errorf("step %d, %+v: got %s", i, st, got)
		}
	}
	for range 1000 {
		if got := (&spacing{least: s, most: 60 * s, failures: rand.IntN(100)}).next(whyResync, true, 0, rand.Float64()); got < s || got > 60*s {
			t.Fatalf("a pause of %s is not in 1 s to 60 s", got)
		}
	}
}

func TestOneLineOfText(t *testing.T) {
	if got := oneLine("a\r\nb\x00c"); got != "a  b c" {
		t.Errorf("got %q", got)
	}
	if got := escape("a b\"%\n\xff~"); got != "a%20b%22%25%0A%FF~" {
		t.Errorf("got %q", got)
	}
	if got := clip(string(bytes.Repeat([]byte("x"), 500))); len(got) != 123 {
		t.Errorf("%d bytes", len(got))
	}
}
