// Package children runs other processes for tests: they take orders and give answers, one line of JSON each, over their standard input and output, and are killed, held up and let go on. Tests only.
package children

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Child is another process as its test sees it. Its methods are for the test's goroutine.
type Child[Order, Answer any] struct {
	Name string

	t     kafkatest.T
	bound time.Duration // of each wait
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // that it has written; closed when it has ended
	ended chan struct{}
	said  Said // on its standard error
}

// Said is what a process has written so far. Safe for concurrent use.
type Said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write takes more of it.
func (s *Said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Begin starts a process. It is killed when the test ends, at the latest; when the test has failed, what it has said on its standard error is shown.
func Begin[Order, Answer any](t kafkatest.T, name string, bound time.Duration, cmd *exec.Cmd) *Child[Order, Answer] {
	t.Helper()
	c := &Child[Order, Answer]{Name: name, t: t, bound: bound, cmd: cmd, lines: make(chan []byte, 1), ended: make(chan struct{})}
	cmd.Stderr = &c.said
	out, err := cmd.StdoutPipe()
	if err == nil {
		c.in, err = cmd.StdinPipe()
	}
	if err == nil {
		err = kafkatest.StartProcess(cmd)
	}
	if err != nil {
		t.Fatalf("%s does not start: %v", name, err)
	}
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		for from := bufio.NewReader(out); ; {
			line, err := from.ReadBytes('\n')
			if err != nil {
				break
			}
			c.lines <- line
		}
		cmd.Wait() // how it ended is asked of its state
	}()
	t.Cleanup(func() {
		_ = c.Kill() // it may have ended
		if t.Failed() {
			t.Logf("%s said:\n%s", name, c.said.String())
		}
	})
	return c
}

// Pid is the process's number.
func (c *Child[Order, Answer]) Pid() int { return c.cmd.Process.Pid }

// Send gives an order; Receive waits for its answer.
func (c *Child[Order, Answer]) Send(o Order) {
	c.t.Helper()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Fatalf("%s takes no order: %v", c.Name, err)
	}
}

// Receive waits for the next answer.
func (c *Child[Order, Answer]) Receive() (a Answer) {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatalf("%s has ended: %v; it said: %s", c.Name, c.cmd.ProcessState, c.said.String())
		}
		if err := json.Unmarshal(line, &a); err != nil {
			c.t.Fatalf("%s: not an answer: %v: %.300s", c.Name, err, line)
		}
	case <-time.After(c.bound):
		c.t.Fatalf("%s does not answer", c.Name)
	}
	return a
}

// Ask gives an order and returns the answer.
func (c *Child[Order, Answer]) Ask(o Order) Answer {
	c.t.Helper()
	c.Send(o)
	return c.Receive()
}

// Kill ends the process with kill -9, and returns an error if something else has ended it.
func (c *Child[Order, Answer]) Kill() error {
	c.t.Helper()
	c.cmd.Process.Kill() // it may have ended
	c.Ended()
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s was not ended by kill -9: %v", c.Name, c.cmd.ProcessState)
	}
	return nil
}

// Ended waits until the process has ended. Answers that nobody took are lost.
func (c *Child[Order, Answer]) Ended() {
	c.t.Helper()
	for late := time.After(c.bound); ; {
		select {
		case <-c.lines:
		case <-c.ended:
			return
		case <-late:
			c.t.Fatalf("%s has not ended", c.Name)
		}
	}
}

// Hold stops the process with SIGSTOP. It returns when all of it stands still.
func (c *Child[Order, Answer]) Hold() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	c.UntilHeld()
}

// UntilHeld waits until the process stands still, whoever stopped it.
func (c *Child[Order, Answer]) UntilHeld() {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond) // the kernel has no way to call back
	defer tick.Stop()
	for late := time.After(c.bound); ; {
		held, now := c.Held()
		if held {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			c.t.Fatalf("after %v %s still does not stand still: %s", c.bound, c.Name, now)
		}
	}
}

// Held says whether all threads of the process stand still, or what the kernel says of one that does not.
func (c *Child[Order, Answer]) Held() (held bool, now string) {
	tasks := fmt.Sprintf("/proc/%d/task", c.Pid())
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false, err.Error()
	}
	for _, thread := range threads {
		b, err := os.ReadFile(tasks + "/" + thread.Name() + "/stat")
		if err != nil {
			return false, err.Error()
		}
		if _, rest, ok := strings.Cut(string(b), ") "); !ok || rest[0] != 'T' {
			return false, string(b)
		}
	}
	return true, ""
}

// Release lets a process that was stopped go on.
func (c *Child[Order, Answer]) Release() {
	c.t.Helper()
	c.signal(syscall.SIGCONT)
}

func (c *Child[Order, Answer]) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("%s: %v: %v", c.Name, s, err)
	}
}
