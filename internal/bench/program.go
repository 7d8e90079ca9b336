package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// program stands in for a *testing.T, which kafkatest asks for.
type program struct {
	ctx context.Context

	mu       sync.Mutex
	cleanups []func()
	err      error
}

// do runs f and then what it registered with Cleanup. Fatalf ends f.
func (p *program) do(f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	for _, c := range slices.Backward(p.cleanups) {
		c()
	}
	return p.err
}

func (p *program) Helper()                     {}
func (p *program) Name() string                { return "bench" }
func (p *program) Logf(f string, args ...any)  { fmt.Printf(f+"\n", args...) }
func (p *program) Context() context.Context    { return p.ctx }
func (p *program) Skipf(f string, args ...any) { p.Fatalf(f, args...) }
func (p *program) Fatalf(f string, args ...any) {
	p.mu.Lock()
	p.err = fmt.Errorf(f, args...)
	p.mu.Unlock()
	runtime.Goexit()
}

func (p *program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *program) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}
