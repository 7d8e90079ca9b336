//go:build unix

package fuzzbound

import (
	"syscall"
	"time"
)

// processorTime is what this process has used of the processors.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // not with these arguments
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
