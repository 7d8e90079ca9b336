package leaderlog

import (
	"context"
	"sync"
)

// Memory is the budget in bytes that the partitions of a process share. It counts chunks, each what one Append took over, whole: a chunk lives as long as one of its batches is held.
// (Slices handed out by Fetch and Read keep their chunk alive beyond that, uncounted, until they are sent.)
//
// When an Append would go over the budget, chunks go that enough followers have, first those that no live follower needs any more, then the others, in either group those that got there
// first, whosever they are. If none may go, the Append waits; but a partition that holds nothing may always take one chunk. So a partition whose followers are gone can fill the
// budget and slow the others down, but never stop them, and the budget is exceeded by at most one chunk of each partition. Safe for concurrent use.
type Memory struct {
	mu            sync.Mutex
	limit, used   int64
	spent, behind queue
	changed       chan struct{} // closed when something was freed or may go; nil: nobody waits
}

// queue is a list of chunks that may go, the first one first.
type queue struct{ first, last *chunk }

// NewMemory returns a budget of limit bytes, at least 1.
func NewMemory(limit int64) *Memory { return &Memory{limit: max(1, limit)} }

// Limit is the budget in bytes.
func (m *Memory) Limit() int64 { return m.limit }

// Used is how many bytes are held.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// take reserves n bytes if they fit.
func (m *Memory) take(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used > 0 && m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

// give returns n reserved bytes.
func (m *Memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	m.tell()
}

// reserve reserves n bytes for l, by letting go of others' chunks or by waiting. It reports false when fence is closed first. No log's lock may be held.
func (m *Memory) reserve(ctx context.Context, l *Log, n int64, fence <-chan struct{}) (bool, error) {
	for {
		m.mu.Lock()
		if m.used+n <= m.limit {
			m.used += n
			m.mu.Unlock()
			return true, nil
		}
		victim := m.spent.first
		if victim == nil {
			victim = m.behind.first
		}
		if victim != nil {
			m.mu.Unlock()
			victim.log.evict(victim)
			continue
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		l.mu.Lock()
		holds := len(l.window.chunks) > 0
		l.mu.Unlock()
		if !holds {
			m.mu.Lock()
			m.used += n
			m.mu.Unlock()
			return true, nil
		}
		select {
		case <-changed:
		case <-fence:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// release frees chunks that are held no more.
func (m *Memory) release(some []*chunk) {
	if len(some) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range some {
		m.move(c, nil)
		m.used -= int64(len(c.data))
	}
	m.tell()
}

// sort puts chunks[from:to] where they belong when the first behind of all chunks may go and the first spent best.
func (m *Memory) sort(chunks []*chunk, behind, spent, from, to int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := from; i < min(to, len(chunks)); i++ {
		switch {
		case i < spent:
			m.move(chunks[i], &m.spent)
		case i < behind:
			m.move(chunks[i], &m.behind)
		default:
			m.move(chunks[i], nil)
		}
	}
	m.tell()
}

// move takes a chunk out of its queue and puts it at the end of another one. Under mu.
func (m *Memory) move(c *chunk, to *queue) {
	if c.queue == to {
		return
	}
	if q := c.queue; q != nil {
		if c.prev == nil {
			q.first = c.next
		} else {
			c.prev.next = c.next
		}
		if c.next == nil {
			q.last = c.prev
		} else {
			c.next.prev = c.prev
		}
	}
	c.queue, c.prev, c.next = to, nil, nil
	if to == nil {
		return
	}
	c.prev = to.last
	if to.last == nil {
		to.first = c
	} else {
		to.last.next = c
	}
	to.last = c
}

// tell wakes whoever waits. Under mu.
func (m *Memory) tell() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}
