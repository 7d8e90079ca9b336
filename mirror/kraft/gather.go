package kraft

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// gather sends what many partitions ask at the same time with few requests: while one request is under way the next questions wait and then go together, and before one is sent it waits a
// moment for the others.
type gather[Q, A any] struct {
	// send asks all at once. It returns as many answers as questions, or an error for all of them. It is called by one goroutine at a time.
	send  func(context.Context, []Q) ([]A, error)
	most  int           // questions in one request
	bound time.Duration // of one send

	mu    sync.Mutex
	queue []*asked[Q, A]
	busy  bool
	sent  int // requests so far
}

type asked[Q, A any] struct {
	ctx      context.Context // of who asks
	question Q
	answer   A
	err      error
	done     chan struct{}
}

// do asks one question. When ctx ends before it is sent, it is not; when ctx ends later, it may have been asked.
func (g *gather[Q, A]) do(ctx context.Context, q Q) (A, error) {
	it := &asked[Q, A]{ctx: ctx, question: q, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, it)
	if !g.busy {
		g.busy = true
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-it.done:
		return it.answer, it.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// carryOut asks one question whose answer is only whether it was done.
func carryOut[Q any](ctx context.Context, g *gather[Q, error], q Q) error {
	answer, err := g.do(ctx, q)
	return errors.Join(err, answer)
}

// Many partitions come to the same question within a moment, one after the other. As long as more of them come in each linger, they are waited for, mostLingers at most.
const (
	linger      = time.Millisecond
	mostLingers = 50
)

// await returns when no more questions come.
func (g *gather[Q, A]) await() {
	seen := 0
	for range mostLingers {
		g.mu.Lock()
		n := len(g.queue)
		g.mu.Unlock()
		if n == seen || n >= g.most {
			return
		}
		seen = n
		time.Sleep(linger)
	}
}

// run sends until nothing is left to send.
func (g *gather[Q, A]) run() {
	for {
		g.await()
		g.mu.Lock()
		g.queue = slices.DeleteFunc(g.queue, func(it *asked[Q, A]) bool { return it.ctx.Err() != nil }) // nobody waits for them any more
		n := min(len(g.queue), g.most)
		if n == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		items := slices.Clone(g.queue[:n])
		g.queue = slices.Delete(g.queue, 0, n)
		g.sent++
		g.mu.Unlock()
		questions := make([]Q, n)
		for i, it := range items {
			questions[i] = it.question
		}
		ctx, stop := context.WithTimeout(context.Background(), g.bound)
		answers, err := g.send(ctx, questions)
		stop()
		for i, it := range items {
			if err == nil {
				it.answer = answers[i]
			}
			it.err = err
			close(it.done)
		}
	}
}
