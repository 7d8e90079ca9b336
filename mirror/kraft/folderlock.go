//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package kraft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// folderLock is held from the opening of the identity folder until the process ends, however it ends.
type folderLock struct {
	file *os.File
	// place names the file itself, so that a copy of the folder is told from the folder.
	place string
}

func lockFolder(folder string) (*folderLock, error) {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("kraft: identity folder: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("%w: %s", ErrFolderInUse, folder)
	}
	var st syscall.Stat_t
	if err == nil {
		err = syscall.Fstat(int(f.Fd()), &st)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("kraft: identity folder: %w", err)
	}
	return &folderLock{file: f, place: fmt.Sprintf("%d/%d", st.Dev, st.Ino)}, nil
}

func (l *folderLock) release() { l.file.Close() }
