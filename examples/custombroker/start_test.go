package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/filestore"
)

// commandVariable makes the test binary the command itself; see TestAStartThatFailsSaysWhyInOneLine.
const commandVariable = "CUSTOMBROKER_TEST_COMMAND"

// TestAStartThatFailsSaysWhyInOneLine runs the command: whatever keeps it from starting, it prints one line with the cause and exits with 1.
func TestAStartThatFailsSaysWhyInOneLine(t *testing.T) {
	if os.Getenv(commandVariable) != "" {
		os.Args = append([]string{"custombroker"}, strings.Split(os.Getenv(commandVariable), "\n")...)
		main()
		os.Exit(0)
	}
	fake := startSource(t, "orders", "a")
	address := fake.ListenAddrs()[0]
	root := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	put(t, root, "a file", nil)

	held, err := OpenDestination(at("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, name := range []string{"states", "cluster"} {
		d, err := OpenDestination(at("damaged " + name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := filestore.Open(at("damaged "+name, "states"), filestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	put(t, at("damaged states", "states"), "log", []byte("not a log of records, but longer than its header"))
	put(t, at("damaged cluster"), "cluster", []byte("x"))

	for _, c := range []struct {
		name                   string
		dir, source, topic, is string
	}{
		{"a topic that is a path", at("new"), address, "../../x", `"../../x"`},
		{"an internal topic", at("new"), address, "__consumer_offsets", "internal topics"},
		{"no topic", at("new"), address, ",", "topic"},
		{"no source", at("new"), ",", "orders", "name at least one broker"},
		{"a source without a port that is a number", at("new"), "localhost:x", "orders", "unable to parse port"},
		{"a folder in a file", at("a file", "new"), address, "orders", "not a directory"},
		{"a folder that is a file", at("a file"), address, "orders", "not a directory"},
		{"a folder in /proc", "/proc/custombroker", address, "orders", "/proc"},
		{"a folder of another process", at("held"), address, "orders", "locked by another process"},
		{"damaged states", at("damaged states"), address, "orders", "log is damaged"},
		{"a damaged cluster id", at("damaged cluster"), address, "orders", "cluster is damaged"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAStartThatFailsSaysWhyInOneLine$")
		cmd.Env = append(os.Environ(), commandVariable+"="+strings.Join([]string{"-dir", c.dir, "-source", c.source, "-topic", c.topic}, "\n"))
		var out, complaint bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaint
		err := cmd.Run()
		said := complaint.String()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "custombroker: ") || !strings.Contains(said, c.is) {
			t.Errorf("%s: %v, not one line with %q and exit 1:\n%s%s", c.name, err, c.is, out.String(), said)
		}
	}
}
