package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/bus/bustest"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	slicecastv1 "github.com/slicecast/slicecast/proto/slicecast/v1"
)

// odd changes a good message into what no API server would have let pass, and says why it is refused.
type odd struct {
	change func(m *nats.Msg)
	reason string
}

// body changes the body of a message of type M.
func body[M proto.Message](empty M, change func(M)) func(*nats.Msg) {
	return func(m *nats.Msg) {
		b := proto.Clone(empty)
		if err := proto.Unmarshal(m.Data, b); err != nil {
			panic(err)
		}
		change(b.(M))
		var err error
		if m.Data, err = proto.Marshal(b); err != nil {
			panic(err)
		}
	}
}

// oddSlices is what may be wrong with a slice, whatever message it is in.
var oddSlices = map[string]func(s *slicecastv1.Slice){
	"an address of 3 bytes":    func(s *slicecastv1.Slice) { s.Endpoints[0].Address = []byte{1, 2, 3} },
	"no address":               func(s *slicecastv1.Slice) { s.Endpoints[0].Address = nil },
	"port 70,000":              func(s *slicecastv1.Slice) { s.Ports[0].Number = 70_000 },
	"port 0":                   func(s *slicecastv1.Slice) { s.Ports[0].Number = 0 },
	"two ports of one name":    func(s *slicecastv1.Slice) { s.Ports = append(s.Ports, s.Ports[0]) },
	"a port name that is none": func(s *slicecastv1.Slice) { s.Ports[0].Name = strings.Repeat("x", 300_000) },
	"5,000 endpoints": func(s *slicecastv1.Slice) {
		for i := len(s.Endpoints); i < 5000; i++ {
			s.Endpoints = append(s.Endpoints, &slicecastv1.Endpoint{Address: []byte{11, 0, byte(i >> 8), byte(i)}})
		}
	},
	"endpoints out of order":   func(s *slicecastv1.Slice) { s.Endpoints[0], s.Endpoints[1] = s.Endpoints[1], s.Endpoints[0] },
	"an endpoint twice":        func(s *slicecastv1.Slice) { s.Endpoints[1] = s.Endpoints[0] },
	"both families":            func(s *slicecastv1.Slice) { s.Endpoints[2].Address = append(make([]byte, 15), 1) },
	"hints that are a list":    func(s *slicecastv1.Slice) { s.Endpoints[0].ZoneHints = []string{"b,a"} },
	"hints out of order":       func(s *slicecastv1.Slice) { s.Endpoints[0].ZoneHints = []string{"b", "a"} },
	"a huge name":              func(s *slicecastv1.Slice) { s.Name = strings.Repeat("x", 500_000) },
	"no version":               func(s *slicecastv1.Slice) { s.Version = nil },
	"a time out of range":      func(s *slicecastv1.Slice) { s.ObservedAt.Nanos = -1 },
	"an endpoint that is null": func(s *slicecastv1.Slice) { s.Endpoints[0] = &slicecastv1.Endpoint{} },
}

// oddBodies are those of any message.
var oddBodies = map[string]odd{
	"no body":               {func(m *nats.Msg) { m.Data = nil }, "content"},
	"bytes":                 {func(m *nats.Msg) { m.Data = []byte("these are no fields") }, "body"},
	"half a body":           {func(m *nats.Msg) { m.Data = m.Data[:len(m.Data)/2] }, "body"},
	"text that is no UTF-8": {func(m *nats.Msg) { m.Data = []byte{0x0a, 0x01, 0xff} }, "body"},
	"gzip":                  {func(m *nats.Msg) { m.Header.Set("Content-Encoding", "gzip") }, "encoding"},
	"zstd that is none":     {func(m *nats.Msg) { m.Header.Set("Content-Encoding", "zstd") }, "encoding"},
	"a bomb": {func(m *nats.Msg) {
		m.Header.Set("Content-Encoding", "zstd")
		m.Data = bomb()
	}, "encoding"},
	"a bomb that hides its size": {func(m *nats.Msg) {
		m.Header.Set("Content-Encoding", "zstd")
		m.Data = bytesOf(func(w *zstd.Encoder) {
			for range 1 << 10 {
				_, _ = w.Write(make([]byte, 1<<17))
			}
		})
	}, "encoding"},
	"another service": {func(m *nats.Msg) { m.Data = append(m.Data, "\x1a\x05other"...) }, "mismatch"},
}

// bomb is 128 MiB of nothing.
func bomb() []byte {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return enc.EncodeAll(make([]byte, 128<<20), nil)
}

func bytesOf(write func(*zstd.Encoder)) []byte {
	var out strings.Builder
	enc, err := zstd.NewWriter(&out)
	if err != nil {
		panic(err)
	}
	write(enc)
	if err := enc.Close(); err != nil {
		panic(err)
	}
	return []byte(out.String())
}

