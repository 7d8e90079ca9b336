// Command seeded puts known bugs into the pure code, one at a time, and shows how many seeds the simulator needs to find each.
//
//	go run ./internal/simulator/seeded                      # every bug, in three ranges of 2,000 seeds
//	go run ./internal/simulator/seeded -only stale -v       # those whose name has this in it, with the line that the simulator prints
//	go run ./internal/simulator/seeded -ranges 1 -seeds 200
//
// A bug is a patch under internal/simulator/testdata/bugs, with a line "bug:" and a line "why:" in front of the diff. It is applied to a copy of one file while the go command compiles the simulator.
// The first row is the code as it is, the next ones are the controls of testdata/controls, which change the course of every run and break nothing: they must pass all of these seeds, or nothing that is
// found is known to be a bug's. The exit status is 1 if they do not, if a bug is not found in one of the ranges, or if a patch no longer applies.
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
	data := filepath.Join(root, "internal", "simulator", "testdata")
	controls, err := overlay.Read(filepath.Join(data, "controls"))
	ok := false
	if err == nil {
		ok, err = run(ctx, os.Stdout, h, controls, filepath.Join(data, "bugs"), *only, *verbose)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "seeded:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, h overlay.Hunt, controls []*overlay.Patch, dir, only string, verbose bool) (ok bool, err error) {
	patches, err := overlay.Read(dir)
	if err != nil {
		return false, err
	}
	patches = slices.DeleteFunc(patches, func(p *overlay.Patch) bool { return !strings.Contains(p.Name, only) })
	if len(patches) == 0 {
		return false, fmt.Errorf("no patch in %s has %q in its name", dir, only)
	}
	for _, p := range patches {
		if p.Header["bug"] == "" || p.Header["why"] == "" {
			return false, fmt.Errorf("%s needs a line \"bug: …\" and a line \"why: …\" in front of the diff", p.Name)
		}
	}
	found, ok := 0, true
	fmt.Fprintf(out, "%-56s %-*s  %s\n", "bug", 7*len(h.From), "seeds needed", "found by")
	none := h.Run(ctx, append([]*overlay.Patch{nil}, controls...), nil)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	for _, f := range none {
		ok = harmless(out, f, len(h.From), verbose) && ok
	}
	base := none[0]
	if i := slices.IndexFunc(none, func(f overlay.Found) bool { return !f.None() }); i >= 0 {
		base = none[i]
	}
	h.Run(ctx, patches, func(f overlay.Found) {
		verdict := row(out, f, base, len(h.From), verbose)
		ok = ok && verdict
		if verdict {
			found++
		}
	})
	fmt.Fprintf(out, "bugs: %d, found: %d, ranges: %d, seeds in each: %d\n", len(patches), found, len(h.From), h.Seeds)
	return ok, ctx.Err()
}

// row prints what became of one patch, beside what became of the code as it is, and says whether that is good.
func row(out io.Writer, f, base overlay.Found, ranges int, verbose bool) (ok bool) {
	return line(out, f, f.Besides(base), ranges, verbose)
}

// harmless prints what became of the code as it is, or of a control: nothing must be found.
func harmless(out io.Writer, f overlay.Found, ranges int, verbose bool) bool {
	return line(out, f, f.None(), ranges, verbose)
}

func line(out io.Writer, f overlay.Found, ok bool, ranges int, verbose bool) bool {
	name := "(the code as it is)"
	if f.Patch != nil {
		name = strings.TrimSuffix(f.Patch.Name, ".patch")
	}
	var needed, rules []string
	for _, a := range f.Answers {
		says := "-"
		switch {
		case a.Seeds > 0:
			says = fmt.Sprint(a.Seeds)
		case a.Rule != "":
			says = "?"
		}
		needed = append(needed, fmt.Sprintf("%6s", says))
		rule := a.Rule
		if a.Source != "" {
			rule += " (" + a.Source + ")"
		}
		if rule != "" && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	verdict := strings.Join(rules, "; ")
	if f.Err != nil {
		verdict = f.Err.Error()
	}
	switch {
	case f.None() && ok:
		verdict = "nothing, as it should be"
	case !ok:
		verdict = strings.TrimSpace("NOT AS IT SHOULD BE " + verdict)
	}
	fmt.Fprintf(out, "%-56s %-*s  %s\n", name, 7*ranges, strings.Join(needed, " "), verdict)
	if verbose {
		for _, a := range f.Answers {
			if a.Line != "" {
				fmt.Fprintln(out, "    "+a.Line)
			}
		}
	}
	return ok
}
