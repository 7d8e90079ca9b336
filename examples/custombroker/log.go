package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// Log is one partition on plain files: a mirror.Log, and the broker's own Produce beside it. Its directory holds
//
//	data-0 or data-1   the batches, verbatim, one behind the other; nothing else
//	meta               start, leader epoch, the gate, which of the two data files counts, and an end that is certainly on disk
//	mark               where the newest write begins
//
// Three rules make it safe against kill -9 and power cuts:
//
//  1. A batch counts once it is written and synced. What a crash leaves of the newest write behind the last whole batch is cut when the log is opened. Damage anywhere in front
//     of that write is no work of a crash: such a log does not open (see mark.go).
//  2. meta is only ever replaced as a whole, and it names the data file. Whatever gives the log other bytes at old offsets (ResetTo) or moves bytes (RaiseStart) writes
//     the other data file first and then switches meta to it. So a crash leaves the old log or the new one.
//  3. After a failed write nobody knows what the disk holds. The next change first brings it in line with memory (settle), then does its own work.
//
// How it opens is in recovery.go, rules 2 and 3 are in change.go, what the broker's own clients call is in broker.go.
// A real broker would also have segments, so that opening does not read everything, and would let many clients share one Sync.
type Log struct {
	dir directory

	// writing holds a token while somebody changes the log: the mirror, or a client. A mutex would do, but one cannot stop waiting for it when a context ends.
	writing chan struct{}
	// mu guards what follows against readers. Whoever writes has the token, and takes mu only to change what readers see.
	mu    sync.RWMutex
	meta  meta
	data  file
	mark  file
	size  int64 // of what counts in data
	end   int64 // log end offset; everything below it is synced
	index index
	moved chan struct{} // closed at the next change of end

	// For the writer only: memory and disk may differ.
	metaUnsure, dataUnsure bool
	closed                 bool

	// Cut is how many bytes behind the last whole batch were dropped when the log was opened.
	Cut int64
}

// meta is the small file. A log that was never opened for writes is closed: the zero value is a new log.
type meta struct {
	Start       int64 `json:"start"`
	LeaderEpoch int32 `json:"leaderEpoch"`
	Open        bool  `json:"open"`
	Data        int   `json:"data"` // the data file that counts, 0 or 1

	// Confirmed is where the log ended when meta was written: what is below is synced. Cuts is raised by every cut; a mark from before it does not count.
	Confirmed place `json:"confirmed"`
	Cuts      int64 `json:"cuts"`
}

// maxBatch is the largest batch taken, in bytes. It bounds what recovery and Read hold in memory.
const maxBatch = 64 << 20

// Start, End, Replicated and LeaderEpoch: see mirror.Log.
func (l *Log) Start() int64 { return l.look().Start }

// End is the log end offset.
func (l *Log) End() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.end
}

// Replicated is End: Append returns when its batches are synced.
func (l *Log) Replicated() int64 { return l.End() }

// LeaderEpoch is the partition's leader epoch.
func (l *Log) LeaderEpoch() int32 { return l.look().LeaderEpoch }

func (l *Log) look() meta {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.meta
}

// Append adds the mirror's batches: all of them with one write and one Sync.
func (l *Log) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if l.meta.Open || leaderEpoch != l.meta.LeaderEpoch {
		return fmt.Errorf("append under leader epoch %d; the log's is %d, open for clients: %t: %w", leaderEpoch, l.meta.LeaderEpoch, l.meta.Open, mirror.ErrFenced)
	}
	return l.write(batches)
}

// write checks the order, writes, syncs, and only then moves the end.
func (l *Log) write(batches []byte) error {
	if err := l.settle(); err != nil {
		return err
	}
	size, end := l.size, l.end
	var places []entry
	for b, raw := range mirror.Batches(batches) {
		containsStart := size == 0 && b.Last >= end // of an empty log, whose end is its start
		switch {
		case b.Base < end && !containsStart:
			return fmt.Errorf("batch %d–%d, the log's end is %d: %w", b.Base, b.Last, end, mirror.ErrOutOfOrder)
		case len(raw) > maxBatch:
			return fmt.Errorf("batch %d–%d has %d bytes, the limit is %d: %w", b.Base, b.Last, len(raw), maxBatch, mirror.ErrBatchTooLarge)
		}
		places = append(places, entry{b.Base, size})
		size, end = size+int64(len(raw)), b.Next()
	}
	if size-l.size != int64(len(batches)) || len(places) == 0 {
		return fmt.Errorf("%d bytes at offset %d are not whole batches", len(batches), l.end)
	}
	if err := l.markWrite(); err != nil {
		return err
	}
	_, err := l.data.WriteAt(batches, l.size)
	if err == nil {
		err = l.data.Sync()
	}
	if err != nil {
		l.dataUnsure = true
		return err
	}
	l.show(func() {
		for _, p := range places {
			l.index.add(p.offset, p.place)
		}
		l.size, l.end = size, end
	})
	return nil
}

