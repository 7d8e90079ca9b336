// Command long runs the long forms of what `go test` and `go run ./internal/check` run briefly, one part after the other, for a time that is asked for.
//
//	go run ./internal/long -part chaos -for 30m              # one part
//	go run ./internal/long -part sim -for 60m -seed 200000   # from this seed on
//	go run ./internal/long -part all -for 8h                 # all parts, the time shared equally by those that take what they are given
//
// The parts and the commands that they run:
//
//	sim      the simulator, seed after seed               go run ./internal/simulator/simulate -from SEED -seeds 0 -for TIME
//	chaos    faults against real Apache Kafka             go test ./internal/chaos -run ^TestChaos$ -chaos.for TIME -chaos.seed SEED
//	fuzz     the module's fuzz targets in turn            go run ./internal/fuzzrun -for TIME
//	mutants  generated mutants of the pure packages       go run ./internal/mutate -for TIME -seed SEED
//	bugs     known bugs put back, for the simulator       go run ./internal/simulator/seeded
//
// bugs prints its table and is done when it is done, whatever -for says; it has failed after an hour. fuzz needs a second for each target, mutants some minutes: it builds first.
// Output is shown as it comes. The last lines, one for each part, are rows for the table of long runs in docs/track-record.md. The exit status is 1 when a part failed. Ctrl-C ends
// what was started, then prints the rows so far.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	names := append(slices.Clone(order), "all")
	part := flag.String("part", "", "which part: "+strings.Join(names, ", "))
	long := flag.Duration("for", time.Hour, "how long; with all: shared by the parts but bugs")
	seed := flag.Uint64("seed", 0, "the first seed of sim, the seed of chaos and mutants (default: from the clock)")
	flag.Parse()
	if !slices.Contains(names, *part) || *long <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "long: -part is needed, one of", strings.Join(names, ", "))
		flag.Usage()
		os.Exit(2)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().Unix()) // seconds leave room behind each seed: a run that counts on does not meet the next one's soon
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen := []string{*part}
	if *part == "all" {
		chosen = order
	}
	share := *long
	if *part == "all" {
		share = each(*long)
	}
	ok := true
	var rows []string
	for _, name := range chosen {
		if ctx.Err() != nil {
			ok = false
			break
		}
		r := &run{name: name, seed: *seed, long: share, out: os.Stdout, began: time.Now()}
		err := parts[name](ctx, r)
		ok = ok && err == nil
		rows = append(rows, r.row(err))
	}
	for _, row := range rows {
		fmt.Println(row)
	}
	if !ok {
		os.Exit(1)
	}
}

// each is the share of a part that takes what it is given.
func each(long time.Duration) time.Duration {
	sharers := slices.DeleteFunc(slices.Clone(order), func(part string) bool { return !timed(part) })
	return long / time.Duration(len(sharers))
}
