package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// A failover in a joined cluster, in which stock brokers hold the copies, beside the least that such a cluster needs for it whoever asks: one election of another leader for all
// partitions, and one record to each under its new leader epoch that both replicas must have (brokers sync a file of each partition for the first record of a leader epoch). Both
// in the same cluster, one after the other. A failover has two such epochs: markers under one, clients' records under the next.
//
//	go run ./internal/bench -kraft failover -kraft-partitions 1000
const (
	failoverTopics = 10
	failoverBare   = "bare"
)

// measureFailover times failovers of partitions that each have an open transaction, with a synced file as the store.
func measureFailover(ctx context.Context, t *program, pairs, partitions int) {
	each := partitions / failoverTopics
	if each < 1 {
		t.Fatalf("-kraft-partitions %d: at least %d", partitions, failoverTopics)
	}
	small := map[string]string{"log.segment.delete.delay.ms": "1000", "log.cleaner.enable": "false", "log.segment.bytes": "1048576", "transaction.state.log.replication.factor": "1"}
	b := &kraftBench{t: t, ctx: ctx, one: kraftBatch()[:0]}
	b.src = kafkatest.Start(t, kafkatest.Options{HeapMB: 1024, Config: small})
	b.dst = kafkatest.Start(t, kafkatest.Options{Brokers: 2, HeapMB: 1024, Config: small})
	fmt.Printf("machine: %d cores, %s %s/%s, load %s; Apache Kafka %s, all brokers on loopback; %d partitions with an open transaction each, two replicas on stock brokers; %d pairs\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, load(), b.dst.Version(), failoverTopics*each, pairs)
	fmt.Printf("command: %s\n\n", commandLine(os.Args[1:]))
	var names []string
	for i := range failoverTopics {
		names = append(names, fmt.Sprintf("wide-%d", i))
		b.src.CreateTopic(kafkatest.Topic{Name: names[i], Partitions: each, Replication: 1})
	}
	assignment := make([][]int32, failoverTopics*each)
	for p := range assignment {
		assignment[p] = []int32{kraftFollower, kraftLeader}
	}
	b.dst.CreateTopic(kafkatest.Topic{Name: failoverBare, Assignment: assignment})
	var ours, bare, ratio []float64
	steps := map[string]time.Duration{}
	var order []string
	for n := range pairs {
		least := b.leastFailover(n, len(assignment))
		report := b.failOver(names, each)
		bare, ours = append(bare, least.Seconds()), append(ours, report.Took.Seconds())
		ratio = append(ratio, report.Took.Seconds()/least.Seconds())
		for _, s := range report.Steps {
			if _, ok := steps[s.Step]; !ok {
				order = append(order, s.Step)
			}
			steps[s.Step] += s.Took
		}
	}
	fmt.Println("| failover, from the call until all are open, s | one election and one produce with acks=all, s | ratio |")
	fmt.Println("| --- | --- | --- |")
	fmt.Printf("| %s | %s | %s |\n\n", spread(ours), spread(bare), spread(ratio))
	fmt.Println("of it, in the partition that was open last, mean:")
	for _, s := range order {
		fmt.Printf("  %-22s %v\n", s, (steps[s] / time.Duration(pairs)).Round(time.Millisecond))
	}
}

// leastFailover elects the other replica of each partition of the bare topic, in one request, and when metadata show it sends each one record that both replicas must have.
func (b *kraftBench) leastFailover(n, partitions int) time.Duration {
	from, to := int32(kraftFollower), int32(kraftLeader)
	if n%2 == 1 {
		from, to = to, from
	}
	// The other one becomes the preferred leader first. Nothing is copied: both have a replica.
	assign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	assign.TimeoutMillis = 60_000
	at := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	at.Topic = failoverBare
	for p := range partitions {
		ap := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		ap.Partition, ap.Replicas = int32(p), []int32{to, from}
		at.Partitions = append(at.Partitions, ap)
	}
	assign.Topics = append(assign.Topics, at)
	if _, err := b.dst.AdminClient().Request(b.ctx, assign); err != nil {
		b.t.Fatalf("reassign: %v", err)
	}
	client := b.dst.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()))
	defer client.Close()
	produce := func() {
		var records []*kgo.Record
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: failoverBare, Partition: int32(p), Value: []byte("as long as a marker")})
		}
		if err := client.ProduceSync(b.ctx, records...).FirstErr(); err != nil {
			b.t.Fatalf("produce: %v", err)
		}
	}
	produce() // metadata and producer id are there now
	began := time.Now()
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.TimeoutMillis = 60_000
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic = failoverBare
	for p := range partitions {
		et.Partitions = append(et.Partitions, int32(p))
	}
	elect.Topics = append(elect.Topics, et)
	res, err := b.dst.AdminClient().Request(b.ctx, elect)
	if err == nil {
		err = kerr.ErrorForCode(res.(*kmsg.ElectLeadersResponse).ErrorCode)
	}
	if err != nil {
		b.t.Fatalf("elect: %v", err)
	}
	b.poll("the elected leaders", time.Millisecond, func() bool {
		topics, err := b.dst.Admin().ListTopics(b.ctx, failoverBare)
		if err != nil {
			b.t.Fatalf("list: %v", err)
		}
		for _, p := range topics[failoverBare].Partitions {
			if p.Leader != to {
				return false
			}
		}
		return true
	})
	produce()
	return time.Since(began)
}

