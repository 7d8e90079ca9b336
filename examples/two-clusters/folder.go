package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// folder is where everything of a run lies: the clusters' data, the kafka-mirror command, the nodes' identities, files and logs.
type folder struct {
	path string
	keep bool
	lock *os.File // held while the run lives, so that another one knows whose folder it may remove
}

const prefix = "two-clusters-"

// openFolder makes a run's folder, and removes those of runs that were killed. From then on this process is the parent of all that it has started, and of what those start.
func openFolder(keep bool) (*folder, error) {
	if err := errors.Join(adopt(), sweep(os.TempDir())); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, keep: keep}
	if f.lock, err = os.Create(filepath.Join(path, "lock")); err == nil {
		err = syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil && keep {
		err = os.WriteFile(filepath.Join(path, "keep"), nil, 0o644)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return f, nil
}

// sweep removes the folders of runs that were killed: nobody holds their locks, and they were not to be kept.
func sweep(dir string) error {
	locks, err := filepath.Glob(filepath.Join(dir, prefix+"*", "lock"))
	if err != nil {
		return err
	}
	for _, path := range locks {
		of := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(of, "keep")); err == nil {
			continue
		}
		lock, err := os.Open(path)
		if err != nil {
			continue // it is being removed
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.RemoveAll(of)
		}
		lock.Close()
		if err != nil {
			return fmt.Errorf("what a killed run left: %w", err)
		}
	}
	return nil
}

// in is a path in the folder.
func (f *folder) in(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// write writes a file of the folder.
func (f *folder) write(name string, lines ...string) error {
	return os.WriteFile(f.in(name), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// close ends all processes that this one has started, and removes the folder unless it is to be kept. What is being started meanwhile is found the next time round.
func (f *folder) close() (err error) {
	for range 10 {
		if err = endChildren(); err != nil || f.keep {
			break
		}
		if err = os.RemoveAll(f.path); err == nil {
			break
		}
	}
	if f.keep {
		fmt.Printf("kept: %s\n", f.path)
	}
	f.lock.Close()
	return err
}

// adopt makes this process the parent of all whose parents end before them, as those of "go build" that is killed: endChildren finds them.
func adopt() error {
	const childSubreaper = 36 // PR_SET_CHILD_SUBREAPER of prctl(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, childSubreaper, 1, 0); errno != 0 {
		return errno
	}
	return nil
}

// endChildren kills the processes that this one has started and that still run, and waits for their ends. In an orderly end there are none.
func endChildren() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left, err := children(os.Getpid())
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v cannot be ended", left)
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL) // one that is gone meanwhile is no error
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// children are the processes that pid has started and that have not ended.
func children(pid int) (found []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …; the name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, child)
		}
	}
	return found, nil
}
