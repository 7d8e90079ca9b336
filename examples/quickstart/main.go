// Command quickstart is the whole life of a mirror in one run, and reads as a tutorial: a Kafka-protocol cluster in this process is mirrored while records arrive,
// dies in the middle of two transactions, the copy takes over, and the old cluster comes back as a mirror of it.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -source localhost:9092 -topic orders     # mirror a real topic into memory, reading only
//
// It exits with 0 only if every check held. -break spoils one thing in the copy, to show that the checks can fail.
//
// Read story.go first; it is the tutorial. real.go is what -source does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	options, err := readOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart: "+err.Error())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if options.source != "" {
		err = mirrorReal(ctx, options)
	} else {
		err = story(ctx, options.spoil)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAILED: %v\n", err)
		os.Exit(1)
	}
}
