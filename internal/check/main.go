// Command check is the project's test command: it runs go test on all packages, shows what `go test` hides, and is red when a test failed, was lost, or did not run.
//
//	go run ./internal/check            # all packages
//	go run ./internal/check ./mirror   # some; only their test ids are compared
//	go run ./internal/check -update    # all, and then testdata/tests.txt is rewritten
//	go run ./internal/check -cover     # instead: the share of the pure packages' statements that their own tests run; exit 1 if one is below 95 %
//
// Lines that a passing test prints with one of the prefixes "seed:", "table:", "kafka:" are shown, a failed test's output is shown in full, and a skipped one's too.
// The last line is "N passed, N failed, N skipped": the tests without sub-tests, sub-tests included.
//
// The exit status is 1 on a failure (of a build too), when no test ran, on a skip under CLUSTERMIRROR_KAFKA=required or for another reason than Kafka's absence, and when a top-level test that testdata/tests.txt names is gone.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	update := flag.Bool("update", false, "rewrite testdata/tests.txt after a run of all packages without a failure")
	timeout := flag.String("timeout", "30m", "of one package, waiting for its turn on Kafka included")
	coverage := flag.Bool("cover", false, "print which share of the pure packages' statements their own tests run")
	flag.Parse()
	var green bool
	var err error
	if *coverage {
		var root, module string
		if root, module, err = findModule(); err == nil {
			green, err = cover(os.Stdout, root, module, covered, leastCoverage)
		}
	} else {
		green, err = check(os.Stdout, *update, *timeout, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
	}
	if err != nil || !green {
		os.Exit(1)
	}
}

func check(out io.Writer, update bool, timeout string, packages []string) (green bool, err error) {
	root, module, err := findModule()
	if err != nil {
		return false, err
	}
	all := len(packages) == 0
	if all {
		packages = []string{"./..."}
	} else if update {
		return false, errors.New("-update needs a run of all packages")
	}
	ids, err := readIDs(filepath.Join(root, "testdata", "tests.txt"))
	if err != nil {
		return false, err
	}
	args := append([]string{"test", "-json", "-count=1", "-timeout=" + timeout}, packages...)
	cmd := exec.Command("go", args...)
	if all {
		cmd.Dir = root
	}
	cmd.Stderr = out
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	run := newRun(out, module)
	if err := run.read(pipe); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return false, err
	}
	status := cmd.Wait()
	if update && status == nil {
		if err := os.WriteFile(filepath.Join(root, "testdata", "tests.txt"), run.formatIDs(), 0o644); err != nil {
			return false, err
		}
		ids = nil
	}
	return run.finish(policy{ids: ids, allPackages: all, noSkips: os.Getenv("CLUSTERMIRROR_KAFKA") == "required", status: status}), nil
}

func findModule() (root, module string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\n{{.Path}}").Output()
	if err != nil {
		return "", "", fmt.Errorf("go list -m: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || lines[0] == "" {
		return "", "", fmt.Errorf("go list -m: unexpected answer %q: run inside the module", out)
	}
	return lines[0], lines[1], nil
}

// readIDs reads a list as formatIDs writes it. No file is an empty list.
func readIDs(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for line := range bytes.Lines(b) {
		if s := strings.TrimSpace(string(line)); s != "" && s[0] != '#' {
			ids = append(ids, s)
		}
	}
	return ids, nil
}
