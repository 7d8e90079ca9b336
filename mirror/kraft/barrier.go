package kraft

import (
	"context"
	"fmt"
	"sync"
)

// barrier keeps fences, which touch everything that this process leads, apart from what must not be met by one: the moments of creations, take-overs and hand-overs in which stock
// brokers are in sync share it, a fence excludes them. A fence that waits lets no new one begin, so it is not put off for ever. So nothing that may take long, a dead broker or a late
// follower, is waited for while it is shared, and no partition's work is begun then: who works on a partition may wait for the barrier. The zero value is ready.
type barrier struct {
	mu       sync.Mutex
	shared   int
	excluded bool
	waiting  int           // fences
	wanting  int           // those that wait to share it
	changed  chan struct{} // closed at the next change, nil: nobody waits
}

// share begins something that no fence may meet. Every share is ended by one unshare.
func (b *barrier) share(ctx context.Context) error {
	b.change(func() { b.wanting++ })
	defer b.change(func() { b.wanting-- })
	return b.await(ctx, func() bool { return !b.excluded && b.waiting == 0 }, func() { b.shared++ })
}

// sharing runs f while no fence may happen.
func (b *barrier) sharing(ctx context.Context, f func() error) error {
	if err := b.share(ctx); err != nil {
		return fmt.Errorf("kraft: leader epochs are being raised: %w", err)
	}
	defer b.unshare()
	return f()
}

func (b *barrier) unshare() { b.change(func() { b.shared-- }) }

// exclude waits until nothing is shared, and lets nothing begin until include.
func (b *barrier) exclude(ctx context.Context) error {
	b.change(func() { b.waiting++ })
	defer b.change(func() { b.waiting-- })
	return b.await(ctx, func() bool { return !b.excluded && b.shared == 0 }, func() { b.excluded = true })
}

// letIn, of a fence between two of its rounds, lets those share it that wait to, and then excludes them again. Nobody is excluded after an error.
func (b *barrier) letIn(ctx context.Context) error {
	b.mu.Lock()
	wanted := b.wanting > 0
	b.mu.Unlock()
	if !wanted {
		return nil
	}
	b.include()
	if err := b.await(ctx, func() bool { return b.wanting == 0 }, func() {}); err != nil {
		return err
	}
	return b.exclude(ctx)
}

func (b *barrier) include() { b.change(func() { b.excluded = false }) }

func (b *barrier) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

func (b *barrier) await(ctx context.Context, may func() bool, take func()) error {
	for {
		b.mu.Lock()
		if may() {
			take()
			b.mu.Unlock()
			return nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
