//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package kraft

import "errors"

type folderLock struct{ place string }

func lockFolder(string) (*folderLock, error) {
	return nil, errors.New("kraft: the identity folder is locked with flock, which this system does not have")
}

func (l *folderLock) release() {}
