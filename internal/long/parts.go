package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// order is the order of the parts.
var order = []string{"sim", "chaos", "fuzz", "mutants", "bugs"}

// parts are what runs. Each returns when its time is over, when it is done, or when ctx ends.
var parts = map[string]func(ctx context.Context, r *run) error{
	"sim": func(ctx context.Context, r *run) error {
		const at = 2000
		for from := r.seed; ; from += at {
			if err := r.command(ctx, "go", "run", "./internal/simulator/simulate", "-from", fmt.Sprint(from), "-seeds", fmt.Sprint(at)); err != nil {
				return err
			}
			r.add(fmt.Sprintf("seeds: %d", at))
			r.sum(ctx, "violations:")
			if r.left() <= 0 {
				return ctx.Err()
			}
		}
	},
	"chaos": func(ctx context.Context, r *run) error {
		err := r.command(ctx, "go", "test", "./internal/chaos", "-count=1", "-v", "-run", "^TestChaos$", fmt.Sprintf("-timeout=%v", r.long+30*time.Minute),
			fmt.Sprintf("-chaos.for=%v", r.long), fmt.Sprintf("-chaos.seed=%d", r.seed))
		r.sum(ctx, "violations:")
		return err
	},
	"fuzz": func(ctx context.Context, r *run) error {
		fuzzers, err := findFuzzers(".")
		if err != nil {
			return err
		}
		if len(fuzzers) == 0 {
			return errors.New("there is no fuzzer in this module")
		}
		var failed []error
		for _, f := range fuzzers {
			err := r.command(ctx, "go", "test", f.pkg, "-run", "^$", "-fuzz", "^"+f.name+"$", fmt.Sprintf("-fuzztime=%v", (r.long/time.Duration(len(fuzzers))).Round(time.Second)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.add(fmt.Sprintf("fuzzers: 1, failed: %d", map[bool]int{true: 0, false: 1}[err == nil]))
			if execs := lastNumber(executions, r.lines); execs > 0 {
				r.add(fmt.Sprintf("executions: %d", execs))
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s of %s: %w", f.name, f.pkg, err)) // the others are worth their time
			}
		}
		return errors.Join(failed...)
	},
	"mutants": func(ctx context.Context, r *run) error { return r.bounded(ctx, "go", "run", "./internal/mutate") },
	"bugs": func(ctx context.Context, r *run) error {
		return r.bounded(ctx, "go", "run", "./internal/simulator/seeded")
	},
}

// executions is how `go test -fuzz` counts.
var executions = regexp.MustCompile(`execs: (\d+)`)

type fuzzer struct{ pkg, name string }

var fuzzFunction = regexp.MustCompile(`^func (Fuzz\w+)\(`)

// findFuzzers reads the test files below a folder, in the order of their paths.
func findFuzzers(root string) (all []fuzzer, err error) {
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name := entry.Name(); name == "testdata" || len(name) > 1 && name[0] == '.' {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if m := fuzzFunction.FindStringSubmatch(lines.Text()); m != nil {
				all = append(all, fuzzer{"./" + filepath.ToSlash(filepath.Dir(path)), m[1]})
			}
		}
		return nil
	})
	return slices.Compact(all), err
}

// bounded runs a command that ends by itself, for as long as there is time.
func (r *run) bounded(ctx context.Context, name string, args ...string) error {
	ctx, stop := context.WithDeadlineCause(ctx, r.began.Add(r.long), errors.New("the time was over before it was done"))
	defer stop()
	err := r.command(ctx, name, args...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.last()
	return err
}

// isCommand says whether a folder of this module is there, so that a part that is missing says so in one line.
func isCommand(args []string) error {
	for _, a := range args {
		if !strings.HasPrefix(a, "./") {
			continue
		}
		if _, err := os.Stat(a); err != nil {
			return fmt.Errorf("%s is not in this module, or this is not its root folder: %w", a, err)
		}
	}
	return nil
}

// start prepares a command that is ended as a whole, with what it has started itself.
func start(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	endAsGroup(cmd)
	return cmd
}
