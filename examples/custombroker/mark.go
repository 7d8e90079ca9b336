package main

import "fmt"

// A crash tears the newest write and nothing else: every write before it was synced. So recovery may cut in that write only. Whole batches behind a bad one do not tell the
// two apart, for a power cut may lose one page in the middle of a write of many batches. Where that write began does. It is told by
//
//   - the mark, which is written before each write and not synced. After kill -9 it is exact. After a power cut it may be older, by as long as the kernel keeps pages.
//   - meta's Confirmed, which is synced with every meta: when the log is opened and closed, at each change of the gate, the leader epoch or the start.
//
// Both are places where the log ended, and that it must still reach.

// place is an end of the log: the offset, and the size of the data file.
type place struct {
	End  int64 `json:"end"`
	Size int64 `json:"size"`
}

// mark is the small file that is written in place. Torn, it does not count.
type mark struct {
	Cuts int64 `json:"cuts"` // those of meta: the mark was made after them
	place
}

// markWidth holds the largest mark, so that each covers the one before.
const markWidth = 96

// markWrite says where the next write begins.
func (l *Log) markWrite() error {
	content, err := sealed(mark{l.meta.Cuts, place{l.end, l.size}}, markWidth)
	if err == nil {
		_, err = l.mark.WriteAt(content, 0)
	}
	return err
}

// confirm keeps the end in meta.
func (l *Log) confirm() error {
	if err := l.settle(); err != nil || l.meta.Confirmed.Size == l.size {
		return err
	}
	next := l.meta
	next.Confirmed = place{l.end, l.size} // so that it is a change
	return l.change(next)
}

// wayOut is what to do about a log that does not open.
const wayOut = "nothing was changed; put good copies of the log's files in their place, or, to lose what is only here, move the directory away and mirror the partition again"

// had is the furthest place that the log certainly reached.
func (l *Log) had() place {
	var m mark
	if err := readFile(l.dir, "mark", &m); err == nil && m.Cuts == l.meta.Cuts && m.Size > l.meta.Confirmed.Size {
		return m.place
	}
	return l.meta.Confirmed
}

// refuse is the error for a log that lacks what it had. l.size and l.end are those of the whole batches found.
func (l *Log) refuse(had place) error {
	name, end := dataName(l.meta.Data), l.end
	if l.size == 0 {
		end = l.meta.Start
	}
	switch {
	case l.size < had.Size:
		return fmt.Errorf("%s is damaged at byte %d, offset %d: the log was synced up to byte %d, offset %d; %s", name, l.size, end, had.Size, had.End, wayOut)
	case end < l.meta.Start:
		return fmt.Errorf("meta cannot be: start %d, but %s ends at byte %d, offset %d; %s", l.meta.Start, name, l.size, end, wayOut)
	}
	return nil
}
