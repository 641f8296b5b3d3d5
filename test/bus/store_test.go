package bus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestEveryReaderHoldsWhatTheClustersHaveWhileNothingFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	w.changes(300)
	w.settle("after 300 changes")
}

func TestARestartedServerTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := single(t)
	w := newWorld(t, s.URLs())
	for range 3 {
		w.changes(50)
		must(t, s.Restart())
	}
	w.changes(50)
	w.settle("after three restarts")
}

func TestAServerThatWasDownForManyChangesTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := single(t)
	w := newWorld(t, s.URLs())
	w.changes(50)
	s.Stop()
	w.changes(200)
	must(t, s.Start())
	w.settle("after the restart")
}

func TestAServerThatLostItsStoreIsFilledAgain(t *testing.T) {
	t.Parallel()
	s := single(t)
	w := newWorld(t, s.URLs())
	w.changes(50)
	must(t, s.Wipe())
	w.changes(50)
	w.settle("after the loss of the store")
	w.changes(50)
	must(t, s.Wipe())
	w.settle("after another loss, in quiet")
}

func TestAStoreThatWasRolledBackIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	s := single(t)
	w := newWorld(t, s.URLs())
	w.changes(50)
	must(t, s.Copy())
	w.changes(200)
	must(t, s.RollBack())
	w.changes(50)
	w.settle("after going back 200 changes")
	must(t, s.RollBack())
	w.settle("after going back again, in quiet")
}

func TestStreamsThatAreDeletedWhileConnectedAreFilledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for _, names := range [][]string{{"SLICECAST_EVENTS"}, {"SLICECAST_STATE"}, {"SLICECAST_HISTORY"}, {"SLICECAST_STATE", "SLICECAST_EVENTS"}} {
		w.changes(50)
		w.admin(func(ctx context.Context, js jetstream.JetStream) error {
			for _, name := range names {
				if err := deleteStream(ctx, js, name); err != nil {
					return err
				}
			}
			return nil
		})
		w.changes(50)
		w.settle("after the deletion of " + names[0])
	}
}

func TestReadersWhoseConsumersAreDeletedReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, single(t).URLs())
	for range 3 {
		w.changes(50)
		w.admin(deleteConsumers)
	}
	w.changes(50)
	w.settle("after the deletion of all consumers")
	w.admin(deleteConsumers)
	w.settle("after the deletion in quiet")
}

func deleteConsumers(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{"SLICECAST_EVENTS", "SLICECAST_STATE"} {
		st, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		names := st.ConsumerNames(ctx)
		for c := range names.Name() {
			if err := st.DeleteConsumer(ctx, c); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return err
			}
		}
		if err := names.Err(); err != nil {
			return err
		}
	}
	return nil
}

// deleteStream deletes a stream, unless it is gone already.
func deleteStream(ctx context.Context, js jetstream.JetStream, name string) error {
	err := js.DeleteStream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