// find looks for the batch that contains an offset, or the first one after it: its place and size, and the end of the batch before it.
func (l *Log) find(offset int64) (place int64, size int, before int64, err error) {
	place, err = walk(l.data, l.index.find(offset), l.size, func(_ int64, b mirror.BatchInfo, raw []byte) bool {
		if b.Last < offset {
			before = b.Next()
			return true
		}
		size = len(raw)
		return false
	})
	if err == nil && size == 0 && offset < l.end {
		err = fmt.Errorf("the data file is damaged at byte %d, behind offset %d: move the directory away and mirror the partition again", place, before)
	}
	return place, size, before, err
}

// Read reads whole batches.
func (l *Log) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if from < l.meta.Start || from > l.end {
		return nil, fmt.Errorf("read at %d of a log from %d to %d: %w", from, l.meta.Start, l.end, mirror.ErrOffsetOutOfRange)
	}
	place, first, _, err := l.find(from)
	if err != nil || from == l.end {
		return nil, err
	}
	b := make([]byte, min(int64(max(most, first)), l.size-place))
	if _, err := l.data.ReadAt(b, place); err != nil && err != io.EOF {
		return nil, err
	}
	whole := 0
	for _, raw := range mirror.Batches(b) {
		whole += len(raw)
	}
	return b[:whole:whole], nil
}

// lockClosed takes the writer's token for what only the mirror may do: a log that is open for clients stays as it is.
func (l *Log) lockClosed(ctx context.Context, what string) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	if l.meta.Open {
		l.unlock()
		return fmt.Errorf("%s a log that is open for clients: %w", what, mirror.ErrFenced)
	}
	return nil
}

// TruncateTo cuts in memory, so that no reader sees what goes, and then on disk.
func (l *Log) TruncateTo(ctx context.Context, offset int64) (int64, error) {
	if err := l.lockClosed(ctx, "truncation of"); err != nil {
		return 0, err
	}
	defer l.unlock()
	if offset >= l.end {
		return l.end, l.settle()
	}
	start := min(offset, l.meta.Start)
	if offset > l.meta.Start {
		at, _, before, err := l.find(offset)
		if err != nil {
			return 0, err
		}
		if before > l.meta.Start {
			l.show(func() {
				l.size, l.end = at, before
				l.index.cut(at)
				l.meta.Confirmed, l.meta.Cuts = place{before, at}, l.meta.Cuts+1
				l.metaUnsure, l.dataUnsure = true, true
			})
			return before, l.settle()
		}
	}
	return start, l.replace(start, l.size)
}

// ResetTo empties the log.
func (l *Log) ResetTo(ctx context.Context, start int64) error {
	if err := l.lockClosed(ctx, "reset of"); err != nil {
		return err
	}
	defer l.unlock()
	return l.replace(start, l.size)
}

// RaiseStart moves the start up in meta. The bytes in front of it go once they are more than half of the file.
func (l *Log) RaiseStart(ctx context.Context, start int64) error {
	if err := l.lockClosed(ctx, "raising the start of"); err != nil {
		return err
	}
	defer l.unlock()
	start = min(start, l.end)
	if start <= l.meta.Start {
		return nil
	}
	place, _, _, err := l.find(start)
	if err != nil {
		return err
	}
	if place > l.size/2 {
		return l.replace(start, place)
	}
	next := l.meta
	next.Start = start
	return l.change(next)
}

// AwaitReplicated waits until the end has reached an offset.
func (l *Log) AwaitReplicated(ctx context.Context, offset int64) error {
	for {
		l.mu.RLock()
		end, moved := l.end, l.moved
		l.mu.RUnlock()
		if end >= offset {
			return ctx.Err()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for offset %d, the log's end is %d: %w", offset, end, ctx.Err())
		}
	}
}

// AwaitTruncated: there are no replicas that would have to follow.
func (l *Log) AwaitTruncated(ctx context.Context) error { return ctx.Err() }

// Open lets clients write.
func (l *Log) Open(ctx context.Context) error { return l.gate(ctx, true) }

// CloseForWrites shuts the gate. Produce holds the token until it is done, so afterwards none is under way.
func (l *Log) CloseForWrites(ctx context.Context) error { return l.gate(ctx, false) }

func (l *Log) gate(ctx context.Context, open bool) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	next := l.meta
	next.Open = open
	return l.change(next)
}

// Owner is never foreign here: a directory that another process has cannot be opened.
func (l *Log) Owner(ctx context.Context) (mirror.Ownership, int32, error) {
	m := l.look()
	if m.Open {
		return mirror.OwnerOpen, m.LeaderEpoch, ctx.Err()
	}
	return mirror.OwnerOurs, m.LeaderEpoch, ctx.Err()
}

// Close lets go of the directory. Everything is synced already; meta keeps the end.
func (l *Log) Close() error {
	l.writing <- struct{}{}
	defer l.unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	err := l.confirm()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(err, l.data.Close(), l.mark.Close(), l.dir.Close())
}
