package runbook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

// direct does what a page has in a comment.
//
//	topic CLUSTER NAME PARTITIONS       a topic is created, with one copy; or
//	topic CLUSTER NAME on BROKER        with one partition, there
//	node CLUSTER                        a node is started there (CLUSTER.properties, its command is not shown), and its topics are made
//	nodefile CLUSTER                    only its file is written
//	mirror MIRROR FROM TO TOPICS        a mirror is made and started, by a node that runs, and it is waited until it is in step
//	write CLUSTER TOPIC N               N records are written to each of its partitions
//	keep writing CLUSTER TOPIC          somebody writes all the time, until "stop writing", the fence, or the end
//	commit CLUSTER GROUP TOPIC N        the group has read N records of partition 0
//	begin NAME COMMAND                  a command that goes on
//	file NAME (lines)                   a file of the reader's
//	run COMMAND                         a command that is not shown; it has to succeed
//	await COMMAND => TEXT               a command that looks is repeated until it prints the text
//	kill CLUSTER [BROKER]               brokers end at once
//	start CLUSTER [BROKER]              they are started again
//	kill process FILE                   a command in the background ends at once
//	end process FILE                    it is asked to end
//	front                               the primary's address is a load balancer's, and leads there
//	lead to CLUSTER                     it leads elsewhere
//	cut CLUSTER                         nobody reaches a broker of it any more
//	restore CLUSTER                     they do again
//	remove FOLDER                       a folder is gone
func (f *follower) direct(s step) {
	f.t.Helper()
	words := strings.Fields(s.directive)
	fail := func(format string, args ...any) {
		f.t.Helper()
		f.t.Fatalf("docs/runbook/%s.md, line %d: %s: %s", f.page, s.line, s.directive, fmt.Sprintf(format, args...))
	}
	cluster := func(name string) *kafkatest.Cluster {
		c := f.clusters[name]
		if c == nil {
			fail("no cluster %q", name)
		}
		return c
	}
	number := func(word string) int {
		n, err := strconv.Atoi(word)
		if err != nil {
			fail("%v", err)
		}
		return n
	}
	brokers := func(c *kafkatest.Cluster, words []string) (ids []int32) {
		for _, w := range words {
			ids = append(ids, int32(number(w)))
		}
		if len(ids) == 0 {
			ids = c.Brokers()
		}
		return ids
	}
	arguments := func(n int) {
		if len(words) < n {
			fail("%d words are needed", n)
		}
	}
	switch words[0] {
	case "topic":
		arguments(4)
		c, topic := cluster(words[1]), f.names.inRun(words[2])
		spec := kafkatest.Topic{Name: topic}
		if words[3] == "on" {
			spec.Assignment = [][]int32{{int32(number(words[4]))}}
		} else {
			spec.Partitions, spec.Replication = number(words[3]), 1
		}
		c.CreateTopic(spec)
		c.Allow("User:app", []string{topic}, kadm.OpRead, kadm.OpWrite)
	case "mirror":
		arguments(5)
		f.mirror(words[1], words[2], words[3], words[4])
	case "node":
		arguments(2)
		f.nodeFile(words[1])
		f.background(words[1]+".properties", "kafka-mirror run --config "+words[1]+".properties")
	case "nodefile":
		arguments(2)
		f.nodeFile(words[1])
	case "write":
		arguments(4)
		f.write(cluster(words[1]), f.names.inRun(words[2]), number(words[3]))
	case "keep":
		arguments(4)
		f.writers[words[2]+" "+words[3]] = f.keepWriting(cluster(words[2]), f.names.inRun(words[3]))
	case "stop":
		arguments(4)
		f.writers[words[2]+" "+words[3]].end()
	case "commit":
		arguments(5)
		lives.Commit(f.t, cluster(words[1]), f.names.inRun(words[2]), f.names.inRun(words[3]), 0, int64(number(words[4])), -1)
	case "begin":
		arguments(3)
		f.background(words[1], strings.TrimPrefix(s.directive, "begin "+words[1]+" "))
	case "file":
		arguments(2)
		f.file(words[1], strings.Join(s.body, "\n"))
	case "run":
		f.must(strings.TrimPrefix(s.directive, "run "))
	case "await":
		line, text, ok := strings.Cut(strings.TrimPrefix(s.directive, "await "), " => ")
		if !ok {
			fail("no => in it")
		}
		f.eventually(s.directive, func() (bool, string) {
			out := f.run(line)
			return strings.Contains(masked(strings.ReplaceAll(out, "\n", " ")), masked(text)), out
		})
	case "kill":
		arguments(2)
		if words[1] == "process" {
			f.kill(words[2])
			return
		}
		c := cluster(words[1])
		for _, id := range brokers(c, words[2:]) {
			c.Kill(id)
		}
		f.dead[words[1]] = len(brokers(c, words[2:])) == len(c.Brokers())
	case "end":
		arguments(3)
		f.signal(words[2], syscall.SIGTERM)
	case "start":
		arguments(2)
		c := cluster(words[1])
		for _, id := range brokers(c, words[2:]) {
			c.LaunchBroker(id)
		}
		c.WaitReady()
		f.dead[words[1]] = false
	case "front":
		f.front = newFront(f.t, f.clusters["primary"].Bootstrap()[0])
		f.names.move("primary:9092", f.front.address())
	case "lead":
		arguments(3)
		f.front.lead(cluster(words[2]).Bootstrap()[0])
	case "cut":
		arguments(2)
		p := cluster(words[1]).Proxy(1)
		p.SetLink(proxy.Link{Refuse: true})
		p.Reset()
	case "restore":
		arguments(2)
		cluster(words[1]).Proxy(1).SetLink(proxy.Link{})
	case "remove":
		arguments(2)
		if err := os.RemoveAll(filepath.Join(f.dir, words[1])); err != nil {
			fail("%v", err)
		}
	default:
		fail("not known")
	}
}

