package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/slicecast/slicecast/bus"
)

func TestAFolderIsWatchedWhenItsClaimIsGivenWhateverWentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{
			errors.New("no responders"), errors.New("no responders"), fmt.Errorf("%w: w1", bus.ErrClaimed), nil,
		}
		var said output
		ran, released := false, false
		err := alone(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), func(context.Context) (func(), error) {
			answer := answers[0]
			answers = answers[1:]
			return func() { released = true }, answer
		}, func(context.Context) error { ran = true; return nil })
		if err != nil || !ran || !released {
			t.Errorf("got %v, ran %t, released %t, want all done", err, ran, released)
		}
		if lines := strings.Count(said.String(), "\n"); lines != 2 {
			t.Errorf("got %d lines, want one for each cause:\n%s", lines, said.String())
		}
	})
}

func TestAnEndWhileAFolderIsClaimedIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := alone(ctx, slog.New(slog.DiscardHandler), func(context.Context) (func(), error) {
		cancel()
		return nil, bus.ErrClaimed
	}, func(context.Context) error { return errors.New("it ran") })
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