// hall is a bus with a reader of one cluster, and what is counted and logged of it.
type hall struct {
	key    endpoint.Key
	b      *bus.Bus
	reg    *prometheus.Registry
	log    *logSink
	reader *bustest.Recorder
}

func newHall(t *testing.T, s *extServer, follow func(ctx context.Context, b *bus.Bus, cluster string, handle func(ledger.Notice) error) error) *hall {
	t.Helper()
	h := &hall{reg: prometheus.NewRegistry(), log: &logSink{}, reader: bustest.NewRecorder()}
	h.key = endpoint.Key{Cluster: strings.ToLower(nuid.Next()), Namespace: "prod", Service: "shop"}
	var err error
	h.b, err = bus.Connect(t.Context(), bus.Config{
		Name: "test", URLs: []string{s.url}, Log: slog.New(slog.NewTextHandler(h.log, nil)), Metrics: h.reg,
		Heartbeat: 10 * time.Second, // A slow machine is no reason for a second session.
	})
	must(t, err)
	t.Cleanup(h.b.Close)
	h.reader.Follow(t, func(ctx context.Context, handle func(ledger.Notice) error) error {
		return follow(ctx, h.b, h.key.Cluster, handle)
	})
	h.reader.WaitComplete(t, 1)
	return h
}

// spoil replaces the message of a subject, twice, by what change makes of it.
func (h *hall) spoil(t *testing.T, stream, subject string, change func(*nats.Msg)) (seq uint64) {
	t.Helper()
	st, err := h.b.JetStream().Stream(t.Context(), stream)
	must(t, err)
	last, err := st.GetLastMsgForSubject(t.Context(), subject)
	must(t, err)
	for range 2 {
		m := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: last.Data}
		for k, v := range last.Header {
			if !strings.HasPrefix(k, "Nats-") {
				m.Header[k] = v
			}
		}
		change(m)
		ack, err := h.b.JetStream().PublishMsg(t.Context(), m)
		must(t, err)
		seq = ack.Sequence
		h.wait(t, seq)
	}
	return seq
}

// wait gives the notice of a sequence, in the one session that there must be.
func (h *hall) wait(t *testing.T, seq uint64) (found ledger.Notice) {
	t.Helper()
	sessions := h.reader.Wait(t, fmt.Sprintf("message %d", seq), func(s [][]ledger.Notice) bool {
		last := s[len(s)-1]
		found = last[len(last)-1]
		return found.Kind != ledger.Complete && found.Seq >= seq
	})
	if len(sessions) != 1 {
		t.Fatalf("%d sessions, want one", len(sessions))
	}
	return found
}

// refused checks what was told, counted and logged of a refused message.
func (h *hall) refused(t *testing.T, seq uint64, kind, reason string) {
	t.Helper()
	key := h.key
	if n := h.wait(t, seq); n.Kind != ledger.Refused || n.Of != ledger.Changed || n.Key != key || n.Seq != seq || n.Event != nil || n.State != nil {
		t.Errorf("got %+v, want only that message %d of %s was refused", n, seq, key)
	}
	for name, v := range samples(t, h.reg) {
		want := 0.0
		if name == "slicecast_bus_bad_messages_total{"+kind+","+reason+"}" {
			want = 2
		}
		if strings.HasPrefix(name, "slicecast_bus_bad_messages_total") && v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if got := h.log.count("bus message refused"); got != 1 {
		t.Errorf("%d lines for one subject, want 1", got)
	}
}

func TestAnOddEventIsRefusedByItselfAndHeals(t *testing.T) {
	all := map[string]odd{
		"no headers":          {func(m *nats.Msg) { m.Header = nil }, "header"},
		"a header that lies":  {func(m *nats.Msg) { m.Header.Set("Slicecast-Version", "1/999") }, "mismatch"},
		"a hash that lies":    {func(m *nats.Msg) { m.Header.Set("Slicecast-Hash", "1:"+strings.Repeat("0", 32)) }, "mismatch"},
		"no version":          {func(m *nats.Msg) { m.Header.Set("Slicecast-Version", "0/0") }, "header"},
		"a huge header":       {func(m *nats.Msg) { m.Header.Set("Slicecast-Version", strings.Repeat("9", 30_000)) }, "header"},
		"gone with endpoints": {body(&slicecastv1.Event{}, func(e *slicecastv1.Event) { e.Gone = true }), "content"},
		"no slice":            {body(&slicecastv1.Event{}, func(e *slicecastv1.Event) { e.Slice = nil }), "content"},
		"a peer twice": {body(&slicecastv1.Event{}, func(e *slicecastv1.Event) {
			p := &slicecastv1.Ref{Name: "x", Version: &slicecastv1.Version{Generation: 1, Resource: 1}}
			e.Peers = []*slicecastv1.Ref{p, p}
		}), "content"},
	}
	for name, o := range oddBodies {
		all[name] = o
	}
	for name, change := range oddSlices {
		all["slice: "+name] = odd{body(&slicecastv1.Event{}, func(e *slicecastv1.Event) { change(e.Slice) }), "content"}
	}
	server := startServer(t)
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			h := newHall(t, server, func(ctx context.Context, b *bus.Bus, cluster string, handle func(ledger.Notice) error) error {
				return b.Events().Follow(ctx, cluster, false, handle)
			})
			put := func(service string, resource, expect uint64) uint64 {
				r, err := h.b.Events().Put(t.Context(), bustest.Event(h.key.Cluster, service, service, resource, 3), expect)
				if err != nil || !r.Saved {
					t.Fatalf("put: got %+v, %v", r, err)
				}
				if n := h.wait(t, r.Seq); n.Kind != ledger.Changed || n.Event == nil {
					t.Fatalf("got %+v, want the event", n)
				}
				return r.Seq
			}
			put("shop", 1, 0)
			other := put("other", 2, 0)
			seq := h.spoil(t, "SLICECAST_EVENTS", "slicecast.v1.events."+h.key.Cluster+".prod.shop.shop", o.change)
			h.refused(t, seq, "event", o.reason)
			put("other", 3, other)
			n, err := h.b.Events().Get(t.Context(), h.key, "shop")
			if err != nil || n.Kind != ledger.Refused || n.Seq != seq {
				t.Errorf("get: got %+v, %v, want Refused at %d", n, err, seq)
			}
			put("shop", 4, n.Seq)
		})
	}
}

