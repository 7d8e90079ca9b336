package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestMain makes the test binary the quickstart itself when it is run as a child.
func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART_CHILD") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is the quickstart as a command of its own; it ends with the test.
func child(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "QUICKSTART_CHILD=1")
	return cmd
}

// run runs the quickstart to its end.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := child(t, args...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// runUntil runs the quickstart until it has printed a line that matches, interrupts it as ctrl-C does, and returns all that it printed.
func runUntil(t *testing.T, line *regexp.Regexp, args ...string) (stdout string, code int) {
	t.Helper()
	cmd := child(t, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	seen := false
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if !seen && line.MatchString(lines.Text()) {
			seen = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if !seen {
		t.Fatalf("no line matched %s:\n%s%s", line, all.String(), complaints.String())
	}
	return all.String() + complaints.String(), cmd.ProcessState.ExitCode()
}

// golden compares with a file under testdata; -rewrite writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what was printed (-rewrite writes it anew):\n%s\nwant\n%s", path, got, want)
	}
}
