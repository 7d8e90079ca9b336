// Command custombroker is a worked example of embedding: a small broker on plain files whose partitions can be mirrors of topics of a Kafka cluster.
//
//	go run ./examples/custombroker -dir /tmp/standby -source localhost:9092 -topic orders,payments
//
// It mirrors until it is interrupted, and goes on where it was when it is started again, however it ended. What is wanted of a topic is kept in the folder too, or with
// -state HOST:PORT in a Kafka cluster: another process may pause or stop it through a mirror.Admin on the same folder or cluster, and a topic that was stopped stays so. Read the
// files in this order:
//
//	log.go          one partition: a mirror.Log
//	change.go       how it changes files so that no crash leaves a mixture
//	recovery.go     how it opens
//	mark.go         what it must find then, so that damage is not taken for a crash
//	broker.go       what the broker's own clients call
//	destination.go  the cluster in a folder: a mirror.Destination
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/statemachine"
)

func main() {
	dir := flag.String("dir", "", "folder of the copy; made if need be")
	source := flag.String("source", "", "host:port of brokers of the source, separated by commas")
	topics := flag.String("topic", "", "topics to mirror, separated by commas")
	state := flag.String("state", "", "host:port of brokers of the Kafka cluster that keeps the states, separated by commas (default: the folder does)")
	replicas := flag.Int("state-replicas", kafkastore.DefaultReplicationFactor, "replication factor of the topics that -state makes")
	name := flag.String("mirror", "files", "name of the mirror, as verbs call it")
	every := flag.Duration("every", 5*time.Second, "time between status lines")
	flag.Parse()
	if *dir == "" || *source == "" || *topics == "" || *every <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "custombroker: -dir, -source and -topic are needed")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	records := inFolder(*dir)
	if *state != "" {
		records = func(ctx context.Context) (keyedlog.Log, error) {
			store, err := kafkastore.Open(ctx, kafkastore.Config{
				Seeds: split(*state), ReplicationFactor: int16(*replicas),
				Notice: func(err error) { fmt.Fprintln(os.Stderr, "custombroker:", err) }, // records that somebody put where they do not count
			})
			if err != nil {
				return nil, err
			}
			return store, nil
		}
	}
	if err := run(ctx, os.Stdout, *dir, *name, records, split(*source), split(*topics), *every); err != nil {
		fmt.Fprintln(os.Stderr, "custombroker:", err)
		os.Exit(1)
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// opener opens the log of records that holds the states of partitions and what is wanted of them.
type opener func(context.Context) (keyedlog.Log, error)

// inFolder keeps the records beside the copy.
func inFolder(dir string) opener {
	return func(context.Context) (keyedlog.Log, error) {
		store, err := filestore.Open(filepath.Join(dir, "states"), filestore.Options{})
		if err != nil {
			return nil, err // not store: a nil *Store in a Log is not nil
		}
		return store, nil
	}
}

// run mirrors until ctx ends, and prints events and status lines. out is written to by several goroutines, one line at a time.
func run(ctx context.Context, out io.Writer, dir, name string, records opener, source, topics []string, every time.Duration) error {
	r, err := start(ctx, out, dir, name, records, source, topics, nil)
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
	records     keyedlog.Log
	control     mirror.Control
	mirror      *mirror.Mirror
}

// start opens the folder and mirrors the topics into it. adjust, if there is one, may change the mirror's configuration.
func start(ctx context.Context, out io.Writer, dir, name string, records opener, source, topics []string, adjust func(*mirror.Config)) (_ *running, err error) {
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
	// One log holds the states of partitions and what is wanted of them.
	if r.records, err = records(ctx); err != nil {
		return nil, err
	}
	r.control = mirror.NewControl(r.records)
	if r.source, err = kafkasource.New(kafkasource.Config{Seeds: source}); err != nil {
		return nil, err
	}
	config := mirror.Config{
		Name: name, Source: r.source, Destination: r.destination, Store: keyedlog.NewStateStore(r.records), Control: r.control,
		Sink:    mirror.Discard, // what a truncation drops is gone: a real broker keeps it somewhere
		OnEvent: func(e mirror.Event) { fmt.Fprintln(out, e) },
	}
	if adjust != nil {
		adjust(&config)
	}
	if r.mirror, err = mirror.Open(ctx, config); err != nil {
		return nil, err
	}
	if err := r.begin(ctx, topics); err != nil {
		return nil, err
	}
	return r, nil
}

// begin starts the topics that are in no mirror yet. What is wanted of the others was said before, here or by another process, and is left as it is: a topic that was failed
// over must not be mirrored again by a restart.
func (r *running) begin(ctx context.Context, topics []string) error {
	wanted, err := r.control.Read(ctx)
	if err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool {
		_, known := wanted.Topic(topic)
		return known
	})
	if len(fresh) == 0 && len(topics) > 0 {
		return nil
	}
	_, err = r.mirror.Admin().Start(ctx, fresh, mirror.StartOptions{})
	return err
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
	if r.records != nil {
		errs = append(errs, r.records.Close())
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
