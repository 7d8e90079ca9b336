package clientlistener

import (
	"context"
	"slices"
	"sync"
)

// budget bounds what connections take of something, bytes or places: in the whole server, and for each address a share. Safe for concurrent use.
type budget struct {
	total, share int64

	mu      sync.Mutex
	used    int64
	by      map[string]int64 // by address
	waiting []*claim         // in the order in which they came
}

// claim is one that waits.
type claim struct {
	address string
	n       int64
	granted chan struct{}
}

func newBudget(total, share int64) *budget {
	return &budget{total: total, share: share, by: map[string]int64{}}
}

// counted is what a claim of n counts: what is larger than a share is a share, so that it can be had alone.
func (b *budget) counted(n int64) int64 { return min(n, b.share) }

// take waits until n can be had. Whoever waits for the server's part is not overtaken; whoever waits for its address's holds up nobody else's.
func (b *budget) take(ctx context.Context, address string, n int64) error {
	n = b.counted(n)
	if n <= 0 {
		return nil
	}
	b.mu.Lock()
	mine := &claim{address, n, make(chan struct{})}
	b.waiting = append(b.waiting, mine)
	b.grant()
	b.mu.Unlock()
	select {
	case <-mine.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	i := slices.Index(b.waiting, mine)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.grant() // who waited behind it
	}
	b.mu.Unlock()
	if i < 0 { // granted meanwhile
		b.give(address, n)
	}
	return ctx.Err()
}

// give gives back what was taken, or a part of it.
func (b *budget) give(address string, n int64) {
	n = b.counted(n)
	if n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.by[address] -= n; b.by[address] <= 0 {
		delete(b.by, address)
	}
	b.grant()
}

func (b *budget) grant() {
	full := false
	b.waiting = slices.DeleteFunc(b.waiting, func(c *claim) bool {
		if full || b.by[c.address]+c.n > b.share {
			return false
		}
		if b.used+c.n > b.total {
			full = true
			return false
		}
		b.used += c.n
		b.by[c.address] += c.n
		close(c.granted)
		return true
	})
}