// failOver mirrors the topics into the cluster, with one open transaction in each partition, fails them over, and removes the copies.
func (b *kraftBench) failOver(names []string, each int) mirror.FailoverReport {
	producer := b.src.Client(kgo.TransactionalID("wide"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(10*time.Minute))
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		b.t.Fatalf("transaction: %v", err)
	}
	var records []*kgo.Record
	for _, name := range names {
		for p := range each {
			records = append(records, &kgo.Record{Topic: name, Partition: int32(p), Value: []byte("of an open transaction")})
		}
	}
	if err := producer.ProduceSync(b.ctx, records...).FirstErr(); err != nil {
		b.t.Fatalf("produce: %v", err)
	}
	folder, err := os.MkdirTemp("", "bench-failover-")
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	defer os.RemoveAll(folder)
	store, err := filestore.Open(folder+"/store", filestore.Options{})
	if err != nil {
		b.t.Fatalf("store: %v", err)
	}
	defer store.Close()
	d, err := kraft.Join(b.ctx, kraft.Config{
		NodeID: kraftNode, Controllers: b.dst.ControllerAddresses(), Listen: "127.0.0.1:0", Folder: folder + "/node", Remember: keyedlog.NewMemory(),
		ReplicationFactor: 2, MinInSyncReplicas: 2,
		Notice: func(e kraft.Event) {
			if e.Err != nil && e.Kind != kraft.TopicGone {
				log.Printf("%v %v %s %v", e.Kind, e.Partition, e.Text, e.Err)
			}
		},
	})
	if err != nil {
		b.t.Fatalf("join: %v", err)
	}
	src, err := kafkasource.New(kafkasource.Config{Seeds: b.src.Bootstrap()})
	if err != nil {
		b.t.Fatalf("source: %v", err)
	}
	defer src.Close()
	m, err := mirror.Open(b.ctx, mirror.Config{Name: "bench", Source: src, Destination: d, Store: keyedlog.NewStateStore(store), Control: mirror.NewControl(store), Sink: mirror.Discard})
	if err != nil {
		b.t.Fatalf("mirror: %v", err)
	}
	if _, err := m.Admin().Start(b.ctx, names, mirror.StartOptions{}); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	limit, stop := context.WithTimeout(b.ctx, 5*time.Minute)
	defer stop()
	err = m.Await(limit, func(s mirror.Status) bool {
		n := 0
		for _, topic := range s.Topics {
			for _, p := range topic.Partitions {
				if p.State == statemachine.Mirroring && p.Replicated > 0 && p.Replicated == p.SourceEnd {
					n++
				}
			}
		}
		return n == len(names)*each
	})
	if err != nil {
		b.t.Fatalf("the copies: %v", err)
	}
	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	var report mirror.FailoverReport
	b.profiled("failover", func() { report, err = m.ExecuteFailover(limit, plan) })
	if err != nil {
		b.t.Fatalf("failover: %v\n%v", err, report)
	}
	if err := m.Close(); err != nil {
		b.t.Fatalf("mirror: %v", err)
	}
	if err := producer.EndTransaction(b.ctx, kgo.TryAbort); err != nil {
		b.t.Fatalf("transaction: %v", err)
	}
	for _, name := range names {
		b.remove(name)
	}
	if err := d.Leave(b.ctx); err != nil {
		b.t.Fatalf("leave: %v", err)
	}
	return report
}
