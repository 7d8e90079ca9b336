package verify

import (
	"context"
	"time"
)

// Clock is the time that limits and pauses go by. Tests bring one that stands still until it is slept on.
type Clock interface {
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error // the context's error if that ends first
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// limiter spaces reads. A read is paid for after it was made, so the size of one read is the burst, and nothing is saved up while nobody reads.
type limiter struct {
	clock Clock
	rate  int64 // bytes a second, 0: no limit
	free  time.Time
	await func(context.Context) error // also waits, in its own way; nil: it does not
}

// charge notes a read of n bytes.
func (l *limiter) charge(n int64) {
	if l.rate <= 0 || n <= 0 {
		return
	}
	if now := l.clock.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
}

// wait waits until the reads so far are paid for, and the next one may be made.
func (l *limiter) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d := l.free.Sub(l.clock.Now()); l.rate > 0 && d > 0 {
		if err := l.clock.Sleep(ctx, d); err != nil {
			return err
		}
	}
	if l.await != nil {
		return l.await(ctx)
	}
	return nil
}
