// Command custombroker is a worked example of embedding: a small broker on plain files whose partitions can be mirrors of topics of a Kafka cluster.
//
//	go run ./examples/custombroker -dir /tmp/standby -source localhost:9092 -topic orders,payments
//
// It mirrors until it is interrupted, and goes on where it was when it is started again, however it ended. Read the files in this order:
//
//	log.go          one partition: a mirror.Log
//	change.go       how it changes files so that no crash leaves a mixture
//	recovery.go     how it opens
//	mark.go         what it must find then, so that damage is not taken for a crash
//	broker.go       what the broker's own clients call
//	destination.go  the cluster in a folder: a mirror.Destination
//	statestore.go   where the mirror keeps its states: a statemachine.StateStore; session.go is who writes there
//	index.go        where Read begins to look for an offset
//	directory.go    the few things that are needed of a file system
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/statemachine"
)

func main() {
	dir := flag.String("dir", "", "folder of the copy; made if need be")
	source := flag.String("source", "", "host:port of brokers of the source, separated by commas")
	topics := flag.String("topic", "", "topics to mirror, separated by commas")
	every := flag.Duration("every", 5*time.Second, "time between status lines")
	flag.Parse()
	if *dir == "" || *source == "" || *topics == "" || *every <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "custombroker: -dir, -source and -topic are needed")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *dir, split(*source), split(*topics), *every); err != nil {
		fmt.Fprintln(os.Stderr, "custombroker:", err)
		os.Exit(1)
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// run mirrors until ctx ends, and prints events and status lines. out is written to by several goroutines, one line at a time.
func run(ctx context.Context, out io.Writer, dir string, source, topics []string, every time.Duration) error {
	r, err := start(ctx, out, dir, source, topics, nil)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			printStatus(out, r.mirror.Status())
			return r.close()
		case <-tick.C:
			s := r.mirror.Status()
			printStatus(out, s)
			if s.Fenced != nil {
				return errors.Join(s.Fenced, r.close())
			}
		}
	}
}

// running is a mirror and what it is made of.
type running struct {
	source      *kafkasource.Source
	destination *Destination
	store       *StateStore
	mirror      *mirror.Mirror
}

// start opens the folder and mirrors the topics into it. adjust, if there is one, may change the mirror's configuration.
func start(ctx context.Context, out io.Writer, dir string, source, topics []string, adjust func(*mirror.Config)) (_ *running, err error) {
	r := &running{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	// The destination comes first: its lock is what keeps a second process out.
	if r.destination, err = OpenDestination(dir); err != nil {
		return nil, err
	}
	r.destination.OnCut = func(tp mirror.TopicPartition, bytes int64) {
		fmt.Fprintf(out, "%s-%d: a process died while it wrote; the %d bytes behind the last whole batch were cut\n", tp.Topic, tp.Partition, bytes)
	}
	if r.store, err = OpenStateStore(filepath.Join(dir, "states")); err != nil {
		return nil, err
	}
	if r.source, err = kafkasource.New(kafkasource.Config{Seeds: source}); err != nil {
		return nil, err
	}
	config := mirror.Config{
		Name: "files", Source: r.source, Destination: r.destination, Store: r.store,
		Sink:    mirror.Discard, // what a truncation drops is gone: a real broker keeps it somewhere
		OnEvent: func(e mirror.Event) { fmt.Fprintln(out, e) },
	}
	if adjust != nil {
		adjust(&config)
	}
	if r.mirror, err = mirror.Open(ctx, config); err != nil {
		return nil, err
	}
	// What is wanted is kept in memory here, so it is said again at each start. The states are in the store, so nothing begins anew. A broker that fails over gives the
	// mirror a Control that survives: a topic that was stopped must not be started again by a restart.
	if _, err = r.mirror.Admin().Start(ctx, topics, mirror.StartOptions{}); err != nil {
		return nil, err
	}
	return r, nil
}

// close ends everything, the mirror first.
func (r *running) close() error {
	var errs []error
	if r.mirror != nil {
		errs = append(errs, r.mirror.Close())
	}
	if r.source != nil {
		errs = append(errs, r.source.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.destination != nil {
		errs = append(errs, r.destination.Close())
	}
	return errors.Join(errs...)
}

// printStatus prints one line for each partition, and for each topic that has none.
func printStatus(out io.Writer, s mirror.Status) {
	for _, t := range s.Topics {
		if t.Err != nil {
			fmt.Fprintf(out, "%s: %v\n", t.Topic, t.Err)
		}
		for _, p := range t.Partitions {
			fmt.Fprintln(out, statusLine(p))
		}
	}
}

func statusLine(p mirror.PartitionStatus) string {
	s := fmt.Sprintf("%s-%d %s [%d, %d) leader epoch %d", p.Topic, p.Partition, p.State, p.Start, p.Replicated, p.LeaderEpoch)
	switch {
	case p.State == statemachine.Mirroring && p.LagOffsets == mirror.Unknown:
		s += ", lag unknown"
	case p.State == statemachine.Mirroring:
		s += fmt.Sprintf(", lag %d offsets", p.LagOffsets)
	}
	if p.Step != "" {
		s += ", step " + p.Step
	}
	if p.Reason != "" {
		s += ": " + p.Reason
	}
	return s
}
