package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// stage is what package kafkatest takes for a test: what goes wrong in it ends the run by a panic, which guard turns into an error.
type stage struct {
	ctx context.Context
	say func(format string, args ...any)

	mu       sync.Mutex
	cleanups []func()
}

// broken is why something on the stage ended.
type broken struct{ error }

// guard runs f, and returns what ended it.
func guard(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Fatalf ends what guard runs. The brokers' logs behind an error are left out: -keep keeps them.
func (s *stage) Fatalf(format string, args ...any) {
	text, logs, with := strings.Cut(fmt.Sprintf(format, args...), "\n--- ")
	if with && strings.TrimSpace(logs) != "" {
		text += " (-keep keeps the brokers' logs)"
	}
	panic(broken{fmt.Errorf("%s", text)})
}

// Skipf is called where Kafka cannot be run.
func (s *stage) Skipf(format string, args ...any) {
	panic(broken{missing(fmt.Sprintf(format, args...))})
}

func (s *stage) Logf(format string, args ...any) { s.say("  "+format, args...) }

// of is the stage for one of several that log at the same time.
func (s *stage) of(name string) *part { return &part{s, name} }

type part struct {
	*stage
	name string
}

func (p *part) Logf(format string, args ...any) { p.stage.Logf(p.name+": "+format, args...) }

// Cleanup keeps f for the end.
func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// end runs the cleanups, the last one first.
func (s *stage) end() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		f()
	}
}

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return "two-clusters" }
func (s *stage) Failed() bool             { return false } // the brokers' logs are not shown
func (s *stage) Context() context.Context { return s.ctx }
