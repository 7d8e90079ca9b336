package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
)

// options are those of the command line.
type options struct {
	spoil               string // for the story
	source, topic, from string // for a real cluster
	memory              size
}

// readOptions reads the command line. Its errors are one line that says how to mend it; flag.ErrHelp: the help was asked for, and printed.
func readOptions(args []string) (options, error) {
	o := options{memory: 256 << 20}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is one line, not a page
	flags.Usage = func() {}
	flags.StringVar(&o.spoil, "break", "", "spoil one thing in the copy, so that a check must fail: "+strings.Join(spoilers, ", "))
	flags.StringVar(&o.source, "source", "", "mirror a topic of this cluster (host:port) into memory until interrupted, reading only")
	flags.StringVar(&o.topic, "topic", "", "the topic, with -source")
	flags.StringVar(&o.from, "from", "recent", "with -source: recent (the last 10,000 offsets of each partition) or earliest")
	flags.Var(&o.memory, "memory", "with -source: keep at most this much, as in 256MiB, and at least the newest batch of each partition")
	err := flags.Parse(args)
	if err == flag.ErrHelp {
		fmt.Println("Usage: go run ./examples/quickstart [-break WHAT] | -source HOST:PORT -topic T [-from earliest] [-memory 256MiB]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w (-h lists the options)", err)
	}
	if o.source == "" {
		flags.Visit(func(f *flag.Flag) {
			if err == nil && (f.Name == "memory" || f.Name == "from") {
				err = fmt.Errorf("-%s is for a real cluster: add -source and -topic, as in -source localhost:9092 -topic orders, or leave it out", f.Name)
			}
		})
	}
	if mistake := o.check(flags.Args()); mistake != nil {
		return o, mistake
	}
	return o, err
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("what is %q? Options begin with a dash, as in -topic %s", rest[0], rest[0])
	case o.spoil != "" && !slices.Contains(spoilers, o.spoil):
		return fmt.Errorf("-break=%s is not known; it is one of: %s", o.spoil, strings.Join(spoilers, ", "))
	case o.source != "" && o.topic == "":
		return fmt.Errorf("-source needs a topic: add -topic, as in -source %s -topic orders", o.source)
	case o.source == "" && o.topic != "":
		return fmt.Errorf("-topic needs a cluster: add -source, as in -source localhost:9092 -topic %s", o.topic)
	case o.source != "" && o.spoil != "":
		return fmt.Errorf("-break is for the run without -source: leave one of them out")
	case o.from != "recent" && o.from != "earliest":
		return fmt.Errorf("-from is recent or earliest, not %q", o.from)
	}
	if o.source != "" {
		if _, port, err := net.SplitHostPort(o.source); err != nil || port == "" {
			return fmt.Errorf("-source is host:port of one broker, not %q; Kafka's usual port makes it %s:9092", o.source, strings.TrimSuffix(o.source, ":"))
		}
	}
	return nil
}
