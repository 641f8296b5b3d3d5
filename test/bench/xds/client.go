package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// protocol is that of the streams.
type protocol string

const (
	delta protocol = "delta"
	sotw  protocol = "sotw"
)

// method is that of an ADS stream.
func (p protocol) method() string {
	name := "StreamAggregatedResources"
	if p == delta {
		name = "DeltaAggregatedResources"
	}
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + name
}

// raw sends pieces as they are, and reads of a response only how many resources it has, and what an acknowledgement
// repeats: clients must cost little, since they share the machine with the server.
type raw struct{}

// response is what a client looks at.
type response struct {
	version, nonce []byte
	resources      int
	size           int // bytes
}

// Marshal gives the pieces.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	pieces, ok := v.([][]byte)
	if !ok {
		return nil, fmt.Errorf("a request is a %T", v)
	}
	var out mem.BufferSlice
	for _, p := range pieces {
		out = append(out, mem.SliceBuffer(p))
	}
	return out, nil
}

// Unmarshal reads a response.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*response)
	if !ok {
		return fmt.Errorf("a response is a %T", v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	b := buf.ReadOnlyData()
	*r = response{size: len(b)}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("response: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if kind != protowire.BytesType {
			return fmt.Errorf("response: field %d has wire type %d", field, kind)
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("response: %w", protowire.ParseError(n))
		}
		b = b[n:]
		switch field { // the same in both protocols
		case 1:
			r.version = append([]byte(nil), value...)
		case 2:
			r.resources++
		case 5:
			r.nonce = append([]byte(nil), value...)
		}
	}
	return nil
}

// Name is the name of the codec on the wire.
func (raw) Name() string { return "proto" }

// client is one stream on a connection of its own. It acknowledges everything.
type client struct {
	protocol protocol
	names    []byte // the encoded names, as each SotW request repeats them
	count    int
	conn     *grpc.ClientConn
	stream   grpc.ClientStream
	received atomic.Int64 // bytes
	arrived  func(time.Time)
	ended    chan error
}

// connect opens a client's stream, asks for its names, and returns once it has them all.
func connect(ctx context.Context, addr string, p protocol, id int, names []string, arrived func(time.Time)) (*client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c := &client{protocol: p, count: len(names), conn: conn, arrived: arrived, ended: make(chan error, 1)}
	for _, name := range names {
		c.names = appendField(c.names, 3, name) // the same field in both protocols
	}
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, p.method())
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	node := appendField(nil, 1, fmt.Sprint("client-", id))
	var first []byte
	if p == delta {
		first = appendField(appendField(nil, 1, string(node)), 2, typeURL)
	} else {
		first = appendField(appendField(nil, 2, string(node)), 4, typeURL)
	}
	if err := c.stream.SendMsg([][]byte{first, c.names}); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	for have := 0; have < c.count; {
		r, err := c.take()
		if err != nil {
			return nil, err
		}
		have += r.resources
		if err := c.acknowledge(r); err != nil {
			return nil, fmt.Errorf("acknowledge: %w", err)
		}
	}
	go c.follow()
	return c, nil
}

func appendField(b []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// take receives a response.
func (c *client) take() (response, error) {
	var r response
	if err := c.stream.RecvMsg(&r); err != nil {
		return r, fmt.Errorf("receive: %w", err)
	}
	c.received.Add(int64(r.size))
	return r, nil
}

func (c *client) acknowledge(r response) error {
	if c.protocol == delta {
		return c.stream.SendMsg([][]byte{appendField(appendField(nil, 2, typeURL), 6, string(r.nonce))})
	}
	head := appendField(appendField(appendField(nil, 1, string(r.version)), 4, typeURL), 5, string(r.nonce))
	return c.stream.SendMsg([][]byte{head, c.names})
}

// follow takes what comes until the stream ends.
func (c *client) follow() {
	defer close(c.ended)
	for {
		r, err := c.take()
		if err != nil {
			c.ended <- err
			return
		}
		if r.resources > 0 {
			c.arrived(time.Now())
		}
		if err := c.acknowledge(r); err != nil {
			c.ended <- err
			return
		}
	}
}

// close ends the connection, and waits until its reader has gone.
func (c *client) close() {
	_ = c.conn.Close()
	for range c.ended { // Why it ended is known.
	}
}
