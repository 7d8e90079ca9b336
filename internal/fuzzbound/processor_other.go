//go:build !unix

package fuzzbound

import "time"

var begin = time.Now()

// processorTime is the time on the wall: the system has no other by the same call.
func processorTime() time.Duration { return time.Since(begin) }
