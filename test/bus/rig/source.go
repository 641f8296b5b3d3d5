package rig

import (
	"context"
	"errors"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/watcher"
)

// Source is what one watcher hears of an API. It can be held still, and be told to list late or old content.
type Source struct {
	API  *API
	Gate *Gate // holds what is heard; nil: never

	// Shift is added to the clock of the times that the source stamps.
	Shift time.Duration
	// Relist is asked before each list for the version to list: 0 means now. A version below what was heard is a list that is not
	// consistent. Nil means always now.
	Relist func(now uint64) uint64
	// Again makes a running Watch list anew when it is sent to. Nil: never.
	Again chan struct{}
}

// errAway is what a held source answers.
var errAway = errors.New("the API server does not answer")

// UID implements watcher.Source.
func (s *Source) UID(ctx context.Context) (string, error) {
	if err := s.Gate.Pass(ctx); err != nil {
		return "", err
	}
	return s.API.UID, nil
}

// Floor implements watcher.Source.
func (s *Source) Floor(ctx context.Context) (uint64, error) {
	if s.Gate.Held() {
		return 0, errAway
	}
	return s.API.Now(), nil
}

// Watch implements watcher.Source.
func (s *Source) Watch(ctx context.Context, scope watcher.Scope, handle func(watcher.Update)) error {
	for ctx.Err() == nil {
		if s.Gate.Pass(ctx) != nil {
			return nil
		}
		handle(watcher.Update{Kind: watcher.Listing})
		at := s.API.Now()
		if s.Relist != nil {
			if v := s.Relist(at); v != 0 {
				at = v
			}
		}
		u := watcher.Update{Kind: watcher.Listed, AsOf: at}
		for _, sl := range s.API.at(at) {
			u.Slices = append(u.Slices, s.stamp(sl, scope))
		}
		if s.Gate.Pass(ctx) != nil {
			return nil
		}
		handle(u)
		s.tail(ctx, scope, at, handle)
	}
	return nil
}

// tail hands on what changes after at, until ctx ends or a new list is wanted.
func (s *Source) tail(ctx context.Context, scope watcher.Scope, at uint64, handle func(watcher.Update)) {
	bookmark := time.NewTicker(time.Second)
	defer bookmark.Stop()
	for {
		news, moved := s.API.after(at)
		for _, w := range news {
			if s.Gate.Pass(ctx) != nil {
				return
			}
			at = w.slice.Version.Resource
			u := watcher.Update{Kind: watcher.Changed, Slice: s.stamp(w.slice, scope), AsOf: at}
			if w.gone {
				u = watcher.Update{Kind: watcher.Removed, Namespace: w.slice.Key.Namespace, Name: w.slice.Name, AsOf: at}
			}
			handle(u)
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-moved:
		case <-bookmark.C:
			if !s.Gate.Held() {
				handle(watcher.Update{Kind: watcher.Heard, AsOf: at})
			}
		case <-s.Again:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stamp makes a slice of the model one of the watcher's.
func (s *Source) stamp(sl endpoint.Slice, scope watcher.Scope) endpoint.Slice {
	sl.Key.Cluster = scope.Cluster
	sl.Version.Generation = scope.Generation
	sl.Observed = time.Now().Add(s.Shift)
	sl.Triggered = sl.Observed
	return sl
}
