package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// options are those of the command line.
type options struct {
	brokers      int // of each cluster; 0: as many as memory allows
	spoil        string
	keep         bool
	failoverOnly bool
}

// readOptions reads the command line. Its errors are one line that says how to mend it; flag.ErrHelp: the help was asked for, and printed.
func readOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("two-clusters", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is one line, not a page
	flags.Usage = func() {}
	flags.IntVar(&o.brokers, "brokers", 0, "`brokers` of each cluster, 1 or 3 (default: 3, or 1 where less than "+gibibytes(needed(3))+" of memory are free)")
	flags.StringVar(&o.spoil, "break", "", "spoil one thing, so that a check must fail: "+strings.Join(spoilers, ", "))
	flags.BoolVar(&o.keep, "keep", false, "keep the folder with the clusters' data and all logs, and say where it is")
	flags.BoolVar(&o.failoverOnly, "failover-only", false, "end after the failover: no failback")
	err := flags.Parse(args)
	switch {
	case err == flag.ErrHelp:
		fmt.Println("Usage: go run ./examples/two-clusters [-brokers 1] [-break WHAT] [-keep] [-failover-only]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w (-h lists the options)", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("what is %q? Options begin with a dash (-h lists them)", flags.Arg(0))
	case o.spoil != "" && !slices.Contains(spoilers, o.spoil):
		return o, fmt.Errorf("-break=%s is not known; it is one of: %s", o.spoil, strings.Join(spoilers, ", "))
	case o.brokers != 0 && o.brokers != 1 && o.brokers != 3:
		return o, fmt.Errorf("-brokers is 1 or 3, not %d", o.brokers)
	}
	return o, nil
}

const (
	heapMB = 384       // of each broker
	jvm    = 700 << 20 // what one takes in all, measured, with some room
	others = 1 << 30   // nodes, clients, and the compiler that builds kafka-mirror
)

// needed is the memory that two clusters take.
func needed(brokers int) int64 { return int64(2*brokers)*jvm + others }

func gibibytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// size says how many brokers each cluster gets, and why.
func (o options) size() (brokers int, why string, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, "", err
	}
	free, err := available(string(text))
	switch {
	case err != nil:
		return 0, "", err
	case o.brokers != 0:
		return o.brokers, fmt.Sprintf("-brokers %d", o.brokers), nil
	case free >= needed(3):
		return 3, fmt.Sprintf("%s of memory are free, and this takes %s", gibibytes(free), gibibytes(needed(3))), nil
	}
	return 1, fmt.Sprintf("only %s of memory are free, and three take %s", gibibytes(free), gibibytes(needed(3))), nil
}

// available is what the kernel says can be had without swapping.
func available(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
