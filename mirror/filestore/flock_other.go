//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filestore

import (
	"errors"
	"os"
)

func flock(*os.File) error {
	return errors.New("filestore: folders are locked with flock, which this system does not have; keep the records elsewhere, on compacted topics for one")
}
