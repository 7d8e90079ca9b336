package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// result is what became of one target.
type result struct {
	executions int64 // also of inputs that were known before
	inputs     int64 // new ones that reached code which no input did before
	failed     bool
}

// progress is go test's line on how far it is.
var progress = regexp.MustCompile(`^fuzz: elapsed: .*, execs: ([0-9]+) .*new interesting: ([0-9]+) `)

// patience is how long a target may take beyond its time: to compile, to run what is in the cache, to make a failing input small.
const patience = 10 * time.Minute

// minimize is how long go test may make one input smaller. Its own minute would be all of a short turn, since it does so with each input that reaches new code.
const minimize = time.Second

// run fuzzes one target. What go test says is shown when the target failed; it names the input and prints it.
// An error is that go test could not be run or was interrupted.
func run(ctx context.Context, out io.Writer, dir string, t target, each time.Duration, parallel int) (result, error) {
	bounded, cancel := context.WithTimeout(ctx, each+patience)
	defer cancel()
	args := []string{"test", "-run=^$", "-fuzz=^" + t.name + "$", "-fuzztime=" + each.String(), "-fuzzminimizetime=" + minimize.String()}
	if parallel > 0 {
		args = append(args, "-parallel="+strconv.Itoa(parallel))
	}
	cmd := exec.CommandContext(bounded, "go", append(args, t.pkg)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	r := read(said)
	// A target that is not there is no failure to go test.
	if r.failed = err != nil || bytes.Contains(said, []byte("no fuzz tests to fuzz")); r.failed {
		fmt.Fprintf(out, "%s%s: %v\n", said, t, err)
	}
	return r, nil
}

// read takes the last numbers from what go test -fuzz printed.
func read(said []byte) (r result) {
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		if found := progress.FindStringSubmatch(lines.Text()); found != nil {
			r.executions, _ = strconv.ParseInt(found[1], 10, 64)
			r.inputs, _ = strconv.ParseInt(found[2], 10, 64)
		}
	}
	return r
}
