package xdsserver

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// frame is an encoded response: pieces that are shared between streams and are never changed.
type frame struct {
	pieces mem.BufferSlice
	size   int
}

// add appends a piece.
func (f *frame) add(piece []byte) {
	if len(piece) > 0 {
		f.pieces = append(f.pieces, mem.SliceBuffer(piece))
		f.size += len(piece)
	}
}

// codec sends frames as they are and everything else as protobuf.
type codec struct{ proto encoding.CodecV2 }

func newCodec() (codec, error) {
	inner := encoding.GetCodecV2(protocodec.Name)
	if inner == nil {
		return codec{}, fmt.Errorf("gRPC has no codec %q", protocodec.Name)
	}
	return codec{inner}, nil
}

// Marshal gives the pieces of a frame; their buffers are not counted, so gRPC may free them as often as it likes.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.pieces, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal reads protobuf.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*sotwMessage); ok {
		return m.read(data)
	}
	return c.proto.Unmarshal(data, v)
}

// Name is the name of the codec on the wire.
func (c codec) Name() string { return protocodec.Name }
