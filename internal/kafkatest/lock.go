package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// lockFile takes an exclusive flock on path and waits for it; waiting is called once if somebody else holds it. Closing the file, or the death of the process, gives it back.
func lockFile(path string, waiting func()) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		if waiting != nil {
			waiting()
		}
		for {
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("kafkatest: lock %s: %w", path, err)
	}
	return f, nil
}

// turn is this process's hold of the machine: while it is held no other test process runs clusters, so that two packages with three JVMs each do not starve each other.
var turn struct {
	mu    sync.Mutex
	users int
	file  *os.File
}

// takeTurn waits until this process may run clusters. Every call needs one giveTurn.
func takeTurn(waiting func()) error {
	turn.mu.Lock()
	defer turn.mu.Unlock()
	if turn.users == 0 {
		f, err := lockFile(filepath.Join(CacheDir(), "clusters.lock"), waiting)
		if err != nil {
			return err
		}
		turn.file = f
		// Whatever lies here belongs to a process that is gone: the lock is ours.
		if err := os.RemoveAll(runDir()); err != nil {
			f.Close()
			return err
		}
	}
	turn.users++
	return nil
}

func giveTurn() {
	turn.mu.Lock()
	defer turn.mu.Unlock()
	turn.users--
	if turn.users == 0 {
		turn.file.Close()
		turn.file = nil
	}
}

// runDir is where the data of running clusters lies.
func runDir() string { return filepath.Join(CacheDir(), "run") }
