// Command seeded puts known bugs into the pure code, one at a time, and shows how many seeds the simulator needs to find each.
//
//	go run ./internal/simulator/seeded                      # every bug, in three ranges of 2,000 seeds
//	go run ./internal/simulator/seeded -only stale -v       # those whose name has this in it, with the line that the simulator prints
//	go run ./internal/simulator/seeded -ranges 1 -seeds 200
//
// A bug is a patch under internal/simulator/testdata/bugs, with a line "bug:" and a line "why:" in front of the diff. It is applied to a copy of one file while the go command compiles the simulator.
// The first row is the code as it is, the next ones are the controls of testdata/controls, which change the course of every run and break nothing: they must pass all seeds of a range, or nothing that is
// found in that range counts as a bug's. A "?" stands where a range ended without a rule that speaks: the program crashed, or the simulator contradicted itself; that is no find.
//
// The last line is "bugs: N, found: N, ranges: N, seeds in each: N"; found is what was found in every range. The exit status is 1 if a bug was not, if a patch no longer applies, or if the code as it is or
// a control has a violation.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

// apart is how far the ranges lie from each other.
const apart = 100_000

func main() {
	ranges := flag.Int("ranges", 3, "how many ranges of seeds")
	seeds := flag.Int("seeds", 2000, "how many seeds in a range")
	only := flag.String("only", "", "only bugs whose file name contains this")
	verbose := flag.Bool("v", false, "print the simulator's lines")
	flag.Parse()
	if *ranges < 1 || *seeds < 1 || *seeds > apart || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "seeded: go list -m:", err)
		os.Exit(1)
	}
	root := strings.TrimSpace(string(out))
	h := overlay.Hunt{Builder: overlay.Builder{Root: root}, Command: "./internal/simulator/simulate", Seeds: *seeds}
	for i := range *ranges {
		h.From = append(h.From, uint64(i*apart)+1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, h, filepath.Join(root, "internal", "simulator", "testdata"), *only, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "seeded:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run hunts the bugs of data/bugs beside the controls of data/controls.
func run(ctx context.Context, out io.Writer, h overlay.Hunt, data, only string, verbose bool) (ok bool, err error) {
	controls, err := overlay.Read(filepath.Join(data, "controls"))
	if err != nil {
		return false, err
	}
	bugs, err := overlay.Read(filepath.Join(data, "bugs"))
	if err != nil {
		return false, err
	}
	bugs = slices.DeleteFunc(bugs, func(p *overlay.Patch) bool { return !strings.Contains(p.Name, only) })
	if len(bugs) == 0 {
		return false, fmt.Errorf("no patch in %s has %q in its name", data, only)
	}
	for _, p := range bugs {
		if p.Header["bug"] == "" || p.Header["why"] == "" {
			return false, fmt.Errorf("%s needs a line \"bug: …\" and a line \"why: …\" in front of the diff", p.Name)
		}
	}
	t := table{out: out, h: h, verbose: verbose, in: make([]int, len(h.From))}
	t.head()
	ok = true
	t.bases = h.Run(ctx, true, append([]*overlay.Patch{nil}, controls...), nil)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	for _, f := range t.bases {
		ok = t.harmless(f) && ok
	}
	h.Run(ctx, false, bugs, func(f overlay.Found) { ok = t.bug(f) && ok })
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	t.foot()
	return ok, nil
}
