package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// How much of a log is read at once: of all of it, and where a few batches are looked for.
const (
	readChunk = 4 << 20
	readFew   = 64 << 10
)

// DamagedLogError: a log of the destination holds bytes that are no batch. What lies behind them cannot be known, so nothing is concluded from the log.
type DamagedLogError struct {
	Offset int64 // the bytes stand at this offset or behind it
	Err    error
}

func (e *DamagedLogError) Error() string {
	return fmt.Sprintf("the destination log is damaged at %d: %v; restore the log, or copy the partition anew", e.Offset, e.Err)
}
func (e *DamagedLogError) Unwrap() error { return e.Err }

// readLog reads the batches of [from, to) in pieces and hands each piece on: whole batches, the first of which may begin below from, the last may end beyond to. An empty
// read is a gap up to the end, which is legal; bytes that are no whole batch are damage, never a gap. Errors: *DamagedLogError, the log's, f's.
func readLog(ctx context.Context, log LogReader, from, to int64, f func(batches []byte) error) error {
	for from = max(from, log.Start()); from < min(to, log.End()); {
		b, err := log.Read(ctx, from, readChunk)
		if err != nil {
			return fmt.Errorf("reading the log at %d: %w", from, err)
		}
		if len(b) == 0 {
			return nil
		}
		next, n := from, 0
		for n < len(b) {
			h, size, err := batch.Next(b[n:])
			if err != nil {
				return &DamagedLogError{next, err}
			}
			if h.BaseOffset >= to {
				break
			}
			next, n = h.NextOffset(), n+size
		}
		if n == 0 {
			return nil // the first batch lies behind what was asked for
		}
		if next <= from {
			return &DamagedLogError{from, fmt.Errorf("a read at %d gives batches that end at %d", from, next)}
		}
		if err := f(b[:n:n]); err != nil {
			return err
		}
		from = next
	}
	return nil
}

// boundedLog gives every read a bound of its own, in time and in bytes.
type boundedLog struct {
	LogReader
	bound time.Duration
	most  int
}

func (l boundedLog) Read(ctx context.Context, from int64, size int) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, l.bound)
	defer stop()
	return l.LogReader.Read(ctx, from, min(size, l.most))
}
