package filestore

import (
	"bytes"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"
)

// disk is a folder in memory that writes down what is done to it, so that a test can cut the power at any moment. Handles on it are memoryFolders.
type disk struct {
	mu     sync.Mutex
	files  map[string]*content
	made   int
	locked *memoryFolder
	holder string
	locks  int
	opens  int
	ops    []op
	// fail is asked before each operation; an error of it is returned instead. A write may be done in part first. nil: nothing fails.
	fail func(op) (part int, err error)
}

// content is a file, whatever its name is.
type content struct {
	number int
	bytes  []byte
}

// op is something that was done.
type op struct {
	kind     string // "create", "write", "truncate", "sync", "failed sync", "rename", "remove", "sync folder"
	file     int    // number of the content
	name, to string
	at       int64 // of a write, or a truncated size
	data     []byte
}

func newDisk() *disk { return &disk{files: map[string]*content{}} }

func (d *disk) folder() *memoryFolder { return &memoryFolder{d} }

// asked is how often the lock was asked for, and how often a file was opened.
func (d *disk) asked() (locks, opens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks, d.opens
}

// put changes a file behind everybody's back.
func (d *disk) put(name string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name].bytes = bytes.Clone(b)
}

// do runs one operation and notes it.
func (d *disk) do(o op, run func(part int)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if part, err := d.fail(o); err != nil {
			switch {
			case o.kind == "sync":
				o.kind = "failed sync"
				d.ops = append(d.ops, o)
			case o.kind == "write" && part > 0:
				run(part)
				o.data = o.data[:part]
				d.ops = append(d.ops, o)
			}
			return err
		}
	}
	run(len(o.data))
	d.ops = append(d.ops, o)
	return nil
}

type memoryFolder struct{ d *disk }

func (f *memoryFolder) Open(name string) (file, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.opens++
	c := f.d.files[name]
	if c == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{f.d, c}, nil
}

func (f *memoryFolder) Create(name string) (file, error) {
	var made *content
	f.d.mu.Lock()
	number := f.d.made
	f.d.made++
	f.d.mu.Unlock()
	err := f.d.do(op{kind: "create", file: number, name: name}, func(int) {
		made = &content{number: number}
		f.d.files[name] = made
	})
	if err != nil {
		return nil, err
	}
	return &memoryFile{f.d, made}, nil
}

func (f *memoryFolder) Rename(from, to string) error {
	return f.d.do(op{kind: "rename", name: from, to: to}, func(int) {
		f.d.files[to] = f.d.files[from]
		delete(f.d.files, from)
	})
}

func (f *memoryFolder) Remove(name string) error {
	return f.d.do(op{kind: "remove", name: name}, func(int) { delete(f.d.files, name) })
}

func (f *memoryFolder) Sync() error { return f.d.do(op{kind: "sync folder"}, func(int) {}) }

func (f *memoryFolder) Lock(who string) (string, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.locks++
	if f.d.locked != nil {
		return f.d.holder, errLocked
	}
	f.d.locked, f.d.holder = f, who
	return who, nil
}

func (f *memoryFolder) Unlock() {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.locked = nil
}

func (f *memoryFolder) Close() error { return nil }

type memoryFile struct {
	d *disk
	c *content
}

func (f *memoryFile) ReadAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if at >= int64(len(f.c.bytes)) {
		return 0, io.EOF
	}
	n := copy(b, f.c.bytes[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.d.do(op{kind: "write", file: f.c.number, at: at, data: bytes.Clone(b)}, func(part int) {
		f.c.bytes = written(f.c.bytes, b[:part], at)
		n = part
	})
	return n, err
}

func (f *memoryFile) Truncate(size int64) error {
	return f.d.do(op{kind: "truncate", file: f.c.number, at: size}, func(int) { f.c.bytes = truncated(f.c.bytes, size) })
}

func (f *memoryFile) Sync() error { return f.d.do(op{kind: "sync", file: f.c.number}, func(int) {}) }

func (f *memoryFile) Close() error { return nil }

func (f *memoryFile) Stat() (fs.FileInfo, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return sized(len(f.c.bytes)), nil
}

type sized int64

func (s sized) Name() string     { return "" }
func (s sized) Size() int64      { return int64(s) }
func (sized) Mode() fs.FileMode  { return 0o600 }
func (sized) ModTime() time.Time { return time.Time{} }
func (sized) IsDir() bool        { return false }
func (sized) Sys() any           { return nil }

// written is the content after a write; what lies between its end and the write is zeros.
func written(content, data []byte, at int64) []byte {
	content = truncated(content, max(int64(len(content)), at+int64(len(data))))
	copy(content[at:], data)
	return content
}

func truncated(content []byte, size int64) []byte {
	content = slices.Clone(content)
	if size <= int64(len(content)) {
		return content[:size]
	}
	return append(content, make([]byte, size-int64(len(content)))...)
}
