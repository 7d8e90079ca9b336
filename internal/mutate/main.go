// Command mutate makes small changes to the code of the pure packages, one at a time, and shows which of them no test notices.
//
//	go run ./internal/mutate                             # all pure packages, all mutants
//	go run ./internal/mutate -package internal/batch     # one package
//	go run ./internal/mutate -sample 300 -seed 7         # that many mutants of all, drawn by a seed
//	go run ./internal/mutate -for 10m                    # what can be tried in that time, in an order drawn by a seed
//	go run ./internal/mutate -simulator 300              # what the packages' own tests leave alive is tried in the simulator too, for that many seeds
//
// A mutant is one operator exchanged, one number off by one, one statement, return value, case or body of an if removed, a min for a max, a condition turned round. It counts only if it compiles.
// It is killed when a test of its own package turns red or does not come to an end, or when the simulator finds a violation. All mutants of a package are compiled into one test binary, around
// the code as it is, and an environment variable says which one is on: the build takes once what it would otherwise take a thousand times.
//
// internal/mutate/equivalent.txt lists mutants that change nothing that anybody could see, each with the reason. They are not counted; a line that no longer fits any mutant is an error.
//
// Survivors are printed as they are found, as diffs, and at the end a table. The exit status is 1 if less than four fifths are killed, in all together or, where all mutants are tried,
// in a package.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/layout"
)

// packages are those whose code is changed: what layout holds to be pure, so that a test is red each time or never, without the judges of simulated disasters, and the one that calls itself pure.
var packages = append(slices.DeleteFunc(slices.Clone(layout.Pure), func(pkg string) bool {
	return strings.HasPrefix(pkg, "internal/simulator/") || pkg == "internal/clienthistory"
}), "internal/metadatasync")

// options say what to try.
type options struct {
	root      string
	packages  []string
	sample    int // 0: all
	seed      uint64
	until     time.Time // zero: no bound
	simulator int       // seeds; 0: not
	least     int       // percent
}

func main() {
	pkg := flag.String("package", "", "only this package: its path inside the module")
	o := options{packages: packages}
	flag.IntVar(&o.sample, "sample", 0, "try only so many mutants, drawn by the seed")
	flag.Uint64Var(&o.seed, "seed", 1, "draws the sample, and the order if there is a time limit")
	long := flag.Duration("for", 0, "begin no further mutant after this time")
	flag.IntVar(&o.simulator, "simulator", 0, "try survivors in the simulator with so many seeds")
	flag.IntVar(&o.least, "least", 80, "percent that must be killed")
	flag.Parse()
	if *pkg != "" {
		o.packages = []string{strings.Trim(strings.TrimPrefix(*pkg, "./"), "/")}
	}
	if *long > 0 {
		o.until = time.Now().Add(*long)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate: go list -m:", err)
		os.Exit(1)
	}
	o.root = strings.TrimSpace(string(out))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) (ok bool, err error) {
	equivalents, err := readEquivalents(filepath.Join(o.root, "internal", "mutate", "equivalent.txt"))
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	began := time.Now()
	var all []*mutated
	var chosen []*mutant
	next := 1
	for _, pkg := range o.packages {
		s, err := readSource(o.root, pkg)
		if err != nil {
			return false, err
		}
		m, err := mutate(s, next)
		if err != nil {
			return false, err
		}
		if len(m.mutants) > 0 {
			next = m.mutants[len(m.mutants)-1].number + 1
		}
		all = append(all, m)
		chosen = append(chosen, equivalents.without(m.mutants)...)
	}
	if err := equivalents.unused(o.packages); err != nil {
		return false, err
	}
	if o.sample > 0 || !o.until.IsZero() {
		fmt.Fprintln(out, "seed:", o.seed)
		rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		if o.sample > 0 {
			chosen = chosen[:min(o.sample, len(chosen))]
		}
	}
	fates, err := try(ctx, work, o, all, chosen, func(f fate) {
		if !f.killed() {
			printDiff(out, f.mutant)
		}
	})
	if err != nil {
		return false, err
	}
	ok = table(out, o, all, equivalents, fates)
	fmt.Fprintf(out, "%d mutants tried, %d not tried, in %v\n", len(fates), len(chosen)-len(fates), time.Since(began).Round(time.Second))
	return ok, ctx.Err()
}

// printDiff shows a mutant as a reader would look for it.
func printDiff(out io.Writer, m *mutant) {
	fmt.Fprintf(out, "ALIVE %s:%d: %s: %s → %s\n", m.file, m.line, m.function, m.from, m.to)
	for _, part := range []struct {
		sign  string
		lines []string
	}{{"-", m.before}, {"+", m.after}} {
		for i, l := range part.lines {
			if i == 3 {
				fmt.Fprintf(out, "  %s …\n", part.sign)
				break
			}
			fmt.Fprintf(out, "  %s %s\n", part.sign, strings.TrimSpace(l))
		}
	}
}

// count is a row of the table.
type count struct{ tried, tests, hung, simulator, alive int }

func (c *count) add(f fate) {
	c.tried++
	switch {
	case f.simulator:
		c.simulator++
	case f.hung:
		c.hung++
	case f.red:
		c.tests++
	default:
		c.alive++
	}
}

// percent is rounded down, so that 80 is not reached by rounding.
func (c *count) percent() int { return (c.tried - c.alive) * 100 / max(c.tried, 1) }

// table prints the counts and says whether enough are killed.
func table(out io.Writer, o options, all []*mutated, equivalents *equivalents, fates []fate) (ok bool) {
	whole := o.sample == 0 && o.until.IsZero() // a part of a package's mutants is too few to judge it by
	rows, total := map[string]*count{}, &count{}
	for _, f := range fates {
		if rows[f.mutant.pkg] == nil {
			rows[f.mutant.pkg] = &count{}
		}
		rows[f.mutant.pkg].add(f)
		total.add(f)
	}
	ok = total.percent() >= o.least
	fmt.Fprintf(out, "%-26s %8s %8s %8s %9s %8s %10s %7s\n", "package", "tried", "by tests", "hung", "simulator", "alive", "equivalent", "killed")
	for _, m := range all {
		c := rows[m.pkg]
		if c == nil {
			continue
		}
		say := ""
		if c.percent() < o.least && whole {
			ok, say = false, fmt.Sprintf("  below %d %%", o.least)
		}
		fmt.Fprintf(out, "%-26s %8d %8d %8d %9d %8d %10d %5d %%%s\n", m.pkg, c.tried, c.tests, c.hung, c.simulator, c.alive, equivalents.of(m.pkg), c.percent(), say)
	}
	fmt.Fprintf(out, "%-26s %8d %8d %8d %9d %8d %10d %5d %%\n", "all", total.tried, total.tests, total.hung, total.simulator, total.alive, equivalents.of(""), total.percent())
	return ok && total.tried > 0
}
