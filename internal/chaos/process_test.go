package chaos_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// The orders and answers of testdata/mirrorprocess.

type setup struct {
	Dir, States, Dropped, Events string
	Seeds                        []string
	Mirror                       string
}

type order struct {
	Do        string
	Topics    []string        `json:",omitempty"`
	Topic     string          `json:",omitempty"`
	Partition int32           `json:",omitempty"`
	Plan      json.RawMessage `json:",omitempty"`
	Batch     []byte          `json:",omitempty"`
	Bytes     uint64          `json:",omitempty"`
}

type answer struct {
	Err        string
	Fenced     string
	Partitions []mirror.PartitionStatus
	Troubles   map[string]string
	Plan       json.RawMessage
	Text       string
	Results    []result
	Offset     int64
}

type result struct {
	mirror.FailoverResult
	Err string
}

type told struct {
	Time      time.Time
	Kind      string
	Topic     string
	Partition int32
	Text      string
	From, To  int64
}

// buildProcess builds the mirror's process: examples/custombroker with another main.
func buildProcess(t *testing.T, folder string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "examples", "custombroker", "main.go"): filepath.Join(root, "internal", "chaos", "testdata", "mirrorprocess", "main.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	file, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "mirrorprocess")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", program, "../../examples/custombroker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// process is a mirror's process as the test sees it.
type process struct {
	setup
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer // closed when the process has ended
	ended   chan struct{}

	mu   sync.Mutex
	said strings.Builder // on its standard error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

// begin starts a process and waits until its mirror is open. It is killed when the test ends, at the latest.
func begin(t *testing.T, program, name string, s setup) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{setup: s, t: t, name: name, cmd: exec.Command(program, string(text)), answers: make(chan answer, 1), ended: make(chan struct{})}
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := kafkatest.StartProcess(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		defer close(p.answers)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var a answer
			if err := json.Unmarshal(line, &a); err != nil {
				a.Err = fmt.Sprintf("not an answer: %v: %.300s", err, line)
			}
			p.answers <- a
		}
		p.cmd.Wait() // how it ended is asked of its state
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() && p.said.Len() > 0 {
			t.Logf("%s said:\n%s", p.name, p.said.String())
		}
	})
	if a := p.receive(); a.Err != "" {
		t.Fatalf("%s does not begin: %s", name, a.Err)
	}
	return p
}

func (p *process) receive() answer {
	p.t.Helper()
	select {
	case a, ok := <-p.answers:
		if !ok {
			p.t.Fatalf("%s has ended: %v; it said: %s", p.name, p.cmd.ProcessState, p.said.String())
		}
		return a
	case <-time.After(bound):
		p.t.Fatalf("%s does not answer", p.name)
	}
	return answer{}
}

// ask gives an order and returns the answer, an error in it too.
func (p *process) ask(o order) answer {
	p.t.Helper()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		p.t.Fatalf("%s takes no order: %v", p.name, err)
	}
	return p.receive()
}

// do gives an order that has to succeed.
func (p *process) do(o order) answer {
	p.t.Helper()
	a := p.ask(o)
	if a.Err != "" {
		p.t.Fatalf("%s: %s: %s", p.name, o.Do, a.Err)
	}
	return a
}

// kill ends the process with kill -9, and returns an error if something else has ended it.
func (p *process) kill() error {
	p.cmd.Process.Kill()
	<-p.ended
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s was not ended by kill -9: %v", p.name, p.cmd.ProcessState)
	}
	return nil
}

// hold stops the process, and returns when the kernel says that it stands.
func (p *process) hold() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, p.name+" stands still", func() (bool, string) {
		s := p.kernelState()
		return s == "T", s
	})
}

// kernelState is the letter that the kernel has for what a process does: T is stopped.
func (p *process) kernelState() string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}

func (p *process) release() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// close ends the process in order.
func (p *process) close() error {
	a := p.ask(order{Do: "close"})
	<-p.ended
	if a.Err != "" {
		return errors.New(a.Err)
	}
	return nil
}

// readEvents reads what the mirror has told so far, in all its processes.
func readEvents(path string) (all []told, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var e told
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("event %.200s: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// eventually asks until done, with short pauses: neither brokers nor another process can call back.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := done()
		if ok {
			return
		}
		if time.Since(began) > bound {
			t.Fatalf("after %v still not: %s; %s", bound, what, now)
		}
		<-tick.C
	}
}

// TestTheProcessFitsTheBroker: the mirror's process is built with what examples/custombroker is now, and refuses a setup that it cannot read.
func TestTheProcessFitsTheBroker(t *testing.T) {
	program := buildProcess(t, t.TempDir())
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err == nil || !strings.Contains(string(out), "one argument is needed") {
		t.Errorf("without a setup it ends with %v and says %s", err, out)
	}
}
