package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrPowerCut is what every operation on a FaultyDir and its files returns between a power cut and Restart.
var ErrPowerCut = errors.New("logtest: the power is off")

// FileOperation is one operation that FaultyDir.Fault sees.
type FileOperation struct {
	Name string // openfile, readat, writeat, truncate, sync, stat, close, rename, remove, readdir, syncdir
	File string // the file's name in the directory; of a rename the old name
	Size int    // bytes to read or write
}

// FaultyDir is a directory in memory with the manners of a disk. What was written and not synced is lost at a power cut, or half of it, or its last write is torn;
// a file that was created, renamed or removed is so for good only after SyncDir. It stands in for the directory and the *os.File of a Log that keeps files:
// have that Log open its files through a function, and give it FaultyDir.OpenFile in the test.
//
// The zero value is an empty directory with the power on. Safe for concurrent use.
type FaultyDir struct {
	// Fault is asked before every operation; an error is returned in the operation's place, which then does not happen, except for a write, of which a first
	// part may have happened. Set it before use. It must not call the FaultyDir.
	Fault func(op FileOperation) error

	mu      sync.Mutex
	names   map[string]*node // what a program sees
	durable map[string]*node // what a power cut leaves
	changes []change         // of names, since the last SyncDir, in order
	life    int              // + 1 with every power cut: handles of an earlier life are dead
	off     bool
	left    int // operations until the power cut, 0: no cut is planned
	count   int
}

// node is one file, whatever its name.
type node struct {
	bytes  []byte
	synced []byte
	writes []write // since the last sync, in order
}

// write is one write or truncation that was not synced.
type write struct {
	at       int64
	bytes    []byte
	truncate bool
}

func (w write) apply(b []byte) []byte {
	if w.truncate {
		if int64(len(b)) >= w.at {
			return b[:w.at:w.at]
		}
		return append(b, make([]byte, w.at-int64(len(b)))...)
	}
	if end := w.at + int64(len(w.bytes)); int64(len(b)) < end {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[w.at:], w.bytes)
	return b
}

// change gives a name to a node; nil takes the name away.
type change struct {
	name string
	node *node
}

// CutPowerAfter plans a power cut in place of the n-th operation from now; 0: none, as before. When that is a write, a part of it may have happened.
func (d *FaultyDir) CutPowerAfter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// CutPower switches the power off now.
func (d *FaultyDir) CutPower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// Operations is how many operations were asked for so far.
func (d *FaultyDir) Operations() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Restart comes back after a power cut (it cuts the power first, if it is on). Each file has what was synced and, as r decides, some of the later writes:
// all up to one of them, which is torn, or any subset of them, as a disk may write pages in any order. Of the changes of names those up to one of them
// happened. Files opened before stay dead. The same r gives the same outcome.
func (d *FaultyDir) Restart(r *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off, d.left, d.life = false, 0, d.life+1
	d.init()
	for _, c := range d.changes[:r.IntN(len(d.changes)+1)] {
		c.apply(d.durable)
	}
	d.changes = nil
	d.names = map[string]*node{}
	for _, name := range sortedNames(d.durable) {
		n := d.durable[name]
		b := bytes.Clone(n.synced)
		if len(n.writes) > 0 {
			last := r.IntN(len(n.writes) + 1)
			anyOrder := r.IntN(3) == 0
			for i, w := range n.writes {
				if anyOrder && r.IntN(2) == 0 {
					continue
				}
				if !anyOrder && i >= last {
					if i == last && !w.truncate {
						torn := w
						torn.bytes = tear(r, w.bytes)
						b = torn.apply(b)
					}
					break
				}
				b = w.apply(b)
			}
		}
		d.names[name] = &node{bytes: bytes.Clone(b), synced: b}
	}
	d.durable = map[string]*node{}
	for name, n := range d.names {
		d.durable[name] = n
	}
}

// tear gives a write that was under way: a first part, or all of it with a stretch of zeros where a page did not reach the disk.
func tear(r *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	if r.IntN(2) == 0 {
		return b[:r.IntN(len(b))]
	}
	torn := bytes.Clone(b)
	from := r.IntN(len(b))
	clear(torn[from : from+1+r.IntN(len(b)-from)])
	return torn
}

func (c change) apply(names map[string]*node) {
	if c.node == nil {
		delete(names, c.name)
		return
	}
	names[c.name] = c.node
}

func sortedNames(m map[string]*node) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (d *FaultyDir) init() {
	if d.names == nil {
		d.names, d.durable = map[string]*node{}, map[string]*node{}
	}
}

// begin counts one operation. partly says that a write fails and may have happened in part. Under mu.
func (d *FaultyDir) begin(life int, op FileOperation) (partly bool, err error) {
	d.init()
	if d.off || life != d.life {
		return false, fmt.Errorf("%s %s: %w", op.Name, op.File, ErrPowerCut)
	}
	d.count++
	if d.left > 0 {
		if d.left--; d.left == 0 {
			d.off = true
			return true, fmt.Errorf("%s %s: %w", op.Name, op.File, ErrPowerCut)
		}
	}
	if d.Fault != nil {
		if err := d.Fault(op); err != nil {
			return true, fmt.Errorf("%s %s: %w", op.Name, op.File, err)
		}
	}
	return false, nil
}

