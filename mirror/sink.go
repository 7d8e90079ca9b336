package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Sink is handed the records that a truncation is about to drop. Safe for concurrent use.
type Sink interface {
	// Dropped is called before the truncation, once or more for a range, in order: batches are the whole batches of [from, to), bytes verbatim. A batch that lies only
	// partly in the range that is cut is handed whole, because it is dropped whole. The bytes are read-only and valid until Dropped returns.
	// When Dropped returns nil, what it was given is safe; on an error nothing is cut. The same range may come again after a crash or a retry. It has to return when ctx ends; a second later it is taken to
	// have failed, and may be called again while it is still at work.
	Dropped(ctx context.Context, tp TopicPartition, from, to int64, batches []byte) error
}

// errSinkSilent: a Sink went on when its context had ended.
var errSinkSilent = errors.New("the sink has not returned when its context ended; whatever it still does with these records, they will be handed to it again")

// handTo hands records to a sink, and lets go of one that does not heed its context: a partition that waits for it for ever could not even be stopped. What it was handed stays its own.
func handTo(ctx context.Context, s Sink, tp TopicPartition, from, to int64, batches []byte) error {
	if s == Discard {
		return nil
	}
	done := make(chan error, 1)
	own := bytes.Clone(batches)
	go func() { done <- s.Dropped(ctx, tp, from, to, own) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	heeds := time.NewTimer(sinkGrace)
	defer heeds.Stop()
	select {
	case err := <-done:
		return err
	case <-heeds.C:
		return errSinkSilent
	}
}

// sinkGrace is how long a sink may take to return when its context has ended.
const sinkGrace = time.Second

// Discard is the Sink that keeps nothing. There is no default: whoever does not want the dropped records says so by this name.
var Discard Sink = discard{}

type discard struct{}

func (discard) Dropped(context.Context, TopicPartition, int64, int64, []byte) error { return nil }

// FileSink keeps dropped records below dir, which is created when it is needed: dir/TOPIC/PARTITION/FROM.TO.N.log, mode 0600, holding the batches and nothing else.
// N is 0, and one more for each time that other records of the same range were dropped; nothing is ever overwritten, also by another process
// on the same dir, whose file system has to have hard links. When Dropped returns, file and folders are synced.
func FileSink(dir string) Sink {
	return &fileSink{dir: dir, sync: syncFolder, synced: map[string]bool{}}
}

type fileSink struct {
	dir    string
	sync   func(folder string) error
	mu     sync.Mutex
	synced map[string]bool // folders whose entries in the folders above them are safe, as this process has seen to
}

func (s *fileSink) Dropped(ctx context.Context, tp TopicPartition, from, to int64, batches []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("mirror: keeping dropped records [%d,%d) of %s-%d below %s: %w", from, to, tp.Topic, tp.Partition, s.dir, err)
	}
	if err := checkTopicName(tp.Topic); err != nil {
		return fail(err)
	}
	if from < 0 || to <= from || len(batches) == 0 {
		return fail(errors.New("nothing to keep"))
	}
	folder := filepath.Join(s.dir, tp.Topic, strconv.Itoa(int(tp.Partition)))
	if err := s.makeFolder(folder); err != nil {
		return fail(err)
	}
	temporary, err := writeSynced(folder, batches)
	if err != nil {
		return fail(err)
	}
	for n := 0; ; {
		path := filepath.Join(folder, fmt.Sprintf("%020d.%020d.%d.log", from, to, n))
		have, err := os.ReadFile(path)
		switch {
		case err == nil && bytes.Equal(have, batches): // it came again
			return orFail(fail, os.Remove(temporary), s.sync(folder))
		case err == nil:
			n++
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return fail(errors.Join(err, os.Remove(temporary)))
		}
		if err := os.Link(temporary, path); errors.Is(err, fs.ErrExist) {
			continue // somebody has taken the name; what he has put there is whole
		} else if err != nil {
			return fail(errors.Join(err, os.Remove(temporary)))
		}
		return orFail(fail, os.Remove(temporary), s.sync(folder))
	}
}

