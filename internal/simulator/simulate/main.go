// Command simulate plays seeds of the simulator, or one script.
//
//	go run ./internal/simulator/simulate -from 1 -seeds 2000
//	go run ./internal/simulator/simulate -seed 4711 -v
//	go run ./internal/simulator/simulate -seed 4711 -shrink > found.txt
//	go run ./internal/simulator/simulate -script found.txt -v
//
// It prints a line for each seed that breaks a rule, "seed N step K: RULE (SOURCE): what", and last "simulated hours: N, faults: N, violations: N". Exit 1 on a violation.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/clustermirror/clustermirror/internal/simulator"
)

func main() {
	from := flag.Uint64("from", 1, "first seed")
	seeds := flag.Int("seeds", 100, "how many seeds")
	long := flag.Duration("for", 0, "no seed is begun after it; with -seeds 0 as many as fit in")
	stop := flag.Bool("stop", false, "at the first violation")
	one := flag.Uint64("seed", 0, "play this seed only")
	file := flag.String("script", "", "play this script only")
	verbose := flag.Bool("v", false, "print the transcript")
	shrink := flag.Bool("shrink", false, "print the shortest script that breaks the same rule")
	table := flag.Bool("table", false, "print what was covered")
	flag.Parse()
	os.Exit(run(*from, *seeds, *long, *stop, *one, *file, *verbose, *shrink, *table))
}

func run(from uint64, seeds int, long time.Duration, stop bool, one uint64, file string, verbose, shrink, table bool) int {
	if one != 0 || file != "" {
		return single(one, file, verbose, shrink)
	}
	res := simulator.Run(simulator.Options{From: from, Seeds: seeds, For: long, Stop: stop}, func(f simulator.Failure) { fmt.Println(f) })
	if table {
		fmt.Print(res.Stats.Table())
	}
	fmt.Print(res.Summary())
	if res.Violations+res.Wrong > 0 {
		return 1
	}
	return 0
}

func single(seed uint64, file string, verbose, shrink bool) int {
	var out simulator.Outcome
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		script, err := simulator.ParseScript(string(text))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		out = simulator.Play(script, verbose)
	} else {
		out = simulator.Seed(seed, verbose)
	}
	if verbose {
		fmt.Print(out.Transcript)
	}
	if shrink && out.Violation != nil {
		small := simulator.Shrink(out.Script, out.Violation.Rule)
		fmt.Print(small)
		out = simulator.Play(small, false)
	}
	fmt.Fprintln(os.Stderr, simulator.Failure{Seed: seed, Outcome: out})
	if out.Violation != nil || out.Err != nil {
		return 1
	}
	return 0
}