// nodeFile writes the file of a node at a cluster. Its folder is in the page's, and it looks at sources every second.
func (f *follower) nodeFile(at string) {
	f.t.Helper()
	copies := len(f.clusters[at].Brokers())
	f.file(at+".properties", fmt.Sprintf(`node.id=%d
bootstrap.servers=%s:9092
controller.quorum.bootstrap.servers=%[2]s:9093
listeners=INTERNAL://%[2]s-mirror:9990
mirror.node.folder=%[2]s-node
default.replication.factor=%d
mirror.state.topic.replication.factor=%[3]d
min.insync.replicas=%d
mirror.state.topic.num.partitions=3
mirror.metadata.refresh.interval.ms=1000`, nodeID, at, copies, min(2, copies)))
	f.file("client.properties", fmt.Sprintf("mirror.state.topic.replication.factor=%d\nmirror.state.topic.num.partitions=3", copies))
}

func (f *follower) file(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(f.names.inRun(text)+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// mirror makes a mirror, starts it and waits for it.
func (f *follower) mirror(name, from, to, topics string) {
	f.t.Helper()
	f.file(name+".properties", "bootstrap.servers="+from+":9092")
	at := "kafka-mirror --bootstrap-server " + to + ":9092 --command-config client.properties "
	f.must(at + "--create --mirror " + name + " --mirror-config " + name + ".properties")
	f.must(at + "--start --mirror " + name + " --topics " + topics)
	f.inStep(to, name, len(strings.Split(topics, ",")))
}

// inStep waits until a mirror's copies have all that is at the source.
func (f *follower) inStep(at, name string, topics int) {
	f.t.Helper()
	f.eventually(name+" is in step", func() (bool, string) {
		out := f.run("kafka-mirror --bootstrap-server " + at + ":9092 --describe --mirror " + name)
		there := 0
		for line := range strings.Lines(out) {
			if w := strings.Fields(line); len(w) > 3 && w[1] == "MIRRORING" && strings.HasSuffix(strings.TrimSpace(line), " 0    -    -") {
				there++
			}
		}
		return there >= topics, out
	})
}

// must runs a command that has to succeed.
func (f *follower) must(line string) string {
	f.t.Helper()
	out := f.run(line)
	if strings.Contains(out, "exit status ") {
		f.t.Fatalf("%s\n%s", line, out)
	}
	return out
}

// write writes n records to each partition of a topic.
func (f *follower) write(c *kafkatest.Cluster, topic string, n int) {
	f.t.Helper()
	listed, err := c.Admin().ListTopics(f.t.Context(), topic)
	if err != nil || listed[topic].Err != nil {
		f.t.Fatalf("%s: %v %v", topic, err, listed[topic].Err)
	}
	for p := range listed[topic].Partitions {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("record %d of %d", i+1, n)
		}
		c.Produce(topic, p, values...)
	}
}

// writer writes to a topic all the time, as the user app.
type writer struct {
	stop     context.CancelFunc
	done     chan struct{}
	mu       sync.Mutex
	accepted []string
	refused  error
}

func (w *writer) end() {
	w.stop()
	<-w.done
}

// acknowledged are the values that the cluster has said to have.
func (w *writer) acknowledged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.accepted...)
}

func (f *follower) keepWriting(c *kafkatest.Cluster, topic string) *writer {
	f.t.Helper()
	cl, err := kgo.NewClient(append(f.asApp(c), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))...)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &writer{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer cl.Close()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			value := fmt.Sprintf("written %d", i)
			err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr()
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			if err == nil {
				w.accepted = append(w.accepted, value)
			} else {
				w.refused = err
			}
			w.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	f.eventually("somebody writes to "+topic, func() (bool, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.accepted) > 0, fmt.Sprint(w.refused)
	})
	return w
}
