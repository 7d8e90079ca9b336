package logtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// fileLog is a log in files that keeps the contract, as plainly as can be, and the mistakes that one can make with files. It is there for the crash kit to be tried on.
// meta names the data file that counts; data-N holds the batches.
type fileLog struct {
	mistake mistake
	dir     files
	data    handle

	mu      sync.Mutex
	meta    fileMeta
	content []byte // of data
	buffer  []byte // mistake buffered: not written yet
	end     int64
	synced  int64
	unsure  bool // after an error: the files may be something else than what is here
}

type fileMeta struct {
	Start       int64
	LeaderEpoch int32
	Open        bool
	Data        int
	Next        int // the number of the next data file; a number is never used twice
}

type mistake string

const (
	none            mistake = ""
	neverSyncs      mistake = "appends are not synced"
	neverSyncsNames mistake = "the directory is not synced"
	metaInPlace     mistake = "meta is overwritten in place"
	keepsTornTail   mistake = "what is behind the last whole batch is not cut when opening"
	trustsLengths   mistake = "checksums are not looked at when opening"
	buffers         mistake = "appends stay in the process for a while"
	cutNotSynced    mistake = "truncation is not synced"
	resetInPlace    mistake = "a reset reuses the data file"
	ignoresErrors   mistake = "the error of Sync is ignored"
	goesOn          mistake = "after an error of the files it goes on as if nothing were"
	losesLast       mistake = "the last batch is always taken for torn"
)

// files and handle are what a fileLog needs of a directory and a file.
type files interface {
	open(name string, flag int) (handle, error)
	rename(from, to string) error
	remove(name string) error
	sync() error
}

type handle interface {
	io.ReaderAt
	io.WriterAt
	Truncate(int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
}

type onDisk string

func (d onDisk) open(name string, flag int) (handle, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), flag, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}
func (d onDisk) rename(from, to string) error {
	return os.Rename(filepath.Join(string(d), from), filepath.Join(string(d), to))
}
func (d onDisk) remove(name string) error { return os.Remove(filepath.Join(string(d), name)) }
func (d onDisk) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type onFaulty struct{ *FaultyDir }

func (d onFaulty) open(name string, flag int) (handle, error) {
	f, err := d.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}
func (d onFaulty) rename(from, to string) error { return d.Rename(from, to) }
func (d onFaulty) remove(name string) error     { return d.Remove(name) }
func (d onFaulty) sync() error                  { return d.SyncDir() }

// crashFactory makes file logs with a mistake.
func crashFactory(m mistake) CrashFactory {
	open := func(d files) (Opened, error) {
		l, err := openFileLog(d, m)
		if err != nil {
			return Opened{}, err
		}
		return Opened{Log: l, Close: l.close}, nil
	}
	return CrashFactory{
		Open:   func(dir string) (Opened, error) { return open(onDisk(dir)) },
		OpenOn: func(d *FaultyDir) (Opened, error) { return open(onFaulty{d}) },
	}
}

