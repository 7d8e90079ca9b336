package fuzzbound

import (
	"fmt"
	"strings"
	"testing"
)

// said is a Reporter that remembers.
type said struct{ text string }

func (s *said) Helper()                           {}
func (s *said) Errorf(format string, args ...any) { s.text += fmt.Sprintf(format, args...) + "\n" }

var kept []byte

func TestWhatIsWithinTheBoundsIsNoFinding(t *testing.T) {
	var s said
	runs := 0
	Run(&s, 1<<10, func() {
		runs++
		kept = make([]byte, BytesForNone)
	})
	if s.text != "" || runs != 1 {
		t.Errorf("%d runs, it says %q", runs, s.text)
	}
}

func TestTooMuchMemoryIsAFinding(t *testing.T) {
	var s said
	runs := 0
	Run(&s, 1<<10, func() {
		runs++
		for range 4 {
			kept = make([]byte, BytesForNone)
		}
	})
	if !strings.Contains(s.text, "for an input of 1024 bytes") || runs != attempts {
		t.Errorf("%d runs, it says %q", runs, s.text)
	}
}

// Once is what another goroutine may have done.
func TestTooMuchMemoryOnceIsNoFinding(t *testing.T) {
	var s said
	first := true
	Run(&s, 0, func() {
		if first {
			kept = make([]byte, 8*BytesForNone)
		}
		first = false
	})
	if s.text != "" {
		t.Errorf("it says %q", s.text)
	}
}

func TestTooMuchTimeIsAFinding(t *testing.T) {
	var s said
	begin := processorTime()
	busy := func() {
		for end := processorTime() + TimePerKiB + TimePerKiB/10; processorTime() < end; {
		}
	}
	Run(&s, 100, busy)
	if !strings.Contains(s.text, "an input of 100 bytes took") {
		t.Errorf("it says %q", s.text)
	}
	if used := processorTime() - begin; used < attempts*TimePerKiB {
		t.Errorf("%d runs used %v in all", attempts, used)
	}
	s = said{}
	Run(&s, 3<<10, busy)
	if s.text != "" {
		t.Errorf("of three KiB it says %q", s.text)
	}
}
