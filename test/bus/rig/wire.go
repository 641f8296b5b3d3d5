package rig

import (
	"context"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Wire is what stands between a role and the bus. The zero Wire changes nothing.
type Wire struct {
	// Gate holds all that the role reads and writes; nil: never.
	Gate *Gate
	// Shift is added to the clock of the times that the role writes.
	Shift time.Duration
	// BeforePut is called before each write of a State, AfterPut after it; an error is what the role gets instead. Nil: not called.
	BeforePut func(context.Context, endpoint.State) error
	AfterPut  func(context.Context, endpoint.State, ledger.Result) error
}

// events is the EVENTS stream behind a wire.
type events struct {
	*bus.Events
	w Wire
}

func (e events) Follow(ctx context.Context, cluster string, headersOnly bool, handle func(ledger.Notice) error) error {
	return e.Events.Follow(ctx, cluster, headersOnly, e.w.held(ctx, handle))
}

func (e events) FollowRecords(ctx context.Context, handle func(ledger.Notice) error) error {
	return e.Events.FollowRecords(ctx, e.w.held(ctx, handle))
}

func (e events) Put(ctx context.Context, ev endpoint.Event, expect uint64) (ledger.Result, error) {
	return through(ctx, e.w, func() (ledger.Result, error) { return e.Events.Put(ctx, ev, expect) })
}

func (e events) Get(ctx context.Context, key endpoint.Key, slice string) (ledger.Notice, error) {
	return through(ctx, e.w, func() (ledger.Notice, error) { return e.Events.Get(ctx, key, slice) })
}

func (e events) Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	cp.Written = cp.Written.Add(e.w.Shift)
	return through(ctx, e.w, func() (ledger.Result, error) { return e.Events.Certify(ctx, cluster, cp, expect) })
}

func (e events) PutRecord(ctx context.Context, cluster string, r ledger.Record, expect uint64) (ledger.Result, error) {
	return through(ctx, e.w, func() (ledger.Result, error) { return e.Events.PutRecord(ctx, cluster, r, expect) })
}

// states is the STATE stream behind a wire.
type states struct {
	*bus.States
	w Wire
}

func (s states) Follow(ctx context.Context, cluster string, handle func(ledger.Notice) error) error {
	return s.States.Follow(ctx, cluster, s.w.held(ctx, handle))
}

func (s states) Put(ctx context.Context, st endpoint.State, expect uint64) (ledger.Result, error) {
	if s.w.BeforePut != nil {
		if err := s.w.BeforePut(ctx, st); err != nil {
			return ledger.Result{}, err
		}
	}
	res, err := through(ctx, s.w, func() (ledger.Result, error) { return s.States.Put(ctx, st, expect) })
	if err == nil && s.w.AfterPut != nil {
		if err := s.w.AfterPut(ctx, st, res); err != nil {
			return ledger.Result{}, err
		}
	}
	return res, err
}

func (s states) Get(ctx context.Context, key endpoint.Key) (ledger.Notice, error) {
	return through(ctx, s.w, func() (ledger.Notice, error) { return s.States.Get(ctx, key) })
}

func (s states) Certify(ctx context.Context, cluster string, cp ledger.Checkpoint, expect uint64) (ledger.Result, error) {
	cp.Written = cp.Written.Add(s.w.Shift)
	return through(ctx, s.w, func() (ledger.Result, error) { return s.States.Certify(ctx, cluster, cp, expect) })
}

// held gives a handler that waits at the gate.
func (w Wire) held(ctx context.Context, handle func(ledger.Notice) error) func(ledger.Notice) error {
	return func(n ledger.Notice) error {
		if err := w.Gate.Pass(ctx); err != nil {
			return err
		}
		return handle(n)
	}
}

// through does a call, and waits at the gate before and after it: what was decided before a stop is sent after it.
func through[T any](ctx context.Context, w Wire, call func() (T, error)) (T, error) {
	var none T
	if err := w.Gate.Pass(context.WithoutCancel(ctx)); err != nil {
		return none, err
	}
	v, err := call()
	if err := w.Gate.Pass(context.WithoutCancel(ctx)); err != nil {
		return none, err
	}
	return v, err
}
