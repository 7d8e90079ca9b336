package leaderlog

import (
	"context"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// TruncateTo drops every batch that holds an offset ≥ offset, one that only partly lies above whole, and returns the new End. An offset at or below Start empties the log; End is then offset, and
// Start min(Start, offset). An offset at or above End changes nothing. The new End is where a batch begins or ends, so that followers, which are told that end, cut there too: a stock log
// that is cut inside a batch loses the batch but not the offsets below the cut (LocalLog.truncateTo), and would refuse that batch later. In a gap the new End is the end of the last batch
// below it, as far as that is in memory.
//
// A batch that is no longer in memory is looked up in a copy, hence the context. With an error nothing was done: ErrFenced, ErrUnknown, ErrClosed, ErrNoCopy, a context's, what Back says.
func (l *Log) TruncateTo(ctx context.Context, offset int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, l.fail("truncation", offset, err, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end, err := l.cutAt(ctx, offset)
	if err != nil {
		return 0, err
	}
	switch {
	case end >= l.end:
	case end <= l.start:
		l.empty(end)
	default:
		l.cut(end)
	}
	return l.end, nil
}

// CutEnd is where TruncateTo would leave the end, for whoever has to write that down before. The same errors.
func (l *Log) CutEnd(ctx context.Context, offset int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, l.fail("truncation", offset, err, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutAt(ctx, offset)
}

// cutAt is where a cut at offset goes. Under mu, which it lets go while it reads a copy.
func (l *Log) cutAt(ctx context.Context, offset int64) (int64, error) {
	for {
		if err := l.ours("truncation", offset); err != nil {
			return 0, err
		}
		if offset < 0 {
			return 0, l.fail("truncation", offset, ErrOffsetOutOfRange, "below 0")
		}
		switch {
		case offset >= l.end:
			return l.end, nil
		case offset <= l.start:
			return offset, nil
		case offset >= l.window.low:
			return max(l.window.cutEnd(offset), l.start), nil
		}
		cuts := l.cuts
		ids, _, limit := l.holders(offset - 1)
		l.mu.Unlock()
		end, err := l.cutBelow(ctx, offset, ids, limit)
		l.mu.Lock()
		if err != nil {
			return 0, err
		}
		if cuts == l.cuts {
			return max(end, l.start), nil
		}
	}
}

// cutEnd is where a cut at offset, which is not below low, leaves the window.
func (w *window) cutEnd(offset int64) int64 {
	i, j := w.find(offset)
	switch {
	case i < len(w.chunks) && w.chunks[i].marks[j].base < offset:
		return w.chunks[i].marks[j].base
	case i < len(w.chunks) && j > 0:
		return w.chunks[i].marks[j-1].last + 1
	case i > 0:
		return w.chunks[i-1].end()
	}
	return w.low
}

// cutBelow is where a cut at offset leaves what is not in memory. No lock is held.
func (l *Log) cutBelow(ctx context.Context, offset int64, ids []int32, limit int64) (int64, error) {
	b, err := l.readCopy(ctx, offset-1, 1, ids)
	if err != nil {
		return 0, err
	}
	kept, _, end := cut(b, offset-1, limit, 1, true)
	if len(b) == 0 || end == endLimit && len(kept) == 0 {
		return offset, nil // a gap, or what follows is not ours
	}
	h, _, err := batch.Next(kept)
	if err != nil {
		return 0, l.fail("truncation", offset, ErrNoCopy, "the copies of brokers %d gave no whole batch", ids)
	}
	if h.BaseOffset < offset && h.LastOffset() >= offset {
		return h.BaseOffset, nil
	}
	return offset, nil
}

// cut drops what lies at or above end, which is no offset inside a batch. Under mu.
func (l *Log) cut(end int64) {
	end = max(end, l.start)
	w := &l.window
	i, j := w.find(end)
	if i < len(w.chunks) && j > 0 {
		w.chunks[i].marks = w.chunks[i].marks[:j]
		i++
	}
	l.dropBack(i)
	w.low = min(w.low, end)
	l.end, l.replicated = end, min(l.replicated, end)
	l.tail = max(w.low, l.start)
	if n := len(w.chunks); n > 0 {
		l.tail = w.chunks[n-1].end()
	}
	l.epochs.TruncateTo(end)
	l.cutFollowers(end)
	l.advance()
	l.notify()
}

// empty drops everything; the log is then empty at start. Under mu.
func (l *Log) empty(start int64) {
	l.dropAll()
	l.start, l.end, l.tail, l.replicated, l.window.low = start, start, start, start, start
	l.epochs.Reset()
	l.cutFollowers(start)
	l.advance()
	l.notify()
}

// ResetTo drops everything; the log is then empty at start. Errors: ErrFenced, ErrUnknown, ErrClosed, ErrOffsetOutOfRange for a negative start.
func (l *Log) ResetTo(start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ours("reset", start); err != nil {
		return err
	}
	if start < 0 {
		return l.fail("reset", start, ErrOffsetOutOfRange, "below 0")
	}
	l.empty(start)
	return nil
}

// RaiseStart moves Start up, never above Replicated, and keeps the batch that contains it. Lower than Start: nothing happens. Errors: ErrFenced, ErrUnknown, ErrClosed.
func (l *Log) RaiseStart(start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ours("raising the start", start); err != nil {
		return err
	}
	start = min(start, l.replicated)
	if start <= l.start {
		return nil
	}
	l.setStart(start)
	l.notify()
	return nil
}
