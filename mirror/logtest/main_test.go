package logtest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// TestMain fails when a goroutine of the kit or of a log is left.
func TestMain(m *testing.M) {
	code := m.Run()
	var left []byte
	for range 200 { // who is ending gets the time to
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for i, s := range bytes.Split(stacks, []byte("\n\n")) {
			if i > 0 && bytes.Contains(s, []byte("clustermirror/mirror/")) {
				left = append(append(left, s...), '\n')
			}
		}
		if left == nil {
			break
		}
		runtime.Gosched()
	}
	if left != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left:\n%s", left)
		code = 1
	}
	os.Exit(code)
}
