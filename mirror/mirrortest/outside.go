package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Run gives f what a test has, outside of go test: for an Example, or a program that shows something. The error has what f reported, and where it failed also what it logged. It returns when f and its
// cleanups have ended. Of a testing.TB there is what Start and checks need: Cleanup, Context, Error, Fail, Fatal, Helper, Log, Name, Skip and their kin, and TempDir; the others panic.
func Run(name string, f func(t testing.TB)) error {
	o := &outside{name: name}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // so that FailNow can end it
		defer close(done)
		defer o.clean()
		f(o)
	}()
	<-done
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failed {
		return nil
	}
	return errors.New(name + ": " + strings.Join(o.said, "\n"))
}

// outside is a testing.TB that belongs to no test.
type outside struct {
	testing.TB
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu              sync.Mutex
	failed, skipped bool
	said            []string
	cleanups        []func()
}

// clean calls the cleanups, the last one first, whatever they do.
func (o *outside) clean() {
	o.cancel()
	for {
		o.mu.Lock()
		n := len(o.cleanups)
		if n == 0 {
			o.mu.Unlock()
			return
		}
		last := o.cleanups[n-1]
		o.cleanups = slices.Delete(o.cleanups, n-1, n)
		o.mu.Unlock()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			last()
		}()
		<-ended
	}
}

func (o *outside) say(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, strings.TrimSuffix(text, "\n"))
}

func (o *outside) Cleanup(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cleanups = append(o.cleanups, f)
}

func (o *outside) Fail() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = true
}

func (o *outside) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

func (o *outside) Skipped() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.skipped
}

func (o *outside) SkipNow() {
	o.mu.Lock()
	o.skipped = true
	o.mu.Unlock()
	runtime.Goexit()
}

func (o *outside) TempDir() string {
	dir, err := os.MkdirTemp("", "mirrortest-")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			o.Error(err)
		}
	})
	return dir
}

func (o *outside) Name() string                      { return o.name }
func (o *outside) Context() context.Context          { return o.ctx }
func (o *outside) Helper()                           {}
func (o *outside) FailNow()                          { o.Fail(); runtime.Goexit() }
func (o *outside) Log(args ...any)                   { o.say(fmt.Sprintln(args...)) }
func (o *outside) Logf(format string, args ...any)   { o.say(fmt.Sprintf(format, args...)) }
func (o *outside) Error(args ...any)                 { o.Log(args...); o.Fail() }
func (o *outside) Errorf(format string, args ...any) { o.Logf(format, args...); o.Fail() }
func (o *outside) Fatal(args ...any)                 { o.Log(args...); o.FailNow() }
func (o *outside) Fatalf(format string, args ...any) { o.Logf(format, args...); o.FailNow() }
func (o *outside) Skip(args ...any)                  { o.Log(args...); o.SkipNow() }
func (o *outside) Skipf(format string, args ...any)  { o.Logf(format, args...); o.SkipNow() }
