package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// The rates of a process that has joined a cluster, beside what Kafka does itself with the same data on the same machine in the same minutes:
//
//	go run ./internal/bench -kraft all -pairs 5     # all of these, about ten minutes on two cores; the figures in the documents come from this
//	go run ./internal/bench -kraft memory           # a stock follower copies from this process's memory; beside it a stock follower copies from a stock leader
//	go run ./internal/bench -kraft relay            # a stock follower copies what is mirrored from another cluster; beside it the same stock replication
//	go run ./internal/bench -kraft mm2              # the mirror beside MirrorMaker 2
//	go run ./internal/bench -kraft failover         # a failover of many partitions, beside the least that the cluster needs for one: see kraft_failover.go
//
// One follower copies four partitions of batches of 16 KB. Each run's time is from the first byte in the destination's log to the last one, whoever put them there, so what comes
// before (a reassignment, a join, the start of a Java process) counts for nobody.
var (
	kraftMode    = flag.String("kraft", "", "measure a joined cluster instead: memory, relay, mm2, all of these, or failover")
	kraftMB      = flag.Int("kraft-mb", 1000, "megabytes per run with -kraft")
	kraftParts   = flag.Int("kraft-partitions", 1000, "partitions with -kraft failover")
	kraftProfile = flag.String("kraft-profile", "", "write a CPU profile of this process in its own runs with -kraft memory, relay or failover")
)

const (
	kraftPartitions = 4
	kraftLeader     = 1 // the stock leader, and the controller
	kraftFollower   = 2
	kraftNode       = 9999
	kraftRecord     = 1000
	kraftRecords    = 16  // of one batch
	kraftCPU        = 1.0 // goal: CPU seconds of this process per GB, at most
)

var kraftMirrorMaker = mirrorMakerSettings("none", 512<<10, 20*time.Millisecond)

type kraftBench struct {
	t        *program
	ctx      context.Context
	pairs    int
	one      []byte // one batch
	batches  int    // of each partition
	total    int64
	src, dst *kafkatest.Cluster
	runs     int // so far, for names
	missed   []string
}

