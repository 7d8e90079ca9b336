package filestore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// session is a keyedlog.Session.
type session struct {
	store  *Store
	writer string
	number int64
	closed atomic.Bool
}

func (s *session) Number() int64 { return s.number }

// do runs one call of the session.
func (s *session) do(ctx context.Context, step func(file) error, after func(keyedlog.View) error) error {
	if s.closed.Load() {
		return fmt.Errorf("%w: session %d of %q; open another one", keyedlog.ErrClosed, s.number, s.writer)
	}
	return s.store.do(ctx, step, after)
}

func (s *session) fenced() error {
	if newest := s.store.log.view.sessions[s.writer]; newest != s.number {
		return fmt.Errorf("%w: %q has session %d, this is %d; stop serving", keyedlog.ErrFenced, s.writer, newest, s.number)
	}
	return nil
}

func (s *session) Update(ctx context.Context, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	if keys == nil {
		keys = [][]byte{} // none, where nil is any
	}
	return s.do(ctx, func(f file) error {
		if err := s.fenced(); err != nil {
			return err
		}
		return s.store.update(ctx, f, s.writer, s.number, keys, decide)
	}, nil)
}

func (s *session) Check(ctx context.Context) error {
	return s.do(ctx, func(file) error { return s.fenced() }, nil)
}

func (s *session) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return s.do(ctx, nil, read)
}

func (s *session) Close() error {
	s.closed.Store(true)
	return nil
}
