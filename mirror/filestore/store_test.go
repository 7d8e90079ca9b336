package filestore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func TestWhatIsWrittenIsThereAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := opened(t, dir, Options{})
	w := openSession(t, s, "w")
	must(t, put(bounded(t), w, "k", "1"))
	must(t, put(bounded(t), w, "empty", ""))
	must(t, write(bounded(t), s, "free", "2"))
	must(t, w.Update(bounded(t), [][]byte{[]byte("k"), []byte("gone")}, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: []byte("gone"), Value: []byte("x")}, {Key: []byte("gone")}, {Key: []byte("k"), Value: []byte("3"), Release: true}}, nil
	}))
	want := "session w 1\nempty = \"\" of \"w\"/1\nfree = \"2\" of \"\"/0\nk = \"3\" of \"\"/0\nversion 5\n"
	mustShow(t, s, want, "w")
	mustShow(t, opened(t, dir, Options{}), want, "w")

	for name, mode := range map[string]os.FileMode{".": 0o700 | os.ModeDir, "..": 0o700 | os.ModeDir, logName: 0o600, lockName: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, not %v", name, info.Mode(), mode)
		}
	}
}

// The size of the log is bounded by what it holds, and what compaction forgets comes back in no handle: neither a key nor an older number.
func TestCompactionForgetsKeysAndKeepsNumbers(t *testing.T) {
	dir := t.TempDir()
	s, other := opened(t, dir, Options{CompactAbove: 4096}), opened(t, dir, Options{CompactAbove: 4096})
	w := openSession(t, s, "w")
	w.Close()
	w = openSession(t, s, "w")
	must(t, write(bounded(t), s, "secret", strings.Repeat("s", 100)))
	must(t, s.Update(bounded(t), func(keyedlog.View) ([]keyedlog.Change, error) { return []keyedlog.Change{{Key: []byte("secret")}}, nil }))
	for i := range 400 {
		must(t, put(bounded(t), w, "k", strings.Repeat("v", i)))
		if i%90 == 0 {
			_, err := shown(bounded(t), other)
			must(t, err)
		}
	}
	want := "session w 2\nk = \"" + strings.Repeat("v", 399) + "\" of \"w\"/2\nversion 404\n"
	mustShow(t, other, want, "w")
	mustShow(t, opened(t, dir, Options{}), want, "w")
	b, err := os.ReadFile(filepath.Join(dir, logName))
	must(t, err)
	if len(b) > 4096+1024 || bytes.Contains(b, []byte("ssss")) {
		t.Errorf("after compaction the log has %d bytes, with the key that was taken out: %t", len(b), bytes.Contains(b, []byte("ssss")))
	}
	if s.log.generation < 10 || other.log.generation != s.log.generation {
		t.Errorf("generations %d and %d after a hundred times the size that is kept", s.log.generation, other.log.generation)
	}
	must(t, put(bounded(t), openSession(t, other, "w"), "k", "next"))
	if err := put(bounded(t), w, "k", "late"); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("the older session wrote after the other handle opened its writer: %v", err)
	}
}

func TestACallEndsWithItsContextAndNamesWhoHasTheLock(t *testing.T) {
	dir := t.TempDir()
	s, other, hasty := opened(t, dir, Options{}), opened(t, dir, Options{}), opened(t, dir, Options{LockWait: time.Millisecond})
	nothing := func(keyedlog.View) error { return nil }
	must(t, s.Update(bounded(t), func(keyedlog.View) ([]keyedlog.Change, error) {
		var locked *LockedError
		err := hasty.Read(bounded(t), nothing)
		if !errors.As(err, &locked) || locked.Holder != strconv.Itoa(os.Getpid()) || locked.Dir != dir || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read after LockWait: %v", err)
		}
		ctx, cancel := context.WithCancel(bounded(t))
		waiting := make(chan error)
		go func() { waiting <- other.Read(ctx, nothing) }()
		for len(other.turn) == 0 { // until it waits
			runtime.Gosched()
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("a read whose context ended: %v", err)
		}
		go func() { waiting <- other.Read(bounded(t), nothing) }()
		for len(other.turn) == 0 {
			runtime.Gosched()
		}
		must(t, other.Close())
		if err := <-waiting; !errors.Is(err, keyedlog.ErrClosed) {
			t.Errorf("a read whose store was closed: %v", err)
		}
		return nil, nil
	}))
	ctx, cancel := context.WithCancel(bounded(t))
	err := s.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		cancel()
		return []keyedlog.Change{{Key: []byte("k"), Value: []byte("v")}}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an update whose context ended while it decided: %v", err)
	}
	mustShow(t, s, "version 0\n")
	if err := s.Read(ctx, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("a read with a context that has ended: %v", err)
	}
}
