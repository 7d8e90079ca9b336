package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary the demonstration itself when it is run as a child.
func TestMain(m *testing.M) {
	if os.Getenv("TWO_CLUSTERS_CHILD") != "" {
		main()
	}
	os.Exit(m.Run())
}

// childRun is a run of the demonstration as a command of its own, with a folder of its own for what is temporary.
type childRun struct {
	t   *testing.T
	cmd *exec.Cmd
	tmp string
	out bytes.Buffer
	err bytes.Buffer
}

func child(t *testing.T, args ...string) *childRun {
	t.Helper()
	c := &childRun{t: t, tmp: t.TempDir()}
	c.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	c.cmd.Env = append(os.Environ(), "TWO_CLUSTERS_CHILD=1", "TMPDIR="+c.tmp, "CLUSTERMIRROR_KAFKA=required")
	c.cmd.Stderr = &c.err
	c.cmd.WaitDelay = 10 * time.Second
	t.Cleanup(func() {
		for _, pid := range c.left() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("%v printed\n%s%s", args, c.out.String(), c.err.String())
		}
	})
	return c
}

// until runs it, does something as soon as a line has words in it, and returns the exit status. No words: nothing is done.
func (c *childRun) until(words string, then func()) int {
	c.t.Helper()
	pipe, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	seen := words == ""
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		c.out.WriteString(lines.Text() + "\n")
		if !seen && strings.Contains(lines.Text(), words) {
			seen = true
			then()
		}
	}
	if err := c.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		c.t.Fatal(err)
	}
	if !seen {
		c.t.Fatalf("no line had %q", words)
	}
	return c.cmd.ProcessState.ExitCode()
}

// left are the processes of the run that live: they have its temporary folder in their environment.
func (c *childRun) left() (pids []int) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("TMPDIR="+c.tmp+"\x00")) {
			pids = append(pids, atoi(c.t, filepath.Base(filepath.Dir(path))))
		}
	}
	return pids
}

// nothingLeft waits until no process of the run lives. The kernel ends those of a killed one a moment later.
func (c *childRun) nothingLeft(within time.Duration) {
	c.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		left := c.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("processes %v are left", left)
		}
	}
}

// folders are those that the run has left.
func (c *childRun) folders() []string {
	left, err := filepath.Glob(filepath.Join(c.tmp, "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	return left
}