func TestAnOddStateIsRefusedByItselfAndHeals(t *testing.T) {
	all := map[string]odd{
		"a slice twice": {body(&slicecastv1.State{}, func(s *slicecastv1.State) { s.Slices = append(s.Slices, s.Slices...) }), "content"},
		"a tombstone of a live slice": {body(&slicecastv1.State{}, func(s *slicecastv1.State) {
			s.Gone = []*slicecastv1.Ref{{Name: s.Slices[0].Name, Version: &slicecastv1.Version{Generation: 9, Resource: 1}}}
		}), "content"},
		"an empty slice": {body(&slicecastv1.State{}, func(s *slicecastv1.State) { s.Slices[0] = &slicecastv1.Slice{} }), "content"},
	}
	for name, o := range oddBodies {
		all[name] = o
	}
	for name, change := range oddSlices {
		all["slice: "+name] = odd{body(&slicecastv1.State{}, func(s *slicecastv1.State) { change(s.Slices[0]) }), "content"}
	}
	server := startServer(t)
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			h := newHall(t, server, func(ctx context.Context, b *bus.Bus, cluster string, handle func(ledger.Notice) error) error {
				return b.States().Follow(ctx, cluster, handle)
			})
			put := func(service string, resource, expect uint64) uint64 {
				ev := bustest.Event(h.key.Cluster, service, service, resource, 3)
				r, err := h.b.States().Put(t.Context(), endpoint.State{Key: ev.Slice.Key, Slices: []endpoint.Slice{ev.Slice}}, expect)
				if err != nil || !r.Saved {
					t.Fatalf("put: got %+v, %v", r, err)
				}
				if n := h.wait(t, r.Seq); n.Kind != ledger.Changed || n.State == nil {
					t.Fatalf("got %+v, want the state", n)
				}
				return r.Seq
			}
			put("shop", 1, 0)
			other := put("other", 2, 0)
			seq := h.spoil(t, "SLICECAST_STATE", "slicecast.v1.state."+h.key.Cluster+".prod.shop.0", o.change)
			h.refused(t, seq, "state", o.reason)
			put("other", 3, other)
			n, err := h.b.States().Get(t.Context(), h.key)
			if err != nil || n.Kind != ledger.Refused || n.Seq != seq {
				t.Errorf("get: got %+v, %v, want Refused at %d", n, err, seq)
			}
			put("shop", 4, n.Seq)
		})
	}
}

func TestARecordThatCannotBeReadIsAnError(t *testing.T) {
	b := connect(t, bus.Config{URLs: []string{startServer(t).url}})
	_, err := b.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: "slicecast.v1.events.ca._cluster", Data: []byte("foreign")})
	must(t, err)
	if r, seq, err := b.Events().Record(t.Context(), "ca"); err == nil {
		t.Errorf("got %+v at %d, want an error: nobody may take the cluster for a new one", r, seq)
	}
}
