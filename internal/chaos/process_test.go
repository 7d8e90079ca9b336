package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/chaos/talk"
	"github.com/clustermirror/clustermirror/internal/kafkatest/children"
)

type (
	setup  = talk.Setup
	order  = talk.Order
	answer = talk.Answer
	result = talk.Result
	told   = talk.Told
)

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
	*children.Child[order, answer]
	setup
	t *testing.T
}

// begin starts a process and waits until its mirror is open.
func begin(t *testing.T, program, name string, s setup) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{children.Begin[order, answer](t, name, bound, exec.Command(program, string(text))), s, t}
	if a := p.Receive(); a.Err != "" {
		t.Fatalf("%s does not begin: %s", name, a.Err)
	}
	return p
}

// do gives an order that has to succeed.
func (p *process) do(o order) answer {
	p.t.Helper()
	a := p.Ask(o)
	if a.Err != "" {
		p.t.Fatalf("%s: %s: %s", p.Name, o.Do, a.Err)
	}
	return a
}

// close ends the process in order.
func (p *process) close() error {
	a := p.Ask(order{Do: "close"})
	p.Ended()
	if a.Err != "" {
		return errors.New(a.Err)
	}
	return nil
}

// readEvents reads what the mirror has told, in all its processes, behind the first from bytes of the file: whole lines, since one may be being written. size is how many bytes they are.
func readEvents(path string, from int64) (all []told, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, from, math.MaxInt64-from))
	if err != nil {
		return nil, 0, err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	for line := range bytes.Lines(b) {
		var e told
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("event %.200s: %w", line, err)
		}
		all = append(all, e)
	}
	return all, int64(len(b)), nil
}

// within waits for something that calls back, for no longer than bound.
func within(t *testing.T, what string, wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(bound):
		t.Fatalf("after %v still not: %s", bound, what)
	}
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
