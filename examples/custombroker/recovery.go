package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/clustermirror/clustermirror/mirror"
)

// OpenLog opens the log in a directory, or makes one there. A directory that another process has open is refused.
func OpenLog(path string) (*Log, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	l, err := openLog(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log in %s: %w", path, err), dir.Close())
	}
	return l, nil
}

// openLog locks the directory and recovers the log in it.
func openLog(dir directory) (*Log, error) {
	if err := dir.Lock(); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, writing: make(chan struct{}, 1), moved: make(chan struct{})}
	flag := os.O_RDWR
	err := readFile(dir, "meta", &l.meta)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		flag |= os.O_CREATE
	} else if err != nil {
		return nil, err
	}
	if m := l.meta; m.Start < 0 || m.LeaderEpoch < 0 || m.Data != 0 && m.Data != 1 || m.Confirmed.End < m.Start {
		return nil, fmt.Errorf("meta cannot be: %+v; %s", m, wayOut)
	}
	if l.data, err = dir.OpenFile(dataName(l.meta.Data), flag); err != nil {
		return nil, err
	}
	if l.mark, err = dir.OpenFile("mark", os.O_RDWR|os.O_CREATE); err != nil {
		return nil, errors.Join(err, l.data.Close())
	}
	if err := l.recover(fresh); err != nil {
		return nil, errors.Join(err, l.data.Close(), l.mark.Close())
	}
	dir.Remove(dataName(1 - l.meta.Data)) // left by a crash, or not there
	return l, nil
}

// recover finds the whole batches. The process that wrote them may have died before it synced them, so everything is synced again before anybody hears of it.
func (l *Log) recover(fresh bool) error {
	info, err := l.data.Stat()
	if err != nil {
		return err
	}
	if fresh && info.Size() > 0 {
		return errors.New("there is a data file, but no meta; put meta back, or move the directory away to begin with an empty log")
	}
	had, next := l.had(), int64(0)
	whole, err := walk(l.data, 0, info.Size(), func(place int64, b mirror.BatchInfo, raw []byte) bool {
		elsewhere := place+int64(len(raw)) == had.Size && b.Next() != had.End // a base offset is not in the checksum
		if b.Base < next || elsewhere || mirror.CheckBatch(raw) != nil {
			return false
		}
		l.index.add(b.Base, place)
		next = b.Next()
		return true
	})
	if err != nil {
		return err
	}
	l.size, l.end = whole, next
	if err := l.refuse(had); err != nil {
		return err
	}
	if l.end <= l.meta.Start {
		l.size, l.end, l.index = 0, l.meta.Start, index{} // nothing left at or above start
	}
	l.Cut = info.Size() - l.size
	l.metaUnsure, l.dataUnsure = true, true
	if fresh {
		err = l.dir.Sync() // the data file's name comes before the meta that names it
	}
	if err != nil {
		return err
	}
	if err := l.settle(); err != nil { // with the old Confirmed: only now is the end that was found synced
		return err
	}
	return l.confirm()
}

// walk calls each for the whole batches of a file from a place on, until each returns false. It returns the place where it stopped. raw is only lent.
func walk(data file, place, size int64, each func(place int64, b mirror.BatchInfo, raw []byte) bool) (int64, error) {
	buffer := make([]byte, min(firstInterval, size-place))
	for place < size {
		n, err := data.ReadAt(buffer[:min(int64(len(buffer)), size-place)], place)
		if err != nil && err != io.EOF {
			return place, err
		}
		before := place
		for b, raw := range mirror.Batches(buffer[:n]) {
			if !each(place, b, raw) {
				return place, nil
			}
			place += int64(len(raw))
		}
		if place > before {
			continue
		}
		if before+int64(n) >= size || n < len(buffer) || len(buffer) >= maxBatch {
			return place, nil // no whole batch, and more bytes would not make it one
		}
		buffer = make([]byte, 2*len(buffer))
	}
	return place, nil
}