func openFileLog(d files, m mistake) (*fileLog, error) {
	l := &fileLog{mistake: m, dir: d}
	if b, err := l.readFile("meta"); err == nil {
		if len(b) < 8 || fmt.Sprintf("%08x", crc32.ChecksumIEEE(b[8:])) != string(b[:8]) {
			return nil, errors.New("meta is damaged")
		}
		if err := json.Unmarshal(b[8:], &l.meta); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l.meta.Open = false
	if l.meta.Next == 0 {
		l.meta.Next = 1
		if err := l.replace(l.meta.Start, nil); err != nil {
			return nil, err
		}
		return l, nil
	}
	f, err := d.open(l.name(), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	l.data = f
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	l.end = l.meta.Start
	n, last, first := 0, 0, true
	for info, whole := range mirror.Batches(b) {
		if m != trustsLengths && mirror.CheckBatch(whole) != nil || !first && info.Base < l.end {
			break
		}
		if first && info.Last < l.meta.Start {
			n += len(whole) // below the start
			continue
		}
		first = false
		last = n
		n, l.end = n+len(whole), info.Next()
	}
	if m == losesLast && last > 0 {
		n = last
		for info := range mirror.Batches(b[:n]) {
			l.end = info.Next()
		}
	}
	l.content = b[:n:n]
	if m != keepsTornTail && n < len(b) {
		if err := f.Truncate(int64(n)); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if m == keepsTornTail {
		l.content = b
	}
	l.synced = l.end
	return l, nil
}

func (l *fileLog) name() string { return fmt.Sprintf("data-%d", l.meta.Data) }

func (l *fileLog) readFile(name string) ([]byte, error) {
	f, err := l.dir.open(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// settle brings the files in line with what is here, after an error.
func (l *fileLog) settle() error {
	if !l.unsure || l.mistake == goesOn {
		return nil
	}
	if err := l.writeMeta(l.meta); err != nil {
		return err
	}
	err := l.data.Truncate(int64(len(l.content)))
	if err == nil {
		err = l.data.Sync()
	}
	l.unsure = err != nil
	return err
}

// failed notes an error of the files.
func (l *fileLog) failed(err error) error {
	l.unsure = l.unsure || err != nil
	return err
}

func (l *fileLog) syncNames() error {
	if l.mistake == neverSyncsNames {
		return nil
	}
	return l.dir.sync()
}

// writeMeta makes meta what counts.
func (l *fileLog) writeMeta(meta fileMeta) error {
	b, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	b = append(fmt.Appendf(nil, "%08x", crc32.ChecksumIEEE(b)), b...)
	name := "meta.new"
	if l.mistake == metaInPlace {
		name = "meta"
	}
	f, err := l.dir.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if name != "meta" {
		if err := l.dir.rename(name, "meta"); err != nil {
			return err
		}
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	l.meta = meta
	return nil
}

// replace gives the log another data file with this content, and a start.
func (l *fileLog) replace(start int64, content []byte) error {
	meta := l.meta
	meta.Start = start
	if l.mistake == resetInPlace && l.data != nil {
		if err := errors.Join(l.data.Truncate(0), l.writeMeta(meta)); err != nil {
			return err
		}
	} else {
		meta.Data, meta.Next = l.meta.Next, l.meta.Next+1
		f, err := l.dir.open(fmt.Sprintf("data-%d", meta.Data), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		if err != nil {
			return err
		}
		if _, err = f.WriteAt(content, 0); err == nil {
			err = f.Sync()
		}
		if err == nil {
			err = l.syncNames()
		}
		old, had := l.name(), l.data != nil
		if err == nil {
			err = l.writeMeta(meta)
		}
		if err != nil {
			// Nobody knows which meta a crash would leave: this data file is never filled again, and the number never used again.
			l.meta.Next = meta.Next
			f.Close()
			return err
		}
		if had {
			l.data.Close()
			l.dir.remove(old)
		}
		l.data = f
	}
	l.content, l.end, l.synced = content, start, start
	for info := range mirror.Batches(content) {
		l.end, l.synced = info.Next(), info.Next()
	}
	return nil
}

func (l *fileLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.flush(), l.data.Close())
}

func (l *fileLog) flush() error {
	if len(l.buffer) == 0 {
		return nil
	}
	_, err := l.data.WriteAt(l.buffer, int64(len(l.content)-len(l.buffer)))
	l.buffer = nil
	return err
}

func (l *fileLog) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *fileLog) Start() (o int64)       { l.locked(func() { o = l.meta.Start }); return }
func (l *fileLog) End() (o int64)         { l.locked(func() { o = l.end }); return }
func (l *fileLog) Replicated() (o int64)  { l.locked(func() { o = l.synced }); return }
func (l *fileLog) LeaderEpoch() (e int32) { l.locked(func() { e = l.meta.LeaderEpoch }); return }

func (l *fileLog) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.Open || leaderEpoch != l.meta.LeaderEpoch {
		return mirror.ErrFenced
	}
	if err := l.settle(); err != nil {
		return err
	}
	end, first := l.end, l.end == l.meta.Start
	for info := range mirror.Batches(batches) {
		if info.Base < end && !(first && info.Last >= end) {
			return mirror.ErrOutOfOrder
		}
		end, first = info.Next(), false
	}
	if l.mistake == buffers {
		l.buffer = append(l.buffer, batches...)
		l.content, l.end, l.synced = append(l.content, batches...), end, end
		if len(l.buffer) > 5000 {
			return l.flush()
		}
		return nil
	}
	_, err := l.data.WriteAt(batches, int64(len(l.content)))
	if err == nil && l.mistake != neverSyncs {
		if err = l.data.Sync(); l.mistake == ignoresErrors {
			err = nil
		}
	}
	if err != nil {
		return l.failed(err)
	}
	l.content, l.end, l.synced = append(l.content[:len(l.content):len(l.content)], batches...), end, end
	return nil
}

func (l *fileLog) Read(ctx context.Context, from int64, max int) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.meta.Start || from > l.end {
		return nil, mirror.ErrOffsetOutOfRange
	}
	var b []byte
	for info, whole := range mirror.Batches(l.content) {
		if info.Last < from || info.Base >= l.end {
			continue
		}
		if len(b) > 0 && len(b)+len(whole) > max {
			break
		}
		b = append(b, whole...)
	}
	return b, nil
}

func (l *fileLog) TruncateTo(ctx context.Context, offset int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.Open {
		return 0, mirror.ErrFenced
	}
	if err := l.settle(); err != nil {
		return 0, err
	}
	if offset >= l.end {
		return l.end, nil
	}
	if offset <= l.meta.Start {
		return offset, l.failed(l.replace(offset, nil))
	}
	n, end := 0, l.meta.Start
	for info, whole := range mirror.Batches(l.content) {
		if info.Last >= offset {
			break
		}
		n, end = n+len(whole), max(end, info.Next())
	}
	l.content, l.end, l.synced = l.content[:n:n], end, min(l.synced, end) // first, so that settle never makes the file longer
	err := l.data.Truncate(int64(n))
	if err == nil && l.mistake != cutNotSynced {
		err = l.data.Sync()
	}
	return end, l.failed(err)
}

func (l *fileLog) ResetTo(ctx context.Context, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.Open {
		return mirror.ErrFenced
	}
	if err := l.settle(); err != nil {
		return err
	}
	return l.failed(l.replace(start, nil))
}

func (l *fileLog) RaiseStart(ctx context.Context, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.Open {
		return mirror.ErrFenced
	}
	if err := l.settle(); err != nil {
		return err
	}
	meta := l.meta
	if meta.Start = min(start, l.synced); meta.Start <= l.meta.Start {
		return nil
	}
	return l.failed(l.writeMeta(meta))
}

func (l *fileLog) AwaitReplicated(ctx context.Context, offset int64) error {
	if l.Replicated() >= offset {
		return ctx.Err()
	}
	<-ctx.Done() // what is not there now is appended by nobody in the kit
	return ctx.Err()
}

func (l *fileLog) AwaitTruncated(ctx context.Context) error { return ctx.Err() }

func (l *fileLog) setOpen(open bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	meta := l.meta
	meta.Open = open
	return l.failed(l.writeMeta(meta))
}

func (l *fileLog) Open(ctx context.Context) error           { return l.setOpen(true) }
func (l *fileLog) CloseForWrites(ctx context.Context) error { return l.setOpen(false) }

func (l *fileLog) Owner(ctx context.Context) (mirror.Ownership, int32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.Open {
		return mirror.OwnerOpen, l.meta.LeaderEpoch, nil
	}
	return mirror.OwnerOurs, l.meta.LeaderEpoch, nil
}
