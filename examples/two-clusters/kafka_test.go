package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRealKafkaWholeRun: the command as a person runs it. It says OK with figures, ends as the README shows, and leaves nothing.
func TestRealKafkaWholeRun(t *testing.T) {
	kafkatest.Require(t)
	c := child(t)
	begun := time.Now()
	status := c.until("", nil)
	t.Logf("%.0f s", time.Since(begun).Seconds())
	last := regexp.MustCompile(`\nOK: \d+ records, failover in [\d.]+ s, home again in [\d.]+ s, \d+ read twice, \d+ given up into the sink, in \d+ s\n$`)
	if status != 0 || !last.MatchString(c.out.String()) || strings.Contains(c.out.String(), "\n  NO   ") || c.err.Len() > 0 {
		t.Errorf("exit status %d", status)
	}
	if left := c.folders(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	c.nothingLeft(0)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "\n$ go run ./examples/two-clusters\n")
	shown, _, ok := strings.Cut(rest, "\n```\n")
	numbers := regexp.MustCompile(`[\d.]+`)
	for _, line := range strings.Split(shown, "\n") {
		if line != "…" && !strings.Contains(numbers.ReplaceAllString(c.out.String(), "#"), numbers.ReplaceAllString(line, "#")+"\n") || !ok {
			t.Errorf("README.md shows %q, which was not printed", line)
		}
	}
}

// all says that every break and every moment is tried; otherwise one of a kind is.
func all() bool { return os.Getenv("CLUSTERMIRROR_FAULTS") == "all" }

// TestRealKafkaBreaksAreSeen: each thing that is spoilt makes a check say no, and the command ends with 1.
func TestRealKafkaBreaksAreSeen(t *testing.T) {
	kafkatest.Require(t)
	for how, says := range map[string]string{
		"byte":    "  NO   what the first mirror copied is, on every disk of the west",
		"missing": "  NO   what the first mirror copied is, on every disk of the west",
		"lost":    "  NO   no acknowledged record is lost",
		"skip":    "  NO   after the failover the group went on exactly where it was moved to",
	} {
		if how != "byte" && how != "lost" && !all() {
			continue
		}
		t.Run(how, func(t *testing.T) {
			c := child(t, "-brokers", "1", "-failover-only", "-break", how)
			if status := c.until("", nil); status != 1 || !strings.Contains(c.out.String(), says) || strings.Contains(c.out.String(), "\nOK:") || !strings.HasPrefix(c.err.String(), "FAILED: ") {
				t.Errorf("exit status %d, want 1 with %q", status, says)
			}
			c.nothingLeft(0)
		})
	}
}

// TestRealKafkaInterruptedRunsLeaveNothing: whenever ctrl-C or SIGTERM comes, and when the command or its parent is killed.
func TestRealKafkaInterruptedRunsLeaveNothing(t *testing.T) {
	kafkatest.Require(t)
	for _, x := range []struct {
		moment string
		how    syscall.Signal
	}{
		{"── 1/", syscall.SIGTERM},
		{"both clusters start", syscall.SIGINT},
		{"kafka-mirror run", syscall.SIGINT},
		{"what will be done: stop", syscall.SIGTERM},
	} {
		if x.moment != "kafka-mirror run" && !all() {
			continue
		}
		t.Run(x.moment, func(t *testing.T) {
			c := child(t, "-brokers", "1", "-failover-only")
			status := c.until(x.moment, func() { c.signal(x.how) })
			if status != 128+int(x.how) || !strings.Contains(c.err.String(), "interrupted") {
				t.Errorf("exit status %d", status)
			}
			c.nothingLeft(0)
			if left := c.folders(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		c := child(t, "-brokers", "1", "-failover-only")
		c.until("MIRRORING: 2 topics", func() {
			if n := len(c.left()); n < 4 { // the command, two brokers, a node
				t.Errorf("%d processes are found while it runs", n)
			}
			c.signal(syscall.SIGKILL)
		})
		c.nothingLeft(10 * time.Second)
		if len(c.folders()) != 1 {
			t.Errorf("%q", c.folders())
		}
		// Another run removes the folder.
		again := child(t)
		again.tmp = c.tmp
		again.cmd.Env = append(again.cmd.Env, "TMPDIR="+c.tmp, "PATH=", "JAVA_HOME=")
		again.until("", nil)
		if left := c.folders(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	if !all() {
		return
	}
	t.Run("its parent is killed", func(t *testing.T) {
		c := child(t)
		c.cmd.Path, c.cmd.Args = shell(t), []string{"sh", "-c", `"$0" -brokers 1 & wait`, os.Args[0]}
		c.until("both clusters start", func() { c.signal(syscall.SIGKILL) })
		c.nothingLeft(20 * time.Second)
		if left := c.folders(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func (c *childRun) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

func shell(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
