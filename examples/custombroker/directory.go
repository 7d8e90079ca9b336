package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// file is what the broker needs of a file. *os.File has it.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
}

// directory is what the broker needs of a directory. It is so small that a test can put one under the broker that loses what was not synced.
type directory interface {
	OpenFile(name string, flag int) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes names that were made, changed or removed survive a power cut. The Sync of a file does not do that for its name.
	Sync() error
	// Lock takes the directory for this handle alone, until Close, or fails with errLocked at once. When the process dies, however it dies, the kernel lets go of it.
	Lock() error
	Close() error
}

// errLocked: another handle, mostly another process, has the directory.
var errLocked = errors.New("locked by another process")

// diskDirectory is a real directory.
type diskDirectory struct {
	path   string
	handle *os.File
}

// pathOnly is a directory to read from: one that need not exist, and that cannot be locked or synced.
func pathOnly(path string) directory { return &diskDirectory{path: path} }

// openDirectory opens a directory and makes it first if need be, so that it survives a power cut.
func openDirectory(path string) (directory, error) {
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		p, err := openDirectory(parent)
		if err != nil {
			return nil, err
		}
		p.Close()
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	up, err := os.Open(parent)
	if err != nil {
		return nil, err
	}
	err = errors.Join(up.Sync(), up.Close())
	if err != nil {
		return nil, err
	}
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &diskDirectory{path, handle}, nil
}

func (d *diskDirectory) OpenFile(name string, flag int) (file, error) {
	f, err := os.OpenFile(filepath.Join(d.path, name), flag, 0o644)
	if err != nil {
		return nil, err // not f: a nil *os.File in a file is not nil
	}
	return f, nil
}

func (d *diskDirectory) Rename(from, to string) error {
	return os.Rename(filepath.Join(d.path, from), filepath.Join(d.path, to))
}

func (d *diskDirectory) Remove(name string) error { return os.Remove(filepath.Join(d.path, name)) }
func (d *diskDirectory) Sync() error              { return d.handle.Sync() }
func (d *diskDirectory) Close() error             { return d.handle.Close() }

func (d *diskDirectory) Lock() error {
	if err := flock(d.handle); err != nil {
		return fmt.Errorf("directory %s: %w", d.path, err)
	}
	return nil
}

// The small files (meta, mark, topics, cluster) are one line of JSON and one line with its checksum, so that a person can read them at night.

// sealed is the content of a small file, its first line filled up with spaces to a width.
func sealed(value any, width int) ([]byte, error) {
	line, err := json.Marshal(value)
	line = fmt.Appendf(nil, "%-*s", width, line)
	return fmt.Appendf(line, "\n%08x\n", crc32.ChecksumIEEE(line)), err
}

// writeFile replaces a small file in one step: after a crash it holds the old value or the new one. After an error nobody knows which.
func writeFile(d directory, name string, value any) error {
	content, err := sealed(value, 0)
	if err != nil {
		return err
	}
	f, err := d.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.Rename(name+".tmp", name); err != nil {
		return err
	}
	return d.Sync()
}

// readFile reads what writeFile wrote. A file that is not there: fs.ErrNotExist.
func readFile(d directory, name string, value any) error {
	f, err := d.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	content := make([]byte, info.Size())
	if _, err := f.ReadAt(content, 0); err != nil && err != io.EOF {
		return err
	}
	const tail = len("\n00000000\n")
	n := max(0, len(content)-tail)
	if string(content[n:]) != fmt.Sprintf("\n%08x\n", crc32.ChecksumIEEE(content[:n])) {
		return fmt.Errorf("%s is damaged: its checksum does not match; put a good copy in its place", name)
	}
	return json.Unmarshal(content[:n], value)
}
