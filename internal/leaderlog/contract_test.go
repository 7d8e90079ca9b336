package leaderlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
)

// contracted is a leader's log as a mirror.Log, with stock followers that follow all the time. Its memory is small, so that much is read back.
type contracted struct {
	*Log
	mu        sync.Mutex // followers, owner, paused
	followers []*stock
	owner     mirror.Ownership
	paused    bool
	wake      chan struct{}
	done      chan struct{}
}

func (c *contracted) ReadBack(ctx context.Context, from int64, most int, holders []int32) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return readCopy(c.followers[holders[0]-1].bytes(), from, most), nil
}

func (c *contracted) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// follow has the followers fetch whenever something changed, until nothing does.
func (c *contracted) follow(t testing.TB) {
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		}
		for idle := 0; idle < 3; {
			for _, s := range c.followers {
				if c.step(t, s) {
					idle = 0
				} else {
					idle++
				}
			}
		}
	}
}

// step is one fetch of one follower; it says whether that changed anything.
func (c *contracted) step(t testing.TB, s *stock) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused {
		return false
	}
	s.hear(c.LeaderEpoch())
	s.ask(c.Log, 500)
	if q := s.asked; s.answer.Back && s.answer.Code == 0 {
		c.mu.Unlock()
		b, err := c.Log.ReadBack(context.Background(), q.Offset, 500)
		c.mu.Lock()
		if s.back = b; err != nil || len(b) == 0 {
			s.asked = nil
			return true
		}
		if s.answer = c.Fetch(*q); !s.answer.Back {
			s.back = nil
		}
	}
	before := fmt.Sprint(s.end, s.start, s.last, s.highWatermark)
	s.take(c.Log)
	if s.failed != "" {
		t.Errorf("follower %d failed: %s", s.id, s.failed)
		c.paused = true
	}
	return before != fmt.Sprint(s.end, s.start, s.last, s.highWatermark)
}

// ours maps errors and ownership as a destination has to.
func (c *contracted) ours(change func() error) error {
	c.mu.Lock()
	owner := c.owner
	c.mu.Unlock()
	if owner != mirror.OwnerOurs {
		return fmt.Errorf("%s: %w", owner, mirror.ErrFenced)
	}
	return mapped(change())
}

func mapped(err error) error {
	for own, theirs := range map[error]error{ErrFenced: mirror.ErrFenced, ErrOutOfOrder: mirror.ErrOutOfOrder, ErrOffsetOutOfRange: mirror.ErrOffsetOutOfRange} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", theirs, err)
		}
	}
	return err
}

func (c *contracted) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	return c.ours(func() error { return c.Log.Append(ctx, leaderEpoch, batches) })
}

func (c *contracted) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	b, err := c.Log.Read(ctx, from, most)
	return b, mapped(err)
}

func (c *contracted) TruncateTo(ctx context.Context, offset int64) (end int64, err error) {
	err = c.ours(func() error {
		end, err = c.Log.TruncateTo(ctx, offset)
		return err
	})
	return end, err
}

func (c *contracted) ResetTo(ctx context.Context, start int64) error {
	return c.ours(func() error { return c.Log.ResetTo(start) })
}

func (c *contracted) RaiseStart(ctx context.Context, start int64) error {
	return c.ours(func() error { return c.Log.RaiseStart(start) })
}

func (c *contracted) own(owner mirror.Ownership) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner == mirror.OwnerForeign {
		return mirror.ErrFenced
	}
	c.owner = owner
	return nil
}

func (c *contracted) Open(context.Context) error           { return c.own(mirror.OwnerOpen) }
func (c *contracted) CloseForWrites(context.Context) error { return c.own(mirror.OwnerOurs) }

func (c *contracted) Owner(context.Context) (mirror.Ownership, int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner, c.LeaderEpoch(), nil
}

func (c *contracted) hold(paused bool) {
	c.mu.Lock()
	c.paused = paused
	c.mu.Unlock()
	c.poke()
}

// TestContract checks what a destination builds on against the contract of mirror.Log.
func TestContract(t *testing.T) {
	logtest.Run(t, func(t testing.TB) logtest.Subject {
		c := &contracted{wake: make(chan struct{}, 1), done: make(chan struct{})}
		c.Log = New(Options{Topic: "t", Back: c, Memory: NewMemory(1500)})
		for id := range int32(3) {
			c.followers = append(c.followers, newStock(id+1))
		}
		c.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 3)
		c.Begin(Found{})
		c.Lead(3)
		c.Release()
		unsubscribe := c.Subscribe(c.poke)
		var all sync.WaitGroup
		all.Go(func() { c.follow(t) })
		c.poke()
		return logtest.Subject{
			Log: c,
			RaiseLeaderEpoch: func(_ context.Context, epoch int32) error {
				c.Lead(epoch)
				return nil
			},
			HoldReplication:    func() { c.hold(true) },
			ReleaseReplication: func() { c.hold(false) },
			SetForeign: func(foreign bool) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.owner = mirror.OwnerOurs
				if foreign {
					c.owner = mirror.OwnerForeign
				}
				return nil
			},
			Close: func() error {
				unsubscribe()
				close(c.done)
				all.Wait()
				c.Close()
				return nil
			},
		}
	})
}
