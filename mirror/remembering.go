package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
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

func compareProvenance(a, b Provenance) int {
	return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// provenance is the value of one entry; ok is false if there is none.
func (s *ControlState) provenance(mirror, kind, name string) (p Provenance, ok bool) {
	p = Provenance{Mirror: mirror, Kind: kind, Name: name}
	i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance)
	if ok {
		p = s.Provenance[i]
	}
	return p, ok
}

// setProvenance adds an entry or replaces it, and keeps the order.
func (s *ControlState) setProvenance(p Provenance) {
	i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance)
	if ok {
		s.Provenance[i] = p
		return
	}
	s.Provenance = slices.Insert(s.Provenance, i, p)
}

// removeProvenance takes an entry out; one that is not there is fine.
func (s *ControlState) removeProvenance(p Provenance) {
	if i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance); ok {
		s.Provenance = slices.Delete(s.Provenance, i, i+1)
	}
}

// provenanceOfKind are the entries of one kind of a mirror, in order. They are shared with s.
func (s *ControlState) provenanceOfKind(mirror, kind string) []Provenance {
	first, _ := slices.BinarySearchFunc(s.Provenance, Provenance{Mirror: mirror, Kind: kind}, compareProvenance)
	end := first
	for end < len(s.Provenance) && s.Provenance[end].Mirror == mirror && s.Provenance[end].Kind == kind {
		end++
	}
	return s.Provenance[first:end]
}
