package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
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
