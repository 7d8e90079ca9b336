package mirror

import (
	"context"
	"errors"
)

// remembering writes what metadata sync is about to write at the destination into the Control (Provenance), before it is written there. What several want to remember at once is
// one step of the Control.
type remembering struct {
	m *Mirror
	q gathering[rememberItem]
}

type rememberItem struct {
	change func(*ControlState)
	done   chan error // capacity 1
}

// do returns when change is durable. change may be called more than once and only depends on its argument.
func (w *remembering) do(ctx context.Context, change func(*ControlState)) error {
	it := rememberItem{change, make(chan error, 1)}
	w.q.add(it)
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.m.ctx.Done():
		return ErrClosed
	}
}

func (w *remembering) run() {
	for {
		items, ok := w.q.take(w.m.ctx)
		if !ok {
			return
		}
		ctx, stop := context.WithTimeout(w.m.ctx, w.m.cfg.CallBound)
		err := w.m.wish(ctx, func(s *ControlState) error {
			if _, gone := s.DeletedMirror(w.m.cfg.Name); gone {
				return errDeletedMirror
			}
			for _, it := range items {
				it.change(s)
			}
			return nil
		})
		stop()
		for _, it := range items {
			it.done <- err
		}
	}
}

// errDeletedMirror: nothing is remembered for a mirror that is no more, so nothing is written for it.
var errDeletedMirror = errors.New("the mirror was deleted")
