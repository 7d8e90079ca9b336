package leaderlog

import (
	"bytes"
	"context"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// Read returns whole batches beginning with the one that contains from, or the first one after it: at most most bytes, but at least one batch; nothing at End. What is no longer in memory
// is read back from followers. The bytes are read-only and stay valid. They are a copy only where they come from more than one Append.
//
// Errors: ErrOffsetOutOfRange outside [Start, End], ErrUnknown, ErrClosed, ErrNoCopy, what Back says.
func (l *Log) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	var parts [][]byte
	for size, more := 0, true; more; {
		some, n, next, again, err := l.read(ctx, from, most-size, size == 0)
		if err != nil {
			return nil, err
		}
		parts = append(parts, some...)
		size, from, more = size+n, next, again
	}
	return join(parts), nil
}

// ReadBack reads for a follower what Fetch said is not in memory: as Read, but it returns what comes with one look, which may be less than most; and nothing where from lies inside a batch now,
// as after a cut that came in between: a follower that ends there must be asked again, and is told to truncate. Only at Start may a follower, an empty one, take such a batch.
func (l *Log) ReadBack(ctx context.Context, from int64, most int) ([]byte, error) {
	for at := from; ; {
		parts, size, next, more, err := l.read(ctx, at, most, true)
		switch {
		case err != nil:
			return nil, err
		case size > 0:
			if h, _, _ := batch.Next(parts[0]); h.BaseOffset < from && from > l.Start() {
				return nil, nil
			}
			return join(parts), nil
		case !more:
			return nil, nil
		}
		at = next
	}
}

func join(parts [][]byte) []byte {
	if len(parts) == 1 {
		return parts[0]
	}
	return bytes.Join(parts, nil)
}

// read reads once, from the window or from a copy; with one, the first batch comes whatever its size. next is where to go on, more whether anything may come there: false at End and where
// the next batch does not fit.
func (l *Log) read(ctx context.Context, from int64, most int, one bool) (parts [][]byte, size int, next int64, more bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, 0, 0, false, l.fail("read", from, err, "")
		}
		l.mu.Lock()
		if err := l.readable(from); err != nil {
			l.mu.Unlock()
			return nil, 0, 0, false, err
		}
		if from >= l.end || most <= 0 && !one {
			l.mu.Unlock()
			return nil, 0, from, false, nil
		}
		if from >= l.window.low {
			i, j := l.window.find(from)
			parts, size := l.window.read(i, j, most, one)
			l.mu.Unlock()
			return parts, size, from, false, nil
		}
		ids, least, limit := l.holders(from)
		cuts, low := l.cuts, l.window.low
		l.mu.Unlock()
		b, err := l.readCopy(ctx, from, most, ids)
		if err != nil {
			return nil, 0, 0, false, err
		}
		l.mu.Lock()
		same := cuts == l.cuts
		l.mu.Unlock()
		if !same {
			continue // what was read may have been cut
		}
		if len(b) == 0 {
			return nil, 0, min(least, low), true, nil
		}
		kept, next, end := cut(b, from, limit, most, one)
		if len(kept) > 0 {
			parts = [][]byte{kept}
		}
		switch end {
		case endFull:
			return parts, len(kept), next, false, nil
		case endLimit:
			next = max(next, min(limit, low)) // nothing of ours lies between
		case endBytes:
			if len(kept) == 0 {
				return nil, 0, 0, false, l.fail("read", from, ErrNoCopy, "the copies of brokers %d gave no whole batch", ids)
			}
		}
		return parts, len(kept), next, true, nil
	}
}

// readable checks a read. Under mu.
func (l *Log) readable(from int64) error {
	switch {
	case l.closed:
		return l.fail("read", from, ErrClosed, "")
	case !l.known:
		return l.fail("read", from, ErrUnknown, "recovery is still under way")
	case from < l.start || from > l.end:
		return l.fail("read", from, ErrOffsetOutOfRange, "the log is [%d, %d]", l.start, l.end)
	}
	return nil
}

// readCopy asks Back. No lock is held.
func (l *Log) readCopy(ctx context.Context, from int64, most int, ids []int32) ([]byte, error) {
	if len(ids) == 0 || l.back == nil {
		return nil, l.fail("read", from, ErrNoCopy, "it is not in memory")
	}
	b, err := l.back.ReadBack(ctx, from, most, ids)
	if err != nil {
		return nil, l.fail("read", from, err, "from the copies of brokers %d", ids)
	}
	return b, nil
}

// Why cut stopped.
const (
	endBytes = iota // at the end of the bytes
	endLimit        // at a batch that reaches beyond limit
	endFull         // at a batch that does not fit
)

// cut keeps of a copy's bytes the batches that end in [from, limit), at most most bytes of them, but the first one whatever its size if one is set. next is the offset behind the last one kept.
func cut(b []byte, from, limit int64, most int, one bool) (kept []byte, next int64, end int) {
	first, at := 0, 0
	for next = from; ; {
		h, n, err := batch.Next(b[at:])
		switch {
		case err != nil:
			return b[first:at:at], next, endBytes
		case h.LastOffset() < from:
			first = at + n
		case h.LastOffset() >= limit:
			return b[first:at:at], next, endLimit
		case at+n-first > most && (at > first || !one):
			return b[first:at:at], next, endFull
		default:
			next = h.NextOffset()
		}
		at += n
	}
}
