// Command joinkafka mirrors topics of one Kafka cluster into another one, unmodified, which it joins as one more broker.
//
//	go run ./examples/joinkafka -source primary:9092 -topic orders -controllers standby:9093 -state standby:9092 -listen 10.0.0.9:9990 -folder /var/lib/mirror
//
// It makes the mirror, if kafka-mirror --create has not, with -source as its bootstrap.servers. It mirrors until it is interrupted, and goes on where it was when it is started again, however it ended. What is wanted is kept in the destination cluster: examples/kafka-mirror stops
// (fails over), pauses and describes from anywhere. The topics cannot be read or written at the destination until they are stopped. An existing topic of that name at the destination is
// closed for clients if it is empty, and refused if it is not.
//
// With -preflight it only looks at both clusters, changes nothing, and says what stands in the way; then the exit status is 1.
//
// It speaks PLAINTEXT only, and it has no failback: a program of yours sets kraft.Config's options and calls Mirror.PlanFailback and ExecuteFailback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// options are what the command line says.
type options struct {
	source, topics, controllers, state []string
	listen, advertised, listener       string
	folder, name                       string
	node, replicas                     int
	preflight                          bool
}

// config is how the destination is joined.
func (o options) config() kraft.Config {
	return kraft.Config{
		NodeID: int32(o.node), Controllers: o.controllers, Listen: o.listen, Advertised: o.advertised, ListenerName: o.listener, Folder: o.folder,
		ReplicationFactor: o.replicas, MinInSyncReplicas: min(o.replicas, kraft.DefaultMinInSyncReplicas),
	}
}

func main() {
	var o options
	list := func(name, usage string, to *[]string) {
		flag.Func(name, usage, func(s string) error {
			*to = strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
			return nil
		})
	}
	list("source", "host:port of brokers of the source, separated by commas", &o.source)
	list("topic", "topics to mirror, separated by commas", &o.topics)
	list("controllers", "host:port of every controller of the destination, separated by commas", &o.controllers)
	list("state", "host:port of brokers of the destination, their listener for clients, separated by commas", &o.state)
	flag.StringVar(&o.listen, "listen", "", "host:port where this process listens for the destination's brokers")
	flag.StringVar(&o.advertised, "advertised", "", "host:port under which the brokers reach it (default: -listen)")
	flag.StringVar(&o.listener, "listener", "", "the brokers' inter.broker.listener.name (default: INTERNAL)")
	flag.StringVar(&o.folder, "folder", "", "folder of this process's identity; made if need be")
	flag.StringVar(&o.name, "mirror", "dr", "name of the mirror, as verbs call it")
	flag.IntVar(&o.node, "node", 9999, "broker id of this process; no other broker's")
	flag.IntVar(&o.replicas, "replicas", 3, "copies of a topic on the destination's brokers")
	flag.BoolVar(&o.preflight, "preflight", false, "only look, and say what stands in the way")
	flag.Parse()
	if len(o.source) == 0 || len(o.topics) == 0 || len(o.controllers) == 0 || len(o.state) == 0 || o.listen == "" || o.folder == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "joinkafka: -source, -topic, -controllers, -state, -listen and -folder are needed")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if o.preflight {
		do = preflight
	}
	if err := do(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "joinkafka:", err)
		if errors.Is(err, kerr.InvalidReplicationFactor) {
			fmt.Fprintln(os.Stderr, "joinkafka: here that is -replicas, as in -replicas 1")
		}
		os.Exit(1)
	}
}

// run mirrors until ctx ends. out is written to by several goroutines, one line at a time.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	var closers []func() error
	defer func() {
		for _, c := range slices.Backward(closers) {
			err = errors.Join(err, c())
		}
	}()
	// States, what is wanted, and what has to be put back in the cluster are in one log.
	records, err := kafkastore.Open(ctx, kafkastore.Config{Seeds: o.state, ReplicationFactor: int16(o.replicas)})
	if err != nil {
		return err
	}
	closers = append(closers, records.Close)
	joining := o.config()
	joining.Remember = records
	joining.Notice = func(e kraft.Event) {
		if e.Partition.Topic != "" {
			fmt.Fprintf(out, "%s: %s-%d: %s\n", e.Kind, e.Partition.Topic, e.Partition.Partition, e.Text)
			return
		}
		fmt.Fprintf(out, "%s: %s\n", e.Kind, e.Text)
	}
	destination, err := kraft.Join(ctx, joining)
	if err != nil {
		return err
	}
	closers = append(closers, destination.Close)
	source, err := kafkasource.New(kafkasource.Config{Seeds: o.source})
	if err != nil {
		return err
	}
	closers = append(closers, source.Close)
	control := mirror.NewControl(records)
	m, err := mirror.Open(ctx, mirror.Config{
		Name: o.name, Source: source, Destination: destination, Store: keyedlog.NewStateStore(records), Control: control,
		Sink:    mirror.Discard, // what a truncation drops is gone: a real program keeps it somewhere
		OnEvent: func(e mirror.Event) { fmt.Fprintln(out, e) },
	})
	if err != nil {
		return err
	}
	closers = append(closers, m.Close)
	// A topic that was stopped must not be mirrored again by a restart: only those that nobody has said anything of are started.
	wanted, err := control.Read(ctx)
	if err != nil {
		return err
	}
	if err := recordSource(ctx, m.Admin(), wanted, o); err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(o.topics), func(topic string) bool {
		_, known := wanted.Topic(topic)
		return known
	})
	if len(fresh) > 0 {
		if _, err := m.Admin().Start(ctx, fresh, mirror.StartOptions{}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	said := map[mirror.TopicPartition]string{}
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintf(out, "ends; broker %d stays registered, and topics that are not stopped stay closed until it is started again\n", o.node)
			return nil
		case <-tick.C:
			s := m.Status()
			for _, t := range s.Topics {
				if t.Err != nil {
					fmt.Fprintf(out, "%s: %v\n", t.Topic, t.Err)
				}
				for _, p := range t.Partitions {
					line := fmt.Sprintf("%s-%d: %s, copied to %d, the brokers hold it up to %d%s", p.Topic, p.Partition, p.State, p.End, p.Replicated, because(p.Reason))
					if tp := (mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}); said[tp] != line {
						said[tp] = line
						fmt.Fprintln(out, line)
					}
				}
			}
			if s.Fenced != nil {
				return s.Fenced
			}
		}
	}
}

// recordSource lets verbs elsewhere ask the source: a mirror that does not exist yet is made with the address of -source in its settings, and one that has none gets it. What somebody has
// recorded stays. A mirror that was deleted is not made again: the start that follows says what to do.
func recordSource(ctx context.Context, admin *mirror.Admin, wanted mirror.ControlState, o options) (err error) {
	settings := mirror.Settings{"bootstrap.servers": strings.Join(o.source, ",")}
	entry, there := wanted.Mirror(o.name)
	_, deleted := wanted.DeletedMirror(o.name)
	intent := mirror.Intent{Reason: "joinkafka was started with this -source"}
	switch {
	case !there && !deleted:
		_, err = admin.Create(ctx, settings, mirror.CreateOptions{Intent: intent})
	case there && entry.Settings.Effective("bootstrap.servers") == "":
		_, err = admin.AlterConfig(ctx, settings, nil, mirror.AlterConfigOptions{Intent: intent})
	}
	if errors.Is(err, &mirror.Error{Code: mirror.ClusterMirrorAlreadyExists}) {
		return nil // somebody has made it meanwhile
	}
	return err
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
