package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Reconnect drops the connection and makes it again.
func (b *Bus) Reconnect() error { return b.nc.ForceReconnect() }

// JetStream is for tests that do what only an operator does.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// ServerName is the server that the connection is to.
func (b *Bus) ServerName() string { return b.nc.ConnectedServerName() }

// DeleteStreams deletes what Connect made.
func (b *Bus) DeleteStreams(ctx context.Context) error {
	for _, s := range b.specs() {
		if err := b.js.DeleteStream(ctx, s.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}