// measureKraft does what -kraft says.
func measureKraft(ctx context.Context, t *program, pairs int, check bool) {
	if *kraftMode == "failover" {
		measureFailover(ctx, t, pairs, *kraftParts)
		return
	}
	b := &kraftBench{t: t, ctx: ctx, pairs: pairs, one: kraftBatch()}
	b.batches = *kraftMB * 1e6 / kraftPartitions / len(b.one)
	b.total = int64(b.batches) * kraftPartitions * int64(len(b.one))
	all := *kraftMode == "all"
	memory, relay, mm2 := all || *kraftMode == "memory", all || *kraftMode == "relay", all || *kraftMode == "mm2"
	if !memory && !relay && !mm2 {
		t.Fatalf("-kraft %s: it is memory, relay, mm2, all or failover", *kraftMode)
	}
	b.dst = kafkatest.Start(t, kafkatest.Options{Brokers: 2, HeapMB: 1024, Config: map[string]string{"log.segment.delete.delay.ms": "1000"}})
	if relay || mm2 {
		b.src = kafkatest.Start(t, kafkatest.Options{HeapMB: 1024})
	}
	fmt.Printf("machine: %d cores, %s %s/%s, load %s; Apache Kafka %s, all brokers on loopback; %d MB a run, %d partitions, batches of %d bytes with %d records, one follower; %d interleaved pairs a row\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, load(), b.dst.Version(), b.total/1e6, kraftPartitions, len(b.one), kraftRecords, pairs)
	fmt.Printf("command: %s\n\n", commandLine(os.Args[1:]))
	fmt.Println("| path | MB/s | beside it | MB/s | rate ratio (min … max) | goal | this process CPU s/GB (min … max), goal ≤ 1 | follower CPU s/GB | beside: sender CPU s/GB | beside: receiver CPU s/GB |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	if memory || relay {
		b.fill(b.dst, kraftNative, kraftLeader)
		b.native() // warm
	}
	if relay || mm2 {
		b.fill(b.src, kraftRelay, 1)
	}
	if memory {
		b.fromMemory()
		b.row("from memory", "stock leader", 1, b.fromMemory, b.native)
	}
	if relay {
		b.relay()
		b.row("mirror of a source cluster", "stock leader", 0.7, b.relay, b.native)
	}
	if mm2 {
		b.row("mirror of a source cluster", "MirrorMaker 2", 4, b.relay, b.mirrorMaker)
		fmt.Printf("\nMirrorMaker 2: one process, %s\n", strings.Join(kraftMirrorMaker, ", "))
	}
	if len(b.missed) > 0 {
		fmt.Printf("\nmissed: %s\n", strings.Join(b.missed, "; "))
		if check {
			t.Fatalf("%d goals were missed", len(b.missed))
		}
	}
}

// kraftRun is one measured run. CPU is of the whole run, with what comes before the first byte.
type kraftRun struct {
	bytes                   int64
	wall                    time.Duration
	self, sender, followers time.Duration // CPU of this process, of whoever sends, of the broker that receives
}

func (r kraftRun) rate() float64 { return float64(r.bytes) / 1e6 / r.wall.Seconds() }

// row measures pairs of runs and prints their ratio.
func (b *kraftBench) row(what, other string, goal float64, ours, theirs func() kraftRun) {
	var a, z []kraftRun
	for range b.pairs {
		a = append(a, ours())
		z = append(z, theirs())
	}
	per := func(runs []kraftRun, of func(kraftRun) time.Duration) []float64 {
		var v []float64
		for _, r := range runs {
			v = append(v, of(r).Seconds()/(float64(b.total)/1e9))
		}
		return v
	}
	var ratio, rates, others []float64
	for i := range a {
		ratio = append(ratio, a[i].rate()/z[i].rate())
		rates, others = append(rates, a[i].rate()), append(others, z[i].rate())
	}
	verdict := "reached"
	if median(ratio) < goal {
		verdict = "missed"
		b.missed = append(b.missed, fmt.Sprintf("%s: %.2f of %s, the goal is %.1f", what, median(ratio), other, goal))
	}
	cpu := per(a, func(r kraftRun) time.Duration { return r.self })
	if median(cpu) > kraftCPU {
		b.missed = append(b.missed, fmt.Sprintf("%s: %.2f CPU seconds per GB, the goal is %.1f", what, median(cpu), kraftCPU))
	}
	fmt.Printf("| %s | %.0f | %s | %.0f | %s | ≥ %.1f %s | %s | %.2f | %.2f | %.2f |\n", what, median(rates), other, median(others), spread(ratio), goal, verdict,
		spread(cpu), median(per(a, func(r kraftRun) time.Duration { return r.followers })),
		median(per(z, func(r kraftRun) time.Duration { return r.sender })), median(per(z, func(r kraftRun) time.Duration { return r.followers })))
}

// kraftBatch is the batch of which all data consists.
func kraftBatch() []byte {
	payload := make([]byte, kraftRecord)
	for i := range payload {
		payload[i] = byte(i*7 + i>>8)
	}
	var records []batch.Record
	for i := range kraftRecords {
		records = append(records, batch.Record{OffsetDelta: int32(i), Value: payload})
	}
	return batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().UnixMilli(), Records: records})
}

