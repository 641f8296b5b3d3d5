package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// get reads the last message of subject. One that cannot be read is an answer, not an error.
func (b *Bus) get(ctx context.Context, spec jetstream.StreamConfig, subject string) (ledger.Notice, error) {
	s, err := parseSubject(subject)
	if err != nil {
		return ledger.Notice{}, err
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	raw, err := b.last(limited, spec, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ledger.Notice{Kind: ledger.Absent, Cluster: s.cluster, Key: s.key, Slice: s.slice}, nil
	}
	if err != nil {
		err = b.explain(ctx, spec, err)
		b.complain(spec.Name, err)
		return ledger.Notice{}, fmt.Errorf("read %s: %w", subject, err)
	}
	n, err := b.codec.notice(message{raw.Subject, header(raw.Header), raw.Data}, false)
	if err != nil {
		b.bad(subject, err)
	}
	if errors.Is(err, ErrNewer) {
		return ledger.Notice{}, fmt.Errorf("read: %w", err)
	}
	n.Seq, n.Stored = raw.Sequence, raw.Time
	return n, nil
}

// last reads the last message that matches subject from the leader. Where this client may not do so, since it may read
// some subjects of the stream only, any server of the stream answers, which may be behind a moment.
func (b *Bus) last(ctx context.Context, spec jetstream.StreamConfig, subject string) (*jetstream.RawStreamMsg, error) {
	st, err := b.stream(ctx, spec)
	if err != nil {
		return nil, err
	}
	if !b.confined.Load() {
		raw, err := b.lastOfLeader(ctx, spec.Name, subject)
		if !errors.Is(err, ErrNoPermission) || !spec.AllowDirect {
			return raw, err
		}
	}
	call, done := b.link.guard(ctx, "$JS.API.DIRECT.GET."+spec.Name+"."+subject, "$JS.API.STREAM.MSG.GET."+spec.Name)
	defer done()
	raw, err := st.GetLastMsgForSubject(call, subject)
	if err == nil {
		b.confined.Store(true) // Until there is another connection.
	}
	return raw, named(err, context.Cause(call))
}

// stored is the server's answer to a request for a message.
type stored struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// lastOfLeader is the library's read of a stream without direct gets, which for one with them asks any server.
func (b *Bus) lastOfLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	api := "$JS.API.STREAM.MSG.GET." + stream
	body, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, fmt.Errorf("ask for the last message: %w", err)
	}
	call, done := b.link.guard(ctx, api)
	defer done()
	reply, err := b.nc.RequestWithContext(call, api, body)
	if err != nil {
		return nil, named(err, context.Cause(call))
	}
	var answer stored
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	m := answer.Message
	switch {
	case answer.Error != nil:
		return nil, named(answer.Error, nil)
	case m == nil:
		return nil, errors.New("the server's answer holds no message")
	}
	raw := &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Data: m.Data, Time: m.Time}
	if len(m.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return nil, fmt.Errorf("read the headers of %s: %w", clip(m.Subject), err)
		}
		raw.Header = h
	}
	return raw, nil
}
