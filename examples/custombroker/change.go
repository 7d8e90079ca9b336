package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

func dataName(n int) string { return fmt.Sprintf("data-%d", n) }

// lock takes the writer's token.
func (l *Log) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.closed {
		l.unlock()
		return fmt.Errorf("the log was closed: %w", fs.ErrClosed)
	}
	return nil
}

func (l *Log) unlock() { <-l.writing }

// show changes what readers see, and wakes who waits for it.
func (l *Log) show(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.moved)
	l.moved = make(chan struct{})
}

// settle brings the disk in line with memory after a failure, or after a cut in memory. meta comes first: it must not tell of an end that the data no longer has.
func (l *Log) settle() error {
	if l.metaUnsure {
		if err := writeFile(l.dir, "meta", l.meta); err != nil {
			return err
		}
		l.metaUnsure = false
	}
	if l.dataUnsure {
		if err := l.data.Truncate(l.size); err != nil {
			return err
		}
		if err := l.data.Sync(); err != nil {
			return err
		}
		l.dataUnsure = false
	}
	return nil
}

// change writes a new meta.
func (l *Log) change(next meta) error {
	if err := l.settle(); err != nil || next == l.meta {
		return err
	}
	next.Confirmed = place{l.end, l.size}
	if err := writeFile(l.dir, "meta", next); err != nil {
		l.metaUnsure = true
		return err
	}
	l.show(func() { l.meta = next })
	return nil
}

// replace gives the log another start and drops the bytes in front of a place: it copies the rest to the other data file and switches meta to that.
func (l *Log) replace(start, from int64) error {
	if err := l.settle(); err != nil { // also: only now is it sure that the other data file does not count
		return err
	}
	next := l.meta
	next.Start, next.Data, next.Cuts, next.Confirmed = start, 1-l.meta.Data, l.meta.Cuts+1, place{l.end, l.size - from}
	if from == l.size {
		next.Confirmed.End = start
	}
	data, err := l.dir.OpenFile(dataName(next.Data), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(data, 0), io.NewSectionReader(l.data, from, l.size-from))
	if err == nil {
		err = data.Sync()
	}
	if err == nil {
		err = l.dir.Sync()
	}
	if err == nil {
		err = writeFile(l.dir, "meta", next)
		l.metaUnsure = err != nil
	}
	if err != nil {
		data.Close()
		return err
	}
	old := l.data
	l.show(func() {
		l.meta, l.data, l.size, l.end = next, data, next.Confirmed.Size, next.Confirmed.End
		l.index.shift(from)
	})
	old.Close()
	l.dir.Remove(dataName(1 - next.Data)) // if that fails, the next replace overwrites it
	return nil
}