func (d *FaultyDir) rename(name string, n *node) {
	c := change{name, n}
	c.apply(d.names)
	d.changes = append(d.changes, c)
}

// base makes a name out of a path: a FaultyDir has no folders in it.
func base(name string) string { return filepath.Base(name) }

// OpenFile opens a file as os.OpenFile does; of the flags O_CREATE, O_EXCL and O_TRUNC count. Only the last element of name counts. perm is ignored.
func (d *FaultyDir) OpenFile(name string, flag int, perm fs.FileMode) (*FaultyFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name = base(name)
	if _, err := d.begin(d.life, FileOperation{Name: "openfile", File: name}); err != nil {
		return nil, err
	}
	n, ok := d.names[name]
	switch {
	case !ok && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case ok && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !ok:
		n = &node{}
		d.rename(name, n)
	case flag&os.O_TRUNC != 0 && len(n.bytes) > 0:
		n.do(write{truncate: true})
	}
	return &FaultyFile{dir: d, node: n, name: name, life: d.life}, nil
}

// Rename gives a file another name, as os.Rename does.
func (d *FaultyDir) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to = base(from), base(to)
	if _, err := d.begin(d.life, FileOperation{Name: "rename", File: from}); err != nil {
		return err
	}
	n, ok := d.names[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if from != to {
		d.rename(to, n)
		d.rename(from, nil)
	}
	return nil
}

// Remove removes a file, as os.Remove does.
func (d *FaultyDir) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	name = base(name)
	if _, err := d.begin(d.life, FileOperation{Name: "remove", File: name}); err != nil {
		return err
	}
	if _, ok := d.names[name]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	d.rename(name, nil)
	return nil
}

// Names lists the files in order.
func (d *FaultyDir) Names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.begin(d.life, FileOperation{Name: "readdir"}); err != nil {
		return nil, err
	}
	return sortedNames(d.names), nil
}

// SyncDir makes what was created, renamed and removed so far so for good: what Sync of an opened directory does.
func (d *FaultyDir) SyncDir() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.begin(d.life, FileOperation{Name: "syncdir"}); err != nil {
		return err
	}
	for _, c := range d.changes {
		c.apply(d.durable)
	}
	d.changes = nil
	return nil
}

// String lists the files and their sizes, for messages.
func (d *FaultyDir) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s strings.Builder
	for _, name := range sortedNames(d.names) {
		n := d.names[name]
		fmt.Fprintf(&s, "%s %d bytes, %d synced; ", name, len(n.bytes), len(n.synced))
	}
	return strings.TrimSuffix(s.String(), "; ")
}

// FaultyFile is one file of a FaultyDir, with the methods of an *os.File that a Log needs. Safe for concurrent use.
type FaultyFile struct {
	dir    *FaultyDir
	node   *node
	name   string
	life   int
	closed bool
}

func (n *node) do(w write) {
	n.bytes = w.apply(n.bytes)
	n.writes = append(n.writes, w)
}

func (f *FaultyFile) begin(op string, size int) (bool, error) {
	if f.closed {
		return false, &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return f.dir.begin(f.life, FileOperation{Name: op, File: f.name, Size: size})
}

// Name is the name under which the file was opened.
func (f *FaultyFile) Name() string { return f.name }

// ReadAt reads as (*os.File).ReadAt does.
func (f *FaultyFile) ReadAt(b []byte, at int64) (int, error) {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	if _, err := f.begin("readat", len(b)); err != nil {
		return 0, err
	}
	if at >= int64(len(f.node.bytes)) {
		return 0, io.EOF
	}
	n := copy(b, f.node.bytes[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes as (*os.File).WriteAt does. When it fails, half of b may have been written.
func (f *FaultyFile) WriteAt(b []byte, at int64) (int, error) {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	partly, err := f.begin("writeat", len(b))
	if err != nil {
		if partly && len(b) > 1 {
			n := len(b) / 2
			f.node.do(write{at: at, bytes: bytes.Clone(b[:n])})
			return n, err
		}
		return 0, err
	}
	f.node.do(write{at: at, bytes: bytes.Clone(b)})
	return len(b), nil
}

// Truncate changes the size as (*os.File).Truncate does.
func (f *FaultyFile) Truncate(size int64) error {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	if _, err := f.begin("truncate", 0); err != nil {
		return err
	}
	f.node.do(write{at: size, truncate: true})
	return nil
}

// Sync makes what was written so far survive a power cut. The file's name survives it by SyncDir.
func (f *FaultyFile) Sync() error {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	if _, err := f.begin("sync", 0); err != nil {
		return err
	}
	f.node.synced, f.node.writes = bytes.Clone(f.node.bytes), nil
	return nil
}

// Stat gives name and size.
func (f *FaultyFile) Stat() (fs.FileInfo, error) {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	if _, err := f.begin("stat", 0); err != nil {
		return nil, err
	}
	return fileInfo{f.name, int64(len(f.node.bytes))}, nil
}

// Close closes this handle. It syncs nothing.
func (f *FaultyFile) Close() error {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	if _, err := f.begin("close", 0); err != nil {
		return err
	}
	f.closed = true
	return nil
}

type fileInfo struct {
	name string
	size int64
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return 0o600 }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }
