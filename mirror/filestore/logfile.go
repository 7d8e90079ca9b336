package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// logFile is the log as one handle knows it. It is used with the folder's lock, except path.
type logFile struct {
	in           folder
	dir          string // for messages
	compactAbove int64

	generation uint64 // of the file that was read, 0 before
	end        int64  // behind the last frame that is in view; all before it is synced
	view       *view
	torn       bool  // something that is no frame stands behind end
	suspect    bool  // a sync failed: the system may show bytes that the disk does not have
	retryAbove int64 // a compaction failed: the log has to grow above this before the next one
}

func (l *logFile) path() string { return filepath.Join(l.dir, logName) }

// open opens the log, and makes the first generation where there is none. A log that vanishes later is not made again.
func (l *logFile) open() (file, error) {
	f, err := l.in.Open(logName)
	if l.view == nil && errors.Is(err, fs.ErrNotExist) {
		l.view = newView()
		if err := l.rewrite(); err != nil {
			return nil, err
		}
		f, err = l.in.Open(logName)
	}
	if err != nil {
		return nil, fmt.Errorf("filestore: %s cannot be opened: %w; put it back, or open the store anew", l.path(), err)
	}
	return f, nil
}

// refresh reads what was appended since, or all of a new generation. Nothing of it is in view before it is synced. The caller closes the file that it returns.
func (l *logFile) refresh() (file, error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	if err := l.catchUp(f); err != nil || !l.suspect {
		return f, err
	}
	if err := l.rewrite(); err != nil {
		return f, err
	}
	f.Close()
	return l.open()
}

func (l *logFile) catchUp(f file) error {
	generation, size, err := l.header(f)
	if err != nil {
		return err
	}
	v, end, anew := l.view, l.end, generation != l.generation
	if anew {
		v, end = newView(), headerSize
	}
	if size < end {
		return l.damaged(size, fmt.Sprintf("the file ends here, and it was read up to %d before", end))
	}
	found, behind, err := l.read(f, generation, end, size, v.version)
	if err != nil {
		return err
	}
	if last := len(found) - 1; anew && l.view != nil && found[last].version < l.view.version {
		return l.damaged(0, fmt.Sprintf("it ends at version %d and was at %d before: an older copy was put in its place; to go on from there, open the store anew",
			found[last].version, l.view.version))
	}
	if len(found) > 0 {
		if err := f.Sync(); err != nil {
			l.suspect = true
			return fmt.Errorf("filestore: %s: what another process wrote cannot be synced: %w", l.path(), err)
		}
	}
	if anew {
		if err := l.in.Sync(); err != nil {
			l.suspect = true
			return fmt.Errorf("filestore: folder %s cannot be synced: %w", l.dir, err)
		}
	}
	for _, frame := range found {
		v.apply(frame.version, frame.entries)
	}
	l.generation, l.end, l.view, l.torn = generation, behind, v, behind < size
	return nil
}

// header reads the header, and how long the file is.
func (l *logFile) header(f file) (generation uint64, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	var b [headerSize]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0, 0, err
	}
	format, generation, ok := header(b[:n])
	if !ok {
		return 0, 0, l.damaged(0, "it does not begin with a header of this store")
	}
	if format > fileFormat {
		return 0, 0, &NewerError{File: l.path(), Offset: 0, Version: int64(format), Known: fileFormat}
	}
	return generation, info.Size(), nil
}

// frame is a frame that was read.
type frame struct {
	version int64
	entries []entry
}

