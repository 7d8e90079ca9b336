package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/clustermirror/clustermirror/statemachine"
)

// session is a statemachine.Session of a StateStore.
type session struct {
	store  *StateStore
	owner  string
	number int64
	closed atomic.Bool
}

// Write judges the writes in order and replaces the file once.
func (s *session) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	results := make([]statemachine.WriteResult, len(writes))
	err := s.store.do(ctx, func(all *states) (changed bool, err error) {
		if s.closed.Load() {
			return false, statemachine.ErrClosed
		}
		if all.Sessions[s.owner] != s.number {
			return false, fmt.Errorf("%w: %q was opened again elsewhere; stop serving its partitions", statemachine.ErrFenced, s.owner)
		}
		for i, w := range writes {
			at, found := slices.BinarySearchFunc(all.Records, w.Key, func(r record, k statemachine.Key) int { return r.Entry.Key.Compare(k) })
			if !found {
				all.Records = slices.Insert(all.Records, at, record{Entry: statemachine.NewEntry(w.Key)})
			}
			r := &all.Records[at]
			r.Entry, results[i] = statemachine.Apply(r.Entry, w, s.owner, all.Sessions[r.Entry.Owner] > r.Session)
			if results[i].Err == nil && (w.State != nil || w.LME != nil || w.Delete) {
				r.Session, changed = s.number, true
			}
			if r.Entry.Empty() {
				all.Records = slices.Delete(all.Records, at, at+1)
			}
		}
		return changed, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (s *session) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	return s.store.Load(ctx, each)
}

// Close ends this session only. The owner's keys stay his.
func (s *session) Close() error {
	s.closed.Store(true)
	return nil
}
