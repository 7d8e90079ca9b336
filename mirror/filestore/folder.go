package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	logName   = "log"
	newName   = "log.new"
	lockName  = "lock"
	queueName = "lock.next"
)

// file is what the store needs of a file. *os.File has it.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
}

// folder is what the store needs of a folder. It is so small that a test can put one under the store that loses what was not synced.
type folder interface {
	// Open opens a file to read and write.
	Open(name string) (file, error)
	// Create opens a file that is empty then.
	Create(name string) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes names that were made or changed survive a power cut. The Sync of a file does not do that for its name.
	Sync() error
	// Lock takes the folder for this handle alone and notes who has it, or fails with errLocked and who has it, at once. Who fails keeps a place in the queue, if it is free,
	// until Unlock. When the process dies, however it dies, the kernel lets go of both.
	Lock(who string) (holder string, err error)
	Unlock()
	Close() error
}

// errLocked: another handle, mostly another process, has the folder.
var errLocked = errors.New("filestore: locked")

// diskFolder is a real folder. It stays the same one when it is moved.
type diskFolder struct {
	root        *os.Root
	handle      *os.File
	lock, queue *os.File // nil: not taken
}

func openFolder(path string) (*diskFolder, error) {
	if err := makeFolder(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &diskFolder{root: root, handle: handle}, nil
}

// makeFolder makes a folder, and those above it, so that they survive a power cut. One that is there was perhaps made by a process that died before it could sync.
func makeFolder(path string) error {
	above := filepath.Dir(path)
	if _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	handle, err := os.Open(above)
	if errors.Is(err, fs.ErrPermission) {
		return nil // who may not read the folder above has hardly made this one
	}
	if err != nil {
		return err
	}
	return errors.Join(handle.Sync(), handle.Close())
}

func (d *diskFolder) open(name string, flag int) (file, error) {
	f, err := d.root.OpenFile(name, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err // not f: a nil *os.File in a file is not nil
	}
	return f, nil
}

func (d *diskFolder) Open(name string) (file, error)   { return d.open(name, 0) }
func (d *diskFolder) Create(name string) (file, error) { return d.open(name, os.O_CREATE|os.O_TRUNC) }
func (d *diskFolder) Rename(from, to string) error     { return d.root.Rename(from, to) }
func (d *diskFolder) Remove(name string) error         { return d.root.Remove(name) }
func (d *diskFolder) Sync() error                      { return d.handle.Sync() }
func (d *diskFolder) Close() error                     { return errors.Join(d.handle.Close(), d.root.Close()) }

// Lock locks the folder itself, because a lock file can be removed while somebody has it. It takes the place in the queue first: without that, a process that writes without
// a pause would keep all others away, who ask a thousand times a second only.
func (d *diskFolder) Lock(who string) (holder string, err error) {
	if d.queue == nil {
		if d.queue, err = locked(d.root.OpenFile(queueName, os.O_RDWR|os.O_CREATE, 0o600)); err != nil {
			return d.noted(queueName), err
		}
		d.note(queueName, who)
	}
	if d.lock, err = locked(d.root.Open(".")); err != nil {
		return d.noted(lockName), err
	}
	d.note(lockName, who)
	d.queue.Close()
	d.queue = nil
	return who, nil
}

func (d *diskFolder) Unlock() {
	d.lock.Close() // which a nil *os.File allows
	d.queue.Close()
	d.lock, d.queue = nil, nil
}

// locked locks what was just opened.
func locked(f *os.File, err error) (*os.File, error) {
	if err == nil {
		err = flock(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// note writes who has a lock, for others to read. It is a help only: whether it can be written decides nothing.
func (d *diskFolder) note(name, who string) {
	if d.noted(name) == who {
		return
	}
	if f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
		fmt.Fprintln(f, who)
		f.Close()
	}
}

func (d *diskFolder) noted(name string) (who string) {
	b, _ := d.root.ReadFile(name)
	return strings.TrimSpace(string(b))
}
