package dropped

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// File is one file of a sink's folder, as its name describes it.
type File struct {
	Path string
	mirror.TopicPartition
	From, To int64 // the offsets that it holds, [From, To)
	N        int   // tells files of the same range apart
	Size     int64 // bytes
}

// Stray is a file in a sink's folder that is not read.
type Stray struct{ Path, Why string }

// Folder is what a sink's folder holds. It is a list: files are read when they are iterated over.
type Folder struct {
	Dir    string
	Files  []File // by topic, partition, first offset
	Strays []Stray
	// Unreadable are folders in it that cannot be listed, or not to their ends, and files of which nothing can be told: what lies there is not in Files. Whoever reads the folder is given them too.
	Unreadable []*UnreadableError
}

// UnreadableError: what was dropped may lie in a place of a folder that cannot be read.
type UnreadableError struct {
	Path string
	Err  error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("dropped: %s cannot be read, so what is in it is not given: %v; mend that, then read the folder again", e.Path, e.Err)
}
func (e *UnreadableError) Unwrap() error { return e.Err }

// List lists the folder of a FileSink. Errors: the folder itself cannot be read. One in it that cannot hides nothing of the others, and is in Folder.Unreadable.
func List(dir string) (*Folder, error) { return listBy(dir, os.ReadDir) }

// listBy is List with another way to read a folder.
func listBy(dir string, readDir func(string) ([]fs.DirEntry, error)) (*Folder, error) {
	folder := &Folder{Dir: dir}
	entries, err := readDir(dir)
	if err != nil && len(entries) == 0 {
		return nil, fmt.Errorf("dropped: reading folder %s: %w", dir, err)
	}
	var walk func(in string, entries []fs.DirEntry, err error)
	walk = func(in string, entries []fs.DirEntry, err error) {
		if err != nil {
			folder.Unreadable = append(folder.Unreadable, &UnreadableError{in, err})
		}
		for _, d := range entries {
			path := filepath.Join(in, d.Name())
			if d.IsDir() {
				below, err := readDir(path)
				walk(path, below, err)
				continue
			}
			folder.add(path, d)
		}
	}
	walk(dir, entries, err)
	slices.SortFunc(folder.Files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From), cmp.Compare(a.N, b.N), cmp.Compare(a.To, b.To))
	})
	return folder, nil
}

// add takes in one file.
func (f *Folder) add(path string, d fs.DirEntry) {
	name, err := mirror.ParseSinkFileName(path)
	below, relErr := filepath.Rel(f.Dir, path)
	switch matched, _ := filepath.Match("*/*/*", filepath.ToSlash(below)); {
	case err == nil && (relErr != nil || !matched):
		err = errors.New("it does not lie in TOPIC/PARTITION of the folder")
	case err == nil && (name.From < 0 || name.To <= name.From || name.N < 0 || name.Partition < 0):
		err = errors.New("its name has a range that cannot be")
	}
	if unfinished, _ := filepath.Match("unfinished-*", d.Name()); unfinished {
		err = errors.New("it was being written when its process ended; the truncation that it was for was not done then")
	}
	if err == nil && !d.Type().IsRegular() {
		err = errors.New("it is no regular file: a pipe could be waited for without an end, and a link tells nothing of the size of what it leads to")
	}
	if err != nil {
		f.Strays = append(f.Strays, Stray{path, err.Error()})
		return
	}
	info, err := d.Info()
	if err != nil {
		f.Unreadable = append(f.Unreadable, &UnreadableError{path, err})
		return
	}
	f.Files = append(f.Files, File{Path: path, TopicPartition: name.TopicPartition, From: name.From, To: name.To, N: name.N, Size: info.Size()})
}

// run is what one truncation dropped.
type run struct {
	files []*File
	after *File // the first file beyond its end, with a gap between; nil: none
	// hidden is what cannot be read of the partition, nil: nothing is known to be hidden. It may hold what follows.
	hidden *UnreadableError
}

func (r *run) from() int64 { return r.files[0].From }
func (r *run) to() int64   { return r.files[len(r.files)-1].To }

