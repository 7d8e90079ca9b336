//go:build unix

package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func init() {
	children["increments"] = func(dir string) error { return increment(dir, increments) }
	children["late"] = writeLate
	children["holds the lock"] = holdTheLock
}

// startChild starts this test binary as one of the children.
func startChild(t testing.TB, name, dir string) (child *exec.Cmd, in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	child = exec.Command(os.Args[0], dir)
	child.Env = append(os.Environ(), childVariable+"="+name)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	must(t, err)
	pipe, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	return child, in, bufio.NewReader(pipe)
}

// heard demands the child's next line.
func heard(t testing.TB, out *bufio.Reader, want string) {
	t.Helper()
	line, err := out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		t.Fatalf("the child says %q (%v), not %q", line, err, want)
	}
}

const increments = 600

// increment adds one to a key, again and again.
func increment(dir string, times int) error {
	s, err := Open(dir, Options{CompactAbove: 1000})
	if err != nil {
		return err
	}
	for range times {
		if err := s.Update(context.Background(), func(v keyedlog.View) ([]keyedlog.Change, error) {
			n := 0
			if r, ok := v.Get([]byte("n")); ok {
				var err error
				if n, err = strconv.Atoi(string(r.Value)); err != nil {
					return nil, err
				}
			}
			return []keyedlog.Change{{Key: []byte("n"), Value: strconv.AppendInt(nil, int64(n+1), 10)}}, nil
		}); err != nil {
			return err
		}
	}
	return s.Close()
}

// Three processes add to one key, and compact while they do. No addition is lost, and none is made twice.
func TestProcessesLoseNoUpdate(t *testing.T) {
	dir := t.TempDir()
	one, _, _ := startChild(t, "increments", dir)
	two, _, _ := startChild(t, "increments", dir)
	must(t, increment(dir, increments))
	must(t, errors.Join(one.Wait(), two.Wait()))
	s := opened(t, dir, Options{})
	mustShow(t, s, fmt.Sprintf("n = \"%d\" of \"\"/0\nversion %[1]d\n", 3*increments))
	if s.log.generation < 5 {
		t.Errorf("generation %d: hardly any compaction came in between", s.log.generation)
	}
}

// writeLate opens a session, waits for a line and writes then.
func writeLate(dir string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	w, err := s.Open(ctx, "w")
	if err != nil {
		return err
	}
	if err := put(ctx, w, "k", "early"); err != nil {
		return err
	}
	fmt.Println("ready")
	fmt.Scanln()
	fmt.Println("awake")
	for _, err := range []error{put(ctx, w, "k", "late"), put(ctx, w, "new", "late"), w.Check(ctx)} {
		fmt.Println(errors.Is(err, keyedlog.ErrFenced))
	}
	return s.Close()
}

// A process that is stopped outside the lock hinders nobody. When it wakes and its writer was opened elsewhere, it writes not a byte.
func TestAProcessThatWakesTooLateIsFenced(t *testing.T) {
	dir := t.TempDir()
	child, in, out := startChild(t, "late", dir)
	defer child.Process.Kill()
	heard(t, out, "ready")
	must(t, child.Process.Signal(syscall.SIGSTOP))
	s := opened(t, dir, Options{})
	w := openSession(t, s, "w")
	if w.Number() != 2 {
		t.Errorf("session %d follows the child's 1", w.Number())
	}
	must(t, put(bounded(t), w, "k", "mine"))
	before, err := os.ReadFile(filepath.Join(dir, logName))
	must(t, err)
	_, err = io.WriteString(in, "\n")
	must(t, err)
	must(t, child.Process.Signal(syscall.SIGCONT))
	heard(t, out, "awake")
	for range 3 {
		heard(t, out, "true")
	}
	must(t, child.Wait())
	after, err := os.ReadFile(filepath.Join(dir, logName))
	must(t, err)
	if string(after) != string(before) {
		t.Error("the fenced process has changed the log")
	}
	must(t, put(bounded(t), w, "k", "mine still"))
}

// holdTheLock stays in a call until its input ends.
func holdTheLock(dir string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	return s.Update(context.Background(), func(keyedlog.View) ([]keyedlog.Change, error) {
		fmt.Println("inside")
		_, err := io.Copy(io.Discard, os.Stdin)
		return nil, err
	})
}

// A process that is stopped inside the lock holds it. Who waits is told its process id, and when it is killed work goes on.
func TestTheErrorNamesTheProcessThatHasTheLock(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, Options{LockWait: 20 * time.Millisecond})
	child, _, out := startChild(t, "holds the lock", dir)
	defer child.Process.Kill()
	heard(t, out, "inside")
	err := write(bounded(t), s, "k", "v")
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder != strconv.Itoa(child.Process.Pid) || !strings.Contains(err.Error(), locked.Holder) {
		t.Errorf("with the lock at process %d the error is %v", child.Process.Pid, err)
	}
	if _, err := Open(dir, Options{LockWait: time.Millisecond}); !errors.As(err, &locked) {
		t.Errorf("opening a folder that is locked: %v", err)
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // says that it was killed
	must(t, write(bounded(t), opened(t, dir, Options{}), "k", "v"))
}

// Somebody takes the lock's files for stale and removes them while a process is in a call. That frees nothing.
func TestRemovingTheLockFilesFreesNothing(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, Options{})
	must(t, s.Update(bounded(t), func(keyedlog.View) ([]keyedlog.Change, error) {
		must(t, os.Remove(filepath.Join(dir, lockName)))
		must(t, os.Remove(filepath.Join(dir, queueName)))
		_, err := Open(dir, Options{LockWait: time.Millisecond})
		var locked *LockedError
		if !errors.As(err, &locked) || locked.Holder != "" {
			t.Errorf("another handle opens the folder beside this one: %v", err)
		}
		return nil, nil
	}))
	must(t, write(bounded(t), opened(t, dir, Options{}), "k", "v"))
}

// Whoever waits keeps a place in the queue, so that one that writes without a pause cannot come before it again and again. Who gives up leaves the queue.
func TestWhoWaitsComesNext(t *testing.T) {
	dir := t.TempDir()
	var folders []*diskFolder
	for range 3 {
		f, err := openFolder(dir)
		must(t, err)
		t.Cleanup(func() { must(t, f.Close()) })
		folders = append(folders, f)
	}
	busy, waiting, late := folders[0], folders[1], folders[2]
	try := func(f *diskFolder, who, holder string, want error) {
		t.Helper()
		if got, err := f.Lock(who); got != holder || !errors.Is(err, want) {
			t.Errorf("%s asks for the lock and gets %q, %v, not %q, %v", who, got, err, holder, want)
		}
	}
	try(busy, "busy", "busy", nil)
	try(waiting, "waiting", "busy", errLocked)
	try(late, "late", "waiting", errLocked)
	busy.Unlock()
	try(busy, "busy", "waiting", errLocked)
	try(waiting, "waiting", "waiting", nil)
	try(busy, "busy", "waiting", errLocked)
	try(late, "late", "busy", errLocked)
	busy.Unlock() // gives up
	try(late, "late", "waiting", errLocked)
	waiting.Unlock()
	try(late, "late", "late", nil)
	late.Unlock()
}
