package mirror

import (
	"context"
	"sync"
)

// gathering collects items while its one reader works on the items before: the reader then takes all of them at once.
type gathering[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // capacity 1
}

func newGathering[T any]() gathering[T] { return gathering[T]{wake: make(chan struct{}, 1)} }

func (g *gathering[T]) add(item T) {
	g.mu.Lock()
	g.items = append(g.items, item)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// take waits for items; ok is false when ctx ended.
func (g *gathering[T]) take(ctx context.Context) (items []T, ok bool) {
	for {
		if items = g.there(); len(items) > 0 {
			return items, true
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-g.wake:
		}
	}
}

// there are the items that are there now.
func (g *gathering[T]) there() (items []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	items, g.items = g.items, nil
	return items
}

// semaphore bounds how many calls run at once.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) release() { <-s }