// runsOf sorts the files of one partition, which are in order, into runs. A file of which two histories have the same bytes is in both.
func runsOf(files []*File) (runs []*run) {
	used := make(map[*File]bool, len(files))
	begin := func(first *File) {
		r := &run{files: []*File{first}}
		used[first] = true
		for next := continuation(files, first); next != nil; next = continuation(files, next) {
			r.files = append(r.files, next)
			used[next] = true
		}
		for _, f := range files {
			if f.From > r.to() {
				r.after = f
				break
			}
		}
		runs = append(runs, r)
	}
	for _, f := range files {
		if !slices.ContainsFunc(files, func(before *File) bool { return before.To == f.From }) {
			begin(f)
		}
	}
	for _, f := range files {
		if !used[f] {
			begin(f)
		}
	}
	return runs
}

// continuation is the file that begins where f ends: of several the one of the same number, because a history that differs does so in each of its files, or else the next lower one, whose bytes came again.
func continuation(files []*File, f *File) (best *File) {
	for _, next := range files {
		if next.From == f.To && (best == nil || next.N <= f.N) { // they are in order of N
			best = next
		}
	}
	return best
}

// DamageError: a file's bytes from some place on are not what the sink wrote. What lies before that place was given.
type DamageError struct {
	Path   string
	Byte   int64 // where the first batch that cannot be read begins
	Offset int64 // the first offset that is not given
	Err    error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("dropped: file %s is damaged at byte %d, offset %d: %v", e.Path, e.Byte, e.Offset, e.Err)
}
func (e *DamageError) Unwrap() error { return e.Err }

// ErrTooLarge: a batch is larger than Options.MaxBatch. It and what follows in its file can be read with a larger one.
var ErrTooLarge = errors.New("dropped: the batch is larger than Options.MaxBatch")

// fileReader reads one file batch by batch.
type fileReader struct {
	file *File
	f    *os.File
	r    *bufio.Reader
	most int
	at   int64 // bytes that were read
	next int64 // offset
}

func openFile(file *File, most int) (*fileReader, error) {
	f, err := os.Open(file.Path)
	if err != nil {
		return nil, fmt.Errorf("dropped: %w", err)
	}
	return &fileReader{file: file, f: f, r: bufio.NewReaderSize(f, 64<<10), most: most, next: file.From}, nil
}

// read returns the next batch, whole and checked. Errors: io.EOF behind the last one, *DamageError, the file system's.
func (r *fileReader) read() (batch.Header, []byte, error) {
	damaged := func(format string, args ...any) (batch.Header, []byte, error) {
		return batch.Header{}, nil, &DamageError{r.file.Path, r.at, r.next, fmt.Errorf(format, args...)}
	}
	head, err := r.r.Peek(batch.HeaderSize)
	switch {
	case len(head) == 0 && err == io.EOF && r.next == r.file.To && r.at > 0:
		return batch.Header{}, nil, io.EOF
	case len(head) == 0 && err == io.EOF:
		return damaged("the file ends here, and its name says that it goes on to offset %d", r.file.To)
	case err != nil && err != io.EOF:
		return batch.Header{}, nil, fmt.Errorf("dropped: reading %s at byte %d: %w", r.file.Path, r.at, err)
	}
	h, size, err := batch.Next(head)
	switch {
	case err == batch.ErrCut && len(head) < batch.HeaderSize:
		return damaged("the file ends inside a batch")
	case err != nil && err != batch.ErrCut:
		return damaged("%w", err)
	case r.at > 0 && h.BaseOffset < r.next:
		return damaged("a batch at offset %d comes after one that ends at %d", h.BaseOffset, r.next-1)
	case r.at == 0 && h.BaseOffset != r.file.From || h.NextOffset() > r.file.To:
		return damaged("a batch has offsets [%d,%d), and the file's name says [%d,%d)", h.BaseOffset, h.NextOffset(), r.file.From, r.file.To)
	case int64(size) > r.file.Size-r.at:
		return damaged("the file ends inside a batch: it has %d of its %d bytes", max(0, r.file.Size-r.at), size)
	case size > r.most:
		return damaged("%d bytes: %w", size, ErrTooLarge)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r.r, b); err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("the file ends inside a batch; it became shorter while it was read")
	} else if err != nil {
		return batch.Header{}, nil, fmt.Errorf("dropped: reading %s at byte %d: %w", r.file.Path, r.at, err)
	}
	if err := batch.Check(b, &h); err != nil {
		return damaged("%w", err)
	}
	r.at, r.next = r.at+int64(size), h.NextOffset()
	return h, b, nil
}

func (r *fileReader) close() { r.f.Close() } // it was only read