// fill makes a topic on one broker with the data of a run.
func (b *kraftBench) fill(c *kafkatest.Cluster, topic string, broker int32) {
	b.create(c, topic, broker)
	cl := c.Client()
	defer cl.Close()
	id := b.topicID(c, topic)
	err := eachPartition(func(p int32) error {
		for n := 0; n < b.batches; {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = 1, 30_000
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = topic, id
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p, b.one
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			res, err := cl.Broker(int(broker)).Request(b.ctx, req)
			if err != nil {
				return err
			}
			err = kerr.ErrorForCode(res.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
			switch {
			case err == nil:
				n++
			case !kerr.IsRetriable(err): // a new topic may not be led yet
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("produce: %v", err)
	}
}

// eachPartition calls f for all partitions at once.
func eachPartition(f func(p int32) error) error {
	errs := make([]error, kraftPartitions)
	var all sync.WaitGroup
	for p := range errs {
		all.Go(func() { errs[p] = f(int32(p)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (b *kraftBench) topicID(c *kafkatest.Cluster, topic string) [16]byte {
	topics, err := c.Admin().ListTopics(b.ctx, topic)
	if err != nil {
		b.t.Fatalf("topic %s: %v", topic, err)
	}
	return topics[topic].ID
}

func (b *kraftBench) create(c *kafkatest.Cluster, topic string, broker int32) {
	assignment := make([][]int32, kraftPartitions)
	for p := range assignment {
		assignment[p] = []int32{broker}
	}
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: assignment})
}

// remove deletes a topic and waits until its folders are gone from every broker.
func (b *kraftBench) remove(topic string) {
	if _, err := b.dst.Admin().DeleteTopics(b.ctx, topic); err != nil {
		b.t.Fatalf("deleting topic %s: %v", topic, err)
	}
	for _, id := range b.dst.Brokers() {
		b.awaitGone(id, topic)
	}
}

func (b *kraftBench) awaitGone(broker int32, topic string) {
	awaitGone(b.ctx, b.t, topic, b.dst.DataDir(broker))
}

func (b *kraftBench) poll(what string, every time.Duration, is func() bool) {
	poll(b.ctx, b.t, what, every, is)
}

// copied measures a run that start begins: it ends when the follower's files hold everything. sender is the pid of the process that sends, 0 if it is this one.
func (b *kraftBench) copied(topic string, sender int, start func() error) kraftRun {
	// What earlier runs left is collected, but not given back: a process that has run for a while does not fault its pages in again.
	runtime.GC()
	follower := b.pid(b.dst, kraftFollower)
	self, received, sent := b.cpuTime(), b.processTime(follower), b.processTime(sender)
	started := make(chan error, 1)
	go func() { started <- start() }()
	var files []string
	for p := range kraftPartitions {
		files = append(files, filepath.Join(b.dst.DataDir(kraftFollower), fmt.Sprintf("%s-%d", topic, p), "00000000000000000000.log"))
	}
	size := func() (n int64) {
		for _, f := range files {
			if s, err := os.Stat(f); err == nil {
				n += s.Size()
			}
		}
		return n
	}
	first := int64(0)
	b.poll("the first byte of "+topic, time.Millisecond, func() bool {
		select {
		case err := <-started:
			if err != nil {
				b.t.Fatalf("%v", err)
			}
			started <- nil
		default:
		}
		first = size()
		return first > 0
	})
	began := time.Now()
	b.poll("the last byte of "+topic, 2*time.Millisecond, func() bool { return size() >= b.total })
	r := kraftRun{bytes: b.total - first, wall: time.Since(began), self: b.cpuTime() - self, followers: b.processTime(follower) - received, sender: b.processTime(sender) - sent}
	if err := <-started; err != nil {
		b.t.Fatalf("%v", err)
	}
	return r
}

func (b *kraftBench) pid(c *kafkatest.Cluster, broker int32) int { return brokerPID(b.t, c, broker) }

// processTime is 0 for the pid 0.
func (b *kraftBench) processTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	used, err := processTime(pid)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	return used
}

// cpuTime is what this process has used.
func (b *kraftBench) cpuTime() time.Duration {
	used, err := cpuTime()
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	return used
}

const (
	kraftNative = "native"
	kraftRelay  = "relay"
)

// native has a stock follower copy from a stock leader, whose log is in the page cache.
func (b *kraftBench) native() kraftRun {
	r := b.copied(kraftNative, b.pid(b.dst, kraftLeader), func() error { return b.reassign(kraftLeader, kraftFollower) })
	for p := range int32(kraftPartitions) {
		b.dst.WaitISR(kraftNative, p, kraftLeader, kraftFollower)
	}
	if err := b.reassign(kraftLeader); err != nil {
		b.t.Fatalf("%v", err)
	}
	b.awaitGone(kraftFollower, kraftNative)
	return r
}

func (b *kraftBench) reassign(replicas ...int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 30_000
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = kraftNative
	for p := range int32(kraftPartitions) {
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = p, replicas
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	res, err := b.dst.AdminClient().Request(b.ctx, req)
	if err == nil {
		a := res.(*kmsg.AlterPartitionAssignmentsResponse)
		err = kerr.ErrorForCode(a.ErrorCode)
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("reassign: %w", err)
	}
	return nil
}

// join joins the destination, whose broker 2 alone gets copies: broker 1 is the sender of the runs beside ours, so it is called a peer, on which none is placed.
func (b *kraftBench) join(window int64) *kraft.Destination {
	folder, err := os.MkdirTemp("", "bench-kraft-")
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	b.t.Cleanup(func() { os.RemoveAll(folder) })
	d, err := kraft.Join(b.ctx, kraft.Config{
		NodeID: kraftNode, Controllers: b.dst.ControllerAddresses(), Listen: "127.0.0.1:0", Folder: folder, Remember: keyedlog.NewMemory(),
		ReplicationFactor: 1, MinInSyncReplicas: 1, Peers: []int32{kraftLeader}, Window: window,
		Notice: func(e kraft.Event) {
			if e.Kind != kraft.Joined && e.Kind != kraft.TopicGone {
				log.Printf("%v %v %s %v", e.Kind, e.Partition, e.Text, e.Err)
			}
		},
	})
	if err != nil {
		b.t.Fatalf("join: %v", err)
	}
	return d
}

func (b *kraftBench) leave(d *kraft.Destination, topic string) {
	b.remove(topic)
	if err := d.Leave(b.ctx); err != nil {
		b.t.Fatalf("leave: %v", err)
	}
}

// fromMemory has a stock follower copy what this process holds in memory.
func (b *kraftBench) fromMemory() kraftRun {
	d := b.join(2 * b.total)
	b.runs++
	topic := fmt.Sprintf("memory-%d", b.runs)
	if _, err := d.CreateTopic(b.ctx, mirror.TopicSpec{Name: topic, Partitions: kraftPartitions}); err != nil {
		b.t.Fatalf("create: %v", err)
	}
	// What is appended is a megabyte at a time, as it comes from a source.
	chunks := make([][][]byte, kraftPartitions)
	logs := make([]mirror.Log, kraftPartitions)
	for p := range chunks {
		var err error
		if logs[p], err = d.OpenLog(b.ctx, mirror.TopicPartition{Topic: topic, Partition: int32(p)}); err != nil {
			b.t.Fatalf("open log: %v", err)
		}
		for n := 0; n < b.batches; {
			some := min(b.batches-n, max(1, (1<<20)/len(b.one)))
			chunk := make([]byte, 0, some*len(b.one))
			for range some {
				at := len(chunk)
				chunk = append(chunk, b.one...)
				batch.SetBaseOffset(chunk[at:], int64(n)*kraftRecords)
				n++
			}
			chunks[p] = append(chunks[p], chunk)
		}
	}
	var r kraftRun
	b.profiled("memory", func() {
		r = b.copied(topic, 0, func() error {
			return eachPartition(func(p int32) error {
				for _, c := range chunks[p] {
					if err := logs[p].Append(b.ctx, logs[p].LeaderEpoch(), c); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
	b.leave(d, topic)
	return r
}

// relay mirrors the source's topic.
func (b *kraftBench) relay() kraftRun {
	d := b.join(0)
	src, err := kafkasource.New(kafkasource.Config{Seeds: b.src.Bootstrap()})
	if err != nil {
		b.t.Fatalf("source: %v", err)
	}
	defer src.Close()
	m, err := mirror.Open(b.ctx, mirror.Config{Name: "bench", Source: src, Destination: d, Store: keyedlog.NewStateStore(keyedlog.NewMemory()), Sink: mirror.Discard,
		OnEvent: func(e mirror.Event) {
			if e.Level() >= 4 {
				log.Print(e)
			}
		}})
	if err != nil {
		b.t.Fatalf("mirror: %v", err)
	}
	var r kraftRun
	b.profiled("relay", func() {
		r = b.copied(kraftRelay, 0, func() error {
			_, err := m.Admin().Start(b.ctx, []string{kraftRelay}, mirror.StartOptions{})
			return err
		})
	})
	if err := m.Close(); err != nil {
		b.t.Fatalf("mirror: %v", err)
	}
	b.leave(d, kraftRelay)
	return r
}

// profiled writes a profile of the last run of a path where one is wanted.
func (b *kraftBench) profiled(path string, f func()) {
	if *kraftProfile == "" {
		f()
		return
	}
	out, err := os.Create(*kraftProfile + "." + path)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	defer out.Close()
	if err := pprof.StartCPUProfile(out); err != nil {
		b.t.Fatalf("%v", err)
	}
	defer pprof.StopCPUProfile()
	f()
}
