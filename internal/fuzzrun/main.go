// Command fuzzrun runs the module's fuzz targets in turn, each for a part of the time.
//
//	go run ./internal/fuzzrun -for 30s -targets 3   # three targets for ten seconds each, other ones each day
//	go run ./internal/fuzzrun -for 2h               # all targets
//	go run ./internal/fuzzrun -for 10m -match batch # those whose package or name matches
//	go run ./internal/fuzzrun -list                 # their names
//
// The targets are found in the tests' files, so a new one runs without being named anywhere. The time to compile is not part of -for. Inputs that reach new code stay in
// Go's cache, from where the next run goes on. An input that fails is written to testdata/fuzz of the target's package, as go test does: together with the repair it is
// the regression test. The last line is a summary; the exit status is 1 on a failure, and when no target ran.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
	"time"
)

// options are the command's.
type options struct {
	dir      string // of the module
	match    *regexp.Regexp
	total    time.Duration
	targets  int // of how many at most; 0 is all
	day      int // says which they are
	parallel int // processes of one target; 0 is go test's own choice
}

func main() {
	total := flag.Duration("for", 5*time.Minute, "the time of all targets together")
	targets := flag.Int("targets", 0, "how many targets; 0 for all")
	day := flag.Int("day", int(time.Now().Unix()/(24*60*60)), "with -targets: which; the days since 1970 unless given")
	match := flag.String("match", "", "only targets whose package and name, with a space between, match this expression")
	parallel := flag.Int("parallel", 0, "processes of one target; 0 for one on each core")
	list := flag.Bool("list", false, "list the targets and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	expression, err := regexp.Compile(*match)
	if err == nil {
		o := options{dir: ".", match: expression, total: *total, targets: *targets, day: *day, parallel: *parallel}
		if *list {
			err = show(ctx, os.Stdout, o)
		} else {
			err = fuzz(ctx, os.Stdout, o)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzzrun:", err)
		os.Exit(1)
	}
}

func show(ctx context.Context, out io.Writer, o options) error {
	all, err := targets(ctx, o.dir)
	for _, t := range matching(all, o.match) {
		fmt.Fprintln(out, t)
	}
	return err
}

var errFailed = errors.New("a target failed; its input is in testdata/fuzz of its package")

func fuzz(ctx context.Context, out io.Writer, o options) error {
	all, err := targets(ctx, o.dir)
	if err != nil {
		return err
	}
	all = matching(all, o.match)
	if len(all) == 0 {
		return errors.New("no fuzz target matches")
	}
	chosen := choose(all, o.targets, o.day)
	each := o.total / time.Duration(len(chosen))
	if each < time.Second {
		return fmt.Errorf("%v for %d targets is less than a second for each: give more with -for, or fewer with -targets", o.total, len(chosen))
	}
	if len(chosen) < len(all) {
		fmt.Fprintf(out, "seed: day %d, %d of %d targets; again with: go run ./internal/fuzzrun -for %v -targets %d -day %d\n", o.day, len(chosen), len(all), o.total, len(chosen), o.day)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "target\texecutions\tnew inputs\tresult")
	var executions, inputs, failures int64
	for _, t := range chosen {
		fmt.Fprintf(out, "%s for %v\n", t, each.Round(time.Second))
		r, err := run(ctx, out, o.dir, t, each, o.parallel)
		if err != nil {
			return err
		}
		verdict := "ok"
		if r.failed {
			verdict = "FAILED"
			failures++
		}
		executions, inputs = executions+r.executions, inputs+r.inputs
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", t, r.executions, r.inputs, verdict)
	}
	table.Flush()
	fmt.Fprintf(out, "fuzz targets: %d of %d, executions: %d, new inputs: %d, failures: %d\n", len(chosen), len(all), executions, inputs, failures)
	if failures > 0 {
		return errFailed
	}
	return nil
}
