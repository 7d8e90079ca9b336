// Command bench starts real Kafka clusters and measures, in one run on one machine, a mirror beside its limit (a bare fetcher, which verifies every batch's checksum and keeps nothing) and beside
// what else copies topics: a plain copier of records over franz-go, and MirrorMaker 2. It prints ratios with their spread; absolute numbers belong to the machine.
//
//	go run ./internal/bench                         # all twelve cells, made for 25 minutes on two idle cores
//	go run ./internal/bench -quick                  # the three cells from which the goals are judged, with less data, made for 4 minutes
//	go run ./internal/bench -list                   # the cells' names: record sizes, codec, partitions, group of systems
//	go run ./internal/bench -cell 1KiB-zstd-8-all   # any of them by name
//	go run ./internal/bench -json FILE              # every single run besides, as JSON ("-": standard output)
//	go run ./internal/bench -profile FOLDER         # profiles of CPU and heap of each run, which cost it a little
//	go run ./internal/bench -memory                 # memory with 1,000 partitions and a slow log
//	go run ./internal/bench -link                   # one partition over a link with 100 ms round trip and 1 Gbit/s: see link.go
//	go run ./internal/bench -idle                   # 5,000 partitions over three brokers in which nothing happens: see idle.go
//	go run ./internal/bench -kraft all              # a joined KRaft cluster beside stock replication and MirrorMaker 2: see kraft.go
//
// Each run of a system is a process of its own. It is measured from its first byte to its last one (what comes before, such as the start of a Java process, counts for nobody; MirrorMaker 2 is
// besides not measured before it has used 20 seconds of CPU), so its CPU, its peak of resident memory and its allocations are that run's. The rounds are interleaved: each has every system once, and a
// ratio divides two runs of one round.
//
// A lag is the time from the moment in which a producer sends a batch to the one in which it survives the loss of the process that copies it; of a bare fetcher, to the one in which it is verified.
// Fetcher and system follow the same topic at the same time, at half of what producer, fetcher and system can do together.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "three cells with less data")
	names := flag.String("cell", "", "only these cells, by name, separated by commas")
	list := flag.Bool("list", false, "print the names of the cells")
	jsonFile := flag.String("json", "", `write every run as JSON to this file, "-" for standard output`)
	profiles := flag.String("profile", "", "a folder for profiles of CPU and heap of each measured process of ours (lag cells have none)")
	check := flag.Bool("check", false, "end with an error when a goal is missed")
	still := flag.Bool("idle", false, "measure what 5,000 idle partitions cost instead")
	link := flag.Bool("link", false, "measure one partition over a long link instead")
	memory := flag.Bool("memory", false, "measure memory with 1,000 partitions instead")
	memoryOf := flag.String("memory-of", "", "used by -memory for the measured process")
	ordered := flag.String("order", "", "used for measured processes")
	rounds := flag.Int("pairs", 5, "interleaved rounds of a cell from which goals are judged (others have 3 at most), or pairs of a row of -kraft")
	megabytes := flag.Int("mb", 1000, "megabytes of records in a topic, before compression")
	flag.Parse()
	full := extent{megabytes: *megabytes, rounds: *rounds, mirrorMaker: 2, atMost: 10 * time.Second, lagRounds: 3, saturate: 4 * time.Second, steady: 8 * time.Second}
	if *quick {
		full = extent{megabytes: min(1000, *megabytes), rounds: 3, mirrorMaker: 1, atMost: 8 * time.Second, lagRounds: 1, saturate: 3 * time.Second, steady: 8 * time.Second}
	}
	full.profiles = *profiles
	if *list {
		for _, c := range cells {
			fmt.Println(c.name())
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t := &program{ctx: ctx}
	err := t.do(func() {
		switch {
		case *ordered != "":
			obey(ctx, t, *ordered)
		case *memoryOf != "":
			measureSelf(ctx, t, strings.Split(*memoryOf, ","))
		case *still:
			measureIdle(ctx, t, *check)
		case *link:
			measureLink(ctx, t, full, *check)
		case *memory:
			measureMemory(ctx, t)
		case *kraftMode != "":
			measureKraft(ctx, t, full.rounds, *check)
		default:
			some, err := chosen(*names, *quick)
			if err != nil {
				t.Fatalf("%v", err)
			}
			measureCells(ctx, t, some, full, *jsonFile, *check)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
}
