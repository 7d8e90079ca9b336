package mirror

import (
	"context"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// loading reads the state store for many topics at once: a start of thousands of topics asks it once for all that wait, not once for each.
type loading struct {
	m    *Mirror
	turn semaphore // one read at a time

	mu   sync.Mutex
	next *loaded // the read that has not begun yet and that newcomers join, nil if none waits
}

// gatherPause is how long a read waits for company.
const gatherPause = 10 * time.Millisecond

// loaded is one read of the whole store. It is not changed any more once done is closed.
type loaded struct {
	done    chan struct{}
	byTopic map[TopicID][]statemachine.Entry
	err     error
}

// of returns what the store holds of one topic id, in all mirrors, as it was at some moment after the call began. The caller must not change it.
func (l *loading) of(ctx context.Context, id TopicID) ([]statemachine.Entry, error) {
	l.mu.Lock()
	read := l.next
	if read == nil {
		read = &loaded{done: make(chan struct{}), byTopic: map[TopicID][]statemachine.Entry{}}
		l.next = read
		l.m.spawn(func() { l.run(read) })
	}
	l.mu.Unlock()
	select {
	case <-read.done:
		return read.byTopic[id], read.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *loading) run(read *loaded) {
	defer close(read.done)
	if read.err = l.turn.acquire(l.m.ctx); read.err != nil {
		return
	}
	defer l.turn.release()
	l.m.pause(l.m.ctx, gatherPause)
	l.mu.Lock()
	l.next = nil // from here on it may miss what is written
	l.mu.Unlock()
	ctx, stop := context.WithTimeout(l.m.ctx, l.m.cfg.CallBound)
	defer stop()
	read.err = l.m.session.Load(ctx, func(e statemachine.Entry) error {
		read.byTopic[e.Key.TopicID] = append(read.byTopic[e.Key.TopicID], e)
		return nil
	})
}
