package leaderlog

import "sort"

// mark is one batch of a chunk: bytes [at, to).
type mark struct {
	base, last int64
	at, to     uint32
}

// chunk is what one Append took over. Its bytes are never changed or copied. It is held, and counted, whole as long as one of its batches is.
type chunk struct {
	log   *Log
	data  []byte
	marks []mark // the batches that are still part of the log; at least one
	one   [2]mark

	// Under Memory.mu.
	queue      *queue // nil: must stay
	prev, next *chunk
}

func (c *chunk) end() int64 { return c.marks[len(c.marks)-1].last + 1 }

// window is the recent part of a log: every batch that ends above low, in order.
type window struct {
	low    int64 // at most the end; where the batches that went begin to be missing is below it
	chunks []*chunk
	behind int // the first so many may go: enough followers have them
	spent  int // the first so many may go and no live follower needs them; at most behind
}

// find is the place of the batch that contains offset, or of the first one after it: chunk and mark. The chunk is len(chunks) if there is none.
func (w *window) find(offset int64) (int, int) {
	i := sort.Search(len(w.chunks), func(i int) bool { return w.chunks[i].end() > offset })
	if i == len(w.chunks) {
		return i, 0
	}
	return i, w.chunks[i].find(offset)
}

func (c *chunk) find(offset int64) int {
	return sort.Search(len(c.marks), func(i int) bool { return c.marks[i].last >= offset })
}

// read returns the batches from the place on, one slice per chunk: at most most bytes, but one batch if one is set. size is the sum of the slices.
func (w *window) read(i, j, most int, one bool) (slices [][]byte, size int) {
	for ; i < len(w.chunks); i, j = i+1, 0 {
		c := w.chunks[i]
		at, n := c.marks[j].at, len(c.marks)
		if room := most - size; int(c.marks[n-1].to-at) > room {
			n = j + sort.Search(n-j, func(k int) bool { return int(c.marks[j+k].to-at) > room })
			if n == j && one && size == 0 {
				n++
			}
		}
		if n == j {
			break
		}
		to := c.marks[n-1].to
		slices = append(slices, c.data[at:to:to])
		size += int(to - at)
		if n < len(c.marks) {
			break
		}
	}
	return slices, size
}

// dropFront lets the first n chunks go. Under mu.
func (l *Log) dropFront(n int) {
	if n == 0 {
		return
	}
	w := &l.window
	w.low = max(w.low, w.chunks[n-1].end())
	l.memory.release(w.chunks[:n])
	clear(w.chunks[:n])
	w.chunks = w.chunks[n:]
	w.behind, w.spent = max(0, w.behind-n), max(0, w.spent-n)
}

// dropBack lets all but the first n chunks go. Under mu.
func (l *Log) dropBack(n int) {
	w := &l.window
	l.memory.release(w.chunks[n:])
	clear(w.chunks[n:])
	w.chunks = w.chunks[:n]
	w.behind, w.spent = min(w.behind, n), min(w.spent, n)
}

// dropAll lets everything go. Under mu.
func (l *Log) dropAll() {
	l.dropBack(0)
	l.window = window{}
}

// sort says which chunks may go: those that end at or below have, and best those that end at or below needed, which no live follower asks for any more. Under mu.
func (l *Log) sort(have, needed int64) {
	w := &l.window
	count := func(n int, limit int64) int {
		for n < len(w.chunks) && w.chunks[n].end() <= limit {
			n++
		}
		for n > 0 && w.chunks[n-1].end() > limit {
			n--
		}
		return n
	}
	behind, spent := count(w.behind, have), count(w.spent, needed)
	if behind == w.behind && spent == w.spent {
		return
	}
	l.memory.sort(w.chunks, behind, spent, min(w.behind, w.spent, behind, spent), max(w.behind, w.spent, behind, spent))
	w.behind, w.spent = behind, spent
}

// evict lets a chunk go, and those before it, if it still may. The memory's only way into a log.
func (l *Log) evict(c *chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.window.behind {
		if l.window.chunks[i] == c {
			l.dropFront(i + 1)
			return
		}
	}
}
