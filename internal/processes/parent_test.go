package processes_test

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
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// running is a child as its parent sees it.
type running struct {
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer // closed when the child has ended
	ended   chan struct{}
	said    saying
}

// saying is what a child has written to its standard error.
type saying struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// begin starts a child. It is killed when the test ends, at the latest.
func begin(t *testing.T, p place, name string) *running {
	t.Helper()
	where, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &running{t: t, name: name, cmd: exec.Command(os.Args[0], "-test.run=^$"), answers: make(chan answer, 1), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(where))
	c.cmd.Stderr = &c.said
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := kafkatest.StartProcess(c.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		defer close(c.answers)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var a answer
			if err := json.Unmarshal(line, &a); err != nil {
				a.Err = fmt.Sprintf("not an answer: %v: %.200s", err, line)
			}
			c.answers <- a
		}
		c.cmd.Wait() // that it was killed is what the test wanted
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", c.name, c.said.String())
		}
	})
	return c
}

// send gives an order; receive waits for its answer.
func (c *running) send(o order) {
	c.t.Helper()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Fatalf("%s takes no order: %v", c.name, err)
	}
}

func (c *running) receive() answer {
	c.t.Helper()
	select {
	case a, ok := <-c.answers:
		if !ok {
			c.t.Fatalf("%s has ended", c.name)
		}
		return a
	case <-time.After(bound):
		c.t.Fatalf("%s does not answer", c.name)
	}
	return answer{}
}

// ask gives an order and returns the answer, an error in it too.
func (c *running) ask(o order) answer {
	c.t.Helper()
	c.send(o)
	return c.receive()
}

// do gives an order that has to succeed.
func (c *running) do(o order) answer {
	c.t.Helper()
	a := c.ask(o)
	if a.Err != "" {
		c.t.Fatalf("%s: %+v: %s", c.name, o, a.Err)
	}
	return a
}

func (c *running) verb(mirror, verb string, topics ...string) answer {
	c.t.Helper()
	return c.do(order{Do: "verb", Mirror: mirror, Verb: verb, Topics: topics})
}

// until waits for one partition of the child's mirror, and returns how long that took.
func (c *running) until(what, topic string, partition int32, ok func(partitionStatus) bool) time.Duration {
	c.t.Helper()
	return eventually(c.t, fmt.Sprintf("%s: %s-%d %s", c.name, topic, partition, what), func() (bool, string) {
		a := c.do(order{Do: "status"})
		for _, p := range a.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return ok(p), print(p)
			}
		}
		return false, fmt.Sprintf("%v %v %s", a.Partitions, a.Troubles, a.Fenced)
	})
}

// untilState waits until a topic's partition 0 is in a state.
func (c *running) untilState(topic, state string) time.Duration {
	c.t.Helper()
	return c.until("is "+state, topic, 0, func(p partitionStatus) bool { return p.State == state })
}

// untilEnd waits until the copy of partition 0 ends at end, and is being mirrored.
func (c *running) untilEnd(topic string, end int64) {
	c.t.Helper()
	c.until(fmt.Sprintf("is copied up to %d", end), topic, 0, func(p partitionStatus) bool { return p.State == "MIRRORING" && p.End == end })
}

// untilDescribed waits until a topic's partition 0 is described so to this child, by whom it was reported, and returns that.
func (c *running) untilDescribed(m, topic, what string, ok func(describedPartition) bool) (found describedPartition) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s is described as %s", topic, what), func() (bool, string) {
		d := c.do(order{Do: "describe", Mirror: m}).Described
		for _, found = range d.Partitions {
			if found.Topic == topic && found.Partition == 0 && !found.Reported.IsZero() && ok(found) {
				return true, ""
			}
		}
		return false, d.Text
	})
	return found
}

// kill ends the child with kill -9.
func (c *running) kill() {
	c.t.Helper()
	select {
	case <-c.ended:
		return
	default:
	}
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Errorf("killing %s: %v", c.name, err)
	}
	for { // its reader may have an answer that nobody took
		select {
		case <-c.answers:
			continue
		case <-c.ended:
			return
		case <-time.After(bound):
			c.t.Errorf("%s was killed and has not ended", c.name)
			return
		}
	}
}

// hold stops the child with SIGSTOP. It returns when all of it stands still.
func (c *running) hold() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	c.untilHeld()
}

// untilHeld waits until the child stands still, whoever stopped it.
func (c *running) untilHeld() {
	c.t.Helper()
	eventually(c.t, c.name+" stands still", func() (bool, string) {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.cmd.Process.Pid))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, thread := range threads {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", c.cmd.Process.Pid, thread.Name()))
			if err != nil {
				return false, err.Error()
			}
			if _, rest, ok := strings.Cut(string(b), ") "); !ok || rest[0] != 'T' {
				return false, string(b)
			}
		}
		return true, ""
	})
}

// release lets a child that was stopped go on.
func (c *running) release() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}
