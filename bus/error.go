package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// permanentError is an error that the same call will give again until somebody has done something about it, where others pass by
// themselves. Callers that do not import this package tell the two apart by the method.
type permanentError string

func (e permanentError) Error() string { return string(e) }

// Refused is always true.
func (permanentError) Refused() bool { return true }

// What a write or a read of the bus can fail with, for errors.Is. After any of them nothing is sent later, and the
// caller decides again on what its session and Get say. Those with a method Refused (errors.As) do not pass by themselves.
var (
	// ErrNotConnected is returned when there is no connection, or it was lost before the answer came.
	ErrNotConnected = errors.New("not connected to the bus")
	// ErrNoStream is returned when no server answers for the stream; a missing stream has been made again meanwhile.
	ErrNoStream = errors.New("the bus has no such stream at present")
	// ErrStreamFull is returned when the stream is at its size limit and the message would make it larger.
	ErrStreamFull error = permanentError("the stream is full")
	// ErrTooLarge is returned for a message above the limit of the server or the stream.
	ErrTooLarge error = permanentError("the message is too large for the bus")
	// ErrNoPermission is returned when the server refuses the subject to this client.
	ErrNoPermission error = permanentError("the bus refuses this client permission")
	// ErrNoQuorum is returned when too few servers of a cluster are there to decide.
	ErrNoQuorum = errors.New("the servers of the bus have no quorum")
	// ErrStreamSettings is returned when a stream exists with settings that break the promises of this package, or another
	// one holds its subjects.
	ErrStreamSettings error = permanentError("the stream has unfit settings")
	// ErrNewer is returned for a subject that holds a message of a newer major version of slicecast, which is left alone.
	ErrNewer error = permanentError("a message of a newer slicecast")
	// ErrNobody is returned by Queries.Ask when no process answers that query.
	ErrNobody = errors.New("nobody answers this query")
	// ErrClaimed is returned by Claim when another process holds the key; the text names it.
	ErrClaimed = errors.New("claimed by another process")
	// ErrLocked is returned by StartEmbedded when another process uses the data directory; the text names both.
	ErrLocked = errors.New("the data directory is in use")
)

// Codes of the server that the client library has no names for.
const (
	codeStoreFailed    = 10077 // the stream is at its limit
	codeNoLeader       = 10008 // JetStream temporarily unavailable: no leader of the servers
	codeNoPeers        = 10005 // too few servers to place a stream on
	codeOverlap        = 10065 // another stream holds the subjects of one that is to be made
	codeStreamMismatch = 10060 // the subject belongs to another stream
)

// kinds of failed writes, the label values of a metric.
const (
	kindNotConnected = "not_connected"
	kindNoStream     = "no_stream"
	kindFull         = "full"
	kindTooLarge     = "too_large"
	kindPermission   = "no_permission"
	kindNoQuorum     = "no_quorum"
	kindSettings     = "unfit_stream"
	kindTimeout      = "timeout"
	kindSlow         = "slow_consumer"
	kindOther        = "other"
)

var kindsOfErrors = [...]struct {
	err  error
	kind string
}{
	{ErrNotConnected, kindNotConnected}, {ErrNoStream, kindNoStream}, {ErrStreamFull, kindFull}, {ErrTooLarge, kindTooLarge},
	{ErrNoPermission, kindPermission}, {ErrNoQuorum, kindNoQuorum}, {ErrStreamSettings, kindSettings},
	{context.DeadlineExceeded, kindTimeout}, {nats.ErrTimeout, kindTimeout},
}

// kindOf gives the label value of a failed write.
func kindOf(err error) string {
	for _, k := range kindsOfErrors {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return kindOther
}

// isConflict reports a lost compare-and-set: 10071, and on several servers also 10164.
func isConflict(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

func codeOf(err error) jetstream.ErrorCode {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError().ErrorCode
	}
	return 0
}

// named puts the sentinel before err that fits. cause is why the call was ended early, nil when it was not.
func named(err, cause error) error {
	if err == nil {
		return nil
	}
	for _, sentinel := range [...]error{ErrNoPermission, ErrNotConnected} {
		if errors.Is(cause, sentinel) {
			return cause
		}
	}
	switch code := codeOf(err); code {
	case codeStoreFailed:
		return fmt.Errorf("%w: %w", ErrStreamFull, err)
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case jetstream.JSErrCodeStreamNotFound, codeStreamMismatch:
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	case codeOverlap:
		return fmt.Errorf("%w: %w", ErrStreamSettings, err)
	case codeNoLeader, codeNoPeers:
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	for _, m := range [...]struct{ is, name error }{
		{nats.ErrMaxPayload, ErrTooLarge},
		{nats.ErrReconnectBufExceeded, ErrNotConnected},
		{nats.ErrConnectionClosed, ErrNotConnected},
		{nats.ErrConnectionReconnecting, ErrNotConnected},
		{nats.ErrDisconnected, ErrNotConnected},
		{jetstream.ErrConnectionClosed, ErrNotConnected},
		{jetstream.ErrNoStreamResponse, ErrNoStream},
		{nats.ErrNoResponders, ErrNoStream},
		{jetstream.ErrStreamNotFound, ErrNoStream},
		{nats.ErrPermissionViolation, ErrNoPermission},
		{nats.ErrAuthorization, ErrNoPermission},
	} {
		if errors.Is(err, m.is) {
			return fmt.Errorf("%w: %w", m.name, err)
		}
	}
	return err
}
