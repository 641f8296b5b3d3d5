// Pure: whole messages (subject, headers, body) from values, and notices from messages.

package bus

import (
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

const (
	compressAbove = 64 << 10 // bytes of a State's body that stay as they are
	maxBody       = 64 << 20 // bytes of a decompressed body; far above the largest service that fits a message
)

// message is what the bus stores.
type message struct {
	subject string
	header  header
	body    []byte
}

// codec turns values into messages and back. It holds the compressor only, and is safe for use by many goroutines.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxBody), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &codec{enc, dec}, nil
}

// event is the message of an event. The error is the first invariant that ev breaks.
func (c *codec) event(ev endpoint.Event) (message, error) {
	if err := ev.Valid(); err != nil {
		return message{}, err
	}
	body, err := encodeEvent(ev)
	return message{eventOf(eventsRoot, ev.Slice.Key, ev.Slice.Name), eventHeader(ev), body}, err
}

// state is the message of a State, compressed when it is large. The error is the first invariant that st breaks.
func (c *codec) state(st endpoint.State) (message, error) {
	if err := st.Valid(); err != nil {
		return message{}, err
	}
	if len(st.Slices) > maxSlices {
		return message{}, fmt.Errorf("state of %s: %d slices are more than %d", st.Key, len(st.Slices), maxSlices)
	}
	m := message{subject: stateOf(st.Key), header: stateHeader(st)}
	body, err := encodeState(st)
	if err != nil {
		return message{}, err
	}
	m.body = body
	if len(body) > compressAbove {
		m.header.set(contentEncoding, zstdEncoding)
		m.body = c.enc.EncodeAll(body, make([]byte, 0, len(body)/8))
	}
	return m, nil
}

// checkpoint is the message of a checkpoint below root.
func (c *codec) checkpoint(root, cluster string, cp ledger.Checkpoint) (message, error) {
	s := subject{kind: checkpointSubject, root: root, cluster: cluster}
	if !endpoint.IsLabel(cluster) {
		return message{}, fmt.Errorf("cluster name %q is not a DNS label", clip(cluster))
	}
	if err := validCheckpoint(cp); err != nil {
		return message{}, err
	}
	body, err := encodeCheckpoint(cp)
	return message{s.String(), checkpointHeader(cluster, cp), body}, err
}

// record is the message of a cluster's record.
func (c *codec) record(cluster string, r ledger.Record) (message, error) {
	s := subject{kind: recordSubject, root: eventsRoot, cluster: cluster}
	if !endpoint.IsLabel(cluster) {
		return message{}, fmt.Errorf("cluster name %q is not a DNS label", clip(cluster))
	}
	if err := validRecord(r); err != nil {
		return message{}, err
	}
	body, err := encodeRecord(r)
	return message{s.String(), recordHeader(cluster, r), body}, err
}

// plain gives the body of m as it was before compression.
func (c *codec) plain(m message) ([]byte, error) {
	switch enc := m.header.get(contentEncoding); enc {
	case "":
		return m.body, nil
	case zstdEncoding:
		body, err := c.dec.DecodeAll(m.body, nil)
		if err != nil {
			return nil, refuse(badEncoding, fmt.Errorf("decompress: %w", err))
		}
		return body, nil
	default:
		return nil, refuse(badEncoding, fmt.Errorf("content encoding %q is not known", clip(enc)))
	}
}

// notice reads a message. headersOnly says that its body was left out. A message of a kind that this release has no
// words for gives a Notice of Kind 0. One that cannot be read gives an error of a refusal, and a Notice of Kind Refused,
// or of Kind 0 when not even its subject means anything.
func (c *codec) notice(m message, headersOnly bool) (ledger.Notice, error) {
	s, err := parseSubject(m.subject)
	if err != nil {
		return ledger.Notice{}, refuse(badSubject, err)
	}
	if err := notNewer(m.header); err != nil {
		return ledger.Notice{}, fmt.Errorf("message of %s: %w", clip(m.subject), err)
	}
	n := ledger.Notice{Cluster: s.cluster, Key: s.key, Slice: s.slice}
	switch s.kind {
	case eventSubject, historySubject:
		n.Kind = ledger.Changed
		err = c.readEvent(&n, m, headersOnly)
	case stateSubject:
		n.Kind = ledger.Changed
		err = c.readState(&n, m)
	case checkpointSubject:
		n.Kind = ledger.Certified
		err = readCheckpoint(&n, m, headersOnly)
	case recordSubject:
		n.Kind = ledger.Recorded
		err = readRecord(&n, m, headersOnly)
	case staleSubject:
	}
	if err != nil {
		refused := ledger.Notice{
			Kind: ledger.Refused, Of: n.Kind, Cluster: n.Cluster, Key: n.Key, Slice: n.Slice,
			Version: n.Version, Gone: n.Gone, Hash: n.Hash, Translator: n.Translator,
		}
		return refused, fmt.Errorf("message of %s: %w", clip(m.subject), err)
	}
	return n, nil
}

// readEvent fills n from headers, and with a body checks that both and the subject say the same.
func (c *codec) readEvent(n *ledger.Notice, m message, headersOnly bool) error {
	var head ledger.Notice
	if err := fillEvent(&head, m.header); err != nil {
		return refuse(badHeader, err)
	}
	n.Version, n.Gone, n.Hash, n.Translator = head.Version, head.Gone, head.Hash, head.Translator
	if headersOnly {
		return nil
	}
	body, err := c.plain(m)
	if err != nil {
		return err
	}
	ev, err := decodeEvent(body)
	if err != nil {
		return err
	}
	s := &ev.Slice
	if s.Key != n.Key || s.Name != n.Slice || s.Version != n.Version || s.Translator != n.Translator || ev.Gone != n.Gone {
		return refuse(badMatch, fmt.Errorf("headers and body differ: %s/%s at %s", s.Key, s.Name, s.Version))
	}
	// A writer of another release may hash another canonical form; its hash is taken as it is.
	if form, _, _ := parseHash(m.header.get(hHash)); form == endpoint.ContentVersion && s.Hash() != n.Hash {
		return refuse(badMatch, fmt.Errorf("content of %s/%s at %s does not have the hash of its header", s.Key, s.Name, s.Version))
	}
	n.Event = &ev
	return nil
}

func (c *codec) readState(n *ledger.Notice, m message) error {
	body, err := c.plain(m)
	if err != nil {
		return err
	}
	st, err := decodeState(body)
	if err != nil {
		return err
	}
	if st.Key != n.Key {
		return refuse(badMatch, fmt.Errorf("the body is of %s", st.Key))
	}
	n.State = &st
	return nil
}

func readCheckpoint(n *ledger.Notice, m message, headersOnly bool) (err error) {
	if n.Checkpoint, err = headerCheckpoint(m.header); err != nil {
		return refuse(badHeader, err)
	}
	if !headersOnly {
		n.Checkpoint, err = decodeCheckpoint(m.body)
	}
	return err
}

func readRecord(n *ledger.Notice, m message, headersOnly bool) (err error) {
	if n.Record, err = headerRecord(m.header); err != nil {
		return refuse(badHeader, err)
	}
	if !headersOnly {
		n.Record, err = decodeRecord(m.body)
	}
	return err
}