func orFail(fail func(error) error, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	return nil
}

// makeFolder makes the folders that are missing, and sees to it once in this process that the entry of each is safe: one that is there may have been made by a process that was killed before it synced
// that, or be another partition's, who is about to.
func (s *fileSink) makeFolder(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	var chain []string
	for f := folder; f != filepath.Dir(f); f = filepath.Dir(f) {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			missing[f] = true
		} else if err != nil {
			return err
		}
		chain = append(chain, f)
	}
	s.mu.Lock()
	for f := range missing { // somebody may have moved it away
		delete(s.synced, f)
	}
	chain = slices.DeleteFunc(chain, func(f string) bool { return s.synced[f] })
	s.mu.Unlock()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	own, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	for _, f := range chain {
		// What is above dir and was there is the machine's; it may not be readable.
		if err := s.sync(filepath.Dir(f)); err != nil && (missing[f] || len(f) >= len(own)) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range chain {
		s.synced[f] = true
	}
	return nil
}

func writeSynced(folder string, b []byte) (path string, err error) {
	f, err := os.CreateTemp(folder, "unfinished-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	return f.Name(), errors.Join(err, f.Close())
}

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SinkFile is one file that a FileSink wrote.
type SinkFile struct {
	TopicPartition
	From, To int64
	N        int    // 0, and one more for each time that other records of the same range were dropped
	Batches  []byte // whole batches, for Batches
}

// ParseSinkFileName says what the path of a file that a FileSink wrote tells of it, TOPIC/PARTITION/FROM.TO.N.log at its end. Nothing is read.
func ParseSinkFileName(path string) (SinkFile, error) {
	folder := filepath.Dir(path)
	partition, err := strconv.ParseInt(filepath.Base(folder), 10, 32)
	s := SinkFile{TopicPartition: TopicPartition{filepath.Base(filepath.Dir(folder)), int32(partition)}}
	parts := strings.Split(filepath.Base(path), ".")
	if err != nil || len(parts) != 4 || parts[3] != "log" {
		return SinkFile{}, errors.New("the name is not TOPIC/PARTITION/FROM.TO.N.log")
	}
	from, errFrom := strconv.ParseInt(parts[0], 10, 64)
	to, errTo := strconv.ParseInt(parts[1], 10, 64)
	n, errN := strconv.Atoi(parts[2])
	if err := errors.Join(errFrom, errTo, errN); err != nil {
		return SinkFile{}, fmt.Errorf("the name is not TOPIC/PARTITION/FROM.TO.N.log: %w", err)
	}
	s.From, s.To, s.N = from, to, n
	return s, nil
}

// ReadSinkFile reads a file that a FileSink wrote and checks it: every batch is whole and its checksum right, and together they are the range that the name says.
// With an error about the contents the file's bytes are returned all the same.
func ReadSinkFile(path string) (SinkFile, error) {
	fail := func(s SinkFile, format string, args ...any) (SinkFile, error) {
		return s, fmt.Errorf("mirror: sink file %s: %w", path, fmt.Errorf(format, args...))
	}
	s, err := ParseSinkFileName(path)
	if err != nil {
		return fail(s, "%w", err)
	}
	if s.Batches, err = os.ReadFile(path); err != nil {
		return fail(s, "%w", err)
	}
	whole, next := 0, int64(Unknown)
	for info, b := range Batches(s.Batches) {
		if err := CheckBatch(b); err != nil {
			return fail(s, "%w", err)
		}
		if whole == 0 && info.Base != s.From {
			return fail(s, "begins at offset %d", info.Base)
		}
		if info.Base < next {
			return fail(s, "the batch at %d comes after one that ends at %d", info.Base, next-1)
		}
		whole, next = whole+len(b), info.Next()
	}
	if whole != len(s.Batches) {
		return fail(s, "byte %d is not the beginning of a whole batch", whole)
	}
	if next != s.To {
		return fail(s, "ends at offset %d", next)
	}
	return s, nil
}
