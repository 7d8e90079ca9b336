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
	logName  = "log"
	newName  = "log.new"
	lockName = "lock"
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
	// Lock takes the folder for this handle alone and notes who has it, or fails with errLocked and who had it last, at once. When the process dies, however it dies, the kernel lets go of it.
	Lock(who string) (holder string, err error)
	Unlock()
	Close() error
}

// errLocked: another handle, mostly another process, has the folder.
var errLocked = errors.New("filestore: locked")

// diskFolder is a real folder. It stays the same one when it is moved.
type diskFolder struct {
	root   *os.Root
	handle *os.File
	lock   *os.File // while it is locked
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

func (d *diskFolder) Lock(who string) (holder string, err error) {
	const width = 20
	for {
		f, err := d.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return "", err
		}
		err = flock(f)
		var content [width]byte
		n, _ := f.ReadAt(content[:], 0)
		holder = strings.TrimSpace(string(content[:n]))
		if err != nil {
			return holder, errors.Join(err, f.Close())
		}
		// Somebody may have removed the file while this handle had it open: a lock on a file without a name keeps nobody away.
		mine, err := f.Stat()
		if err != nil {
			return "", errors.Join(err, f.Close())
		}
		named, err := d.root.Stat(lockName)
		if err != nil || !os.SameFile(mine, named) {
			f.Close()
			continue
		}
		if holder != who {
			if _, err := f.WriteAt(fmt.Appendf(nil, "%-*s\n", width-1, who), 0); err != nil {
				_ = f.Truncate(0) // the disk is full: rather no name than a wrong one
			}
		}
		d.lock = f
		return who, nil
	}
}

func (d *diskFolder) Unlock() { d.lock.Close() }