// read reads the frames from a place on. behind is where the last good one ends.
func (l *logFile) read(f file, generation uint64, from, size, version int64) (found []frame, behind int64, err error) {
	b := make([]byte, size-from)
	if n, err := f.ReadAt(b, from); n < len(b) {
		return nil, 0, fmt.Errorf("filestore: %s: reading %d bytes at %d: %w", l.path(), len(b), from, err)
	}
	for at := from; ; {
		rest := b[at-from:]
		if len(rest) == 0 && at > headerSize {
			return found, at, nil
		}
		payload, ok := cutFrame(rest, generation, at)
		if !ok {
			if where, ok := frameBehind(rest, generation, at); ok {
				return nil, 0, l.damaged(at, fmt.Sprintf("no frame that is whole begins here, and one that is whole does at %d", where))
			}
			if at == headerSize {
				return nil, 0, l.damaged(at, "the snapshot that the file begins with is not whole, and it was synced before the file got its name")
			}
			return found, at, nil
		}
		if format := payload[0]; format > frameFormat {
			return nil, 0, &NewerError{File: l.path(), Offset: at, Version: int64(format), Known: frameFormat}
		}
		next, entries, ok := decode(payload)
		if !ok {
			return nil, 0, l.damaged(at, "the frame's checksum is right, but it holds no list of entries")
		}
		if at > headerSize && next != version+1 {
			return nil, 0, l.damaged(at, fmt.Sprintf("a frame of version %d follows version %d", next, version))
		}
		found, version, at = append(found, frame{next, entries}), next, at+frameHead+int64(len(payload))
	}
}

func (l *logFile) damaged(at int64, why string) error {
	return &DamagedError{File: l.path(), Offset: at, Why: why}
}

// append writes one frame to the file that refresh returned, and brings it into view when it is synced.
func (l *logFile) append(f file, entries []entry) error {
	version := l.view.version + 1
	b, err := appendFrame(nil, l.generation, l.end, version, entries)
	if err != nil {
		return err
	}
	if l.torn {
		if err := f.Truncate(l.end); err != nil {
			return fmt.Errorf("filestore: %s: what a crash left at byte %d cannot be cut: %w", l.path(), l.end, err)
		}
	}
	if _, err = f.WriteAt(b, l.end); err == nil {
		if err = f.Sync(); err != nil {
			l.suspect = true
		}
	}
	if err != nil {
		err = fmt.Errorf("filestore: %s: %w", l.path(), err)
		undo := f.Truncate(l.end)
		if undo == nil {
			undo = f.Sync()
		}
		if undo != nil {
			l.suspect = true
			return fmt.Errorf("%w: %w, and cutting it again: %w; see whether the disk is full or broken, then read again", keyedlog.ErrOutcomeUnknown, err, undo)
		}
		return fmt.Errorf("%w; nothing was written: see whether the disk is full or broken, then try again", err)
	}
	l.view.apply(version, entries)
	l.end, l.torn = l.end+int64(len(b)), false
	if l.end > max(l.compactAbove, 4*l.view.live, l.retryAbove) {
		l.retryAbove = 0
		if err := l.rewrite(); err != nil {
			l.retryAbove = l.end + l.compactAbove // what was asked for is done; a failed sync is in suspect
		}
	}
	return nil
}

// rewrite writes what is in view into the next generation and puts it in the log's place. Either of the two files may be there after a crash, and both hold the same.
func (l *logFile) rewrite() error {
	b, err := appendFrame(appendHeader(nil, l.generation+1), l.generation+1, headerSize, l.view.version, l.view.snapshot())
	if err != nil {
		return err
	}
	if err := l.writeNew(b); err != nil {
		_ = l.in.Remove(newName) // gives its space back; what is left of it means nothing
		return fmt.Errorf("filestore: %s: %w", filepath.Join(l.dir, newName), err)
	}
	if err := l.in.Rename(newName, logName); err != nil {
		return fmt.Errorf("filestore: %s: %w", l.path(), err)
	}
	l.generation, l.end, l.torn = l.generation+1, int64(len(b)), false
	err = l.in.Sync()
	l.suspect = err != nil
	if err != nil {
		return fmt.Errorf("filestore: folder %s cannot be synced: %w", l.dir, err)
	}
	return nil
}

func (l *logFile) writeNew(b []byte) error {
	f, err := l.in.Create(newName)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
