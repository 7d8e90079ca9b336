//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import (
	"errors"
	"os"
)

func flock(*os.File) error {
	return errors.New("this example locks directories with flock, which this system does not have; put its own lock here")
}
