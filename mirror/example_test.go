package mirror_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// threeRecords is a cluster "east" with a topic of three records.
func threeRecords(ctx context.Context) *memlog.Cluster {
	east := memlog.New(memlog.Config{ClusterID: "east"})
	_, err := east.CreateLocalTopic(memlog.LocalTopic{Name: "orders"})
	check(err)
	for _, v := range []string{"one", "two", "three"} {
		_, err := east.Produce(ctx, "orders", 0, memlog.Record{Value: []byte(v)})
		check(err)
	}
	return east
}

// What was given up lies in files, in Kafka's own format. One is read here; package dropped reads all of a folder, as records, with what became of their transactions.
func ExampleReadSinkFile() {
	dir, err := os.MkdirTemp("", "dropped")
	check(err)
	defer os.RemoveAll(dir)
	east, orders := threeRecords(context.Background()), mirror.TopicPartition{Topic: "orders"}
	log, err := east.OpenLog(context.Background(), orders)
	check(err)
	batches, err := log.Read(context.Background(), 1, 1<<20)
	check(err)
	check(mirror.FileSink(dir).Dropped(context.Background(), orders, 1, log.End(), batches)) // as a mirror does before it cuts them

	file, err := mirror.ReadSinkFile(filepath.Join(dir, "orders", "0", "00000000000000000001.00000000000000000003.0.log"))
	check(err) // damage is one
	fmt.Printf("%s-%d [%d,%d)\n", file.Topic, file.Partition, file.From, file.To)
	for batch := range mirror.Batches(file.Batches) {
		fmt.Printf("%d: %d record\n", batch.Base, batch.Records)
	}
	// Output:
	// orders-0 [1,3)
	// 1: 1 record
	// 2: 1 record
}

// inStepWith waits until everything that is known at the source is copied.
func inStepWith(ctx context.Context, m *mirror.Mirror, topic string, end int64) {
	for {
		for _, t := range m.Status().Topics {
			if t.Topic == topic && len(t.Partitions) == 1 && t.Partitions[0].State == statemachine.Mirroring && t.Partitions[0].LagOffsets == 0 && t.Partitions[0].Replicated >= end {
				return
			}
		}
		select {
		case <-ctx.Done():
			panic(ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// A mirror from its start until the copy has everything: a source, a destination, a store for states, and a word on what happens to records that are dropped.
func Example_mirror() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, west := threeRecords(ctx), memlog.New(memlog.Config{ClusterID: "west"})
	m, err := mirror.Open(ctx, mirror.Config{Name: "east-to-west", Source: east, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
	check(err)
	defer m.Close()
	_, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, m, "orders", 3)

	records, err := west.Consume(ctx, "orders", 0, 0, memlog.ReadCommitted)
	check(err)
	for _, r := range records {
		fmt.Printf("%d %s\n", r.Offset, r.Value)
	}
	_, err = west.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("mine")})
	fmt.Println(err)
	// Output:
	// 0 one
	// 1 two
	// 2 three
	// /orders-0: READ_ONLY_TOPIC: the topic is a mirror's copy; stop the mirror of this topic to write to it
}

// The source is gone. What is lost is looked at first, then the copy is made writable. Nothing of this asks the source.
func ExampleMirror_Failover() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, west := threeRecords(ctx), memlog.New(memlog.Config{ClusterID: "west"})
	m, err := mirror.Open(ctx, mirror.Config{Name: "east-to-west", Source: east, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
	check(err)
	defer m.Close()
	_, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, m, "orders", 3)
	east.SetUnreachable(true)

	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	for _, p := range plan.Partitions {
		fmt.Printf("%s-%d: %s, mirror end %s, source end %s\n", p.Topic, p.Partition, p.Outcome, p.MirrorEnd, p.SourceEnd)
	}
	report, err := m.ExecuteFailover(ctx, plan)
	for _, p := range report.Partitions {
		fmt.Printf("%s-%d: %s, the source's records end at %d, clients write from %d on\n", p.Topic, p.Partition, p.State, p.FinalOffset, p.OpensAt)
	}
	fmt.Println("error:", err)
	offset, err := west.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("mine")})
	fmt.Println("written at", offset, err)
	// Output:
	// orders-0: stop, mirror end 3, source end 3
	// orders-0: STOPPED, the source's records end at 3, clients write from 4 on
	// error: <nil>
	// written at 4 <nil>
}

// The old source has come back with a record that was never copied. It becomes a mirror of the cluster that took over: the plan says what it gives up, and carrying
// that plan out is the consent to exactly this. What is dropped goes to the sink first.
func ExampleMirror_ExecuteFailback() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, west := threeRecords(ctx), memlog.New(memlog.Config{ClusterID: "west"})
	there, err := mirror.Open(ctx, mirror.Config{Name: "east-to-west", Source: east, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
	check(err)
	_, err = there.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, there, "orders", 3)
	_, err = there.Failover(ctx, mirror.FailoverOptions{})
	check(err)
	check(there.Close())
	_, err = east.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("never copied")})
	check(err)

	back, err := mirror.Open(ctx, mirror.Config{Name: "west-to-east", Source: west, Destination: east, Store: east.StateStore(), Sink: mirror.Discard})
	check(err)
	defer back.Close()
	plan, err := back.PlanFailback(ctx, "orders")
	check(err)
	for _, p := range plan.Partitions {
		fmt.Printf("%s-%d: common point %s, drops [%s,%s)\n", p.Topic, p.Partition, p.CommonPoint, p.From, p.To)
	}
	report, err := back.ExecuteFailback(ctx, plan)
	for _, p := range report.Partitions {
		fmt.Printf("%s-%d: %s, dropped [%d,%d), end %d of %d\n", p.Topic, p.Partition, p.State, p.DroppedFrom, p.DroppedTo, p.End, p.SourceEnd)
	}
	fmt.Println("error:", err)
	// Output:
	// orders-0: common point 3, drops [3,4)
	// orders-0: MIRRORING, dropped [3,4), end 4 of 4
	// error: <nil>
}

// A failback from a place that reaches the destination only. The process that runs the mirror compares the logs and answers; consent to its plan is recorded, and it carries that out.
func ExampleAdmin_AskFailback() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, west := threeRecords(ctx), memlog.New(memlog.Config{ClusterID: "west"})
	there, err := mirror.Open(ctx, mirror.Config{Name: "east-to-west", Source: east, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
	check(err)
	_, err = there.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, there, "orders", 3)
	_, err = there.Failover(ctx, mirror.FailoverOptions{})
	check(err)
	check(there.Close())
	_, err = east.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("never copied")})
	check(err)
	back, err := mirror.Open(ctx, mirror.Config{Name: "west-to-east", Source: west, Destination: east, Store: east.StateStore(), Control: east.Control(), Sink: mirror.Discard})
	check(err)
	defer back.Close()
	check(back.Await(ctx, func(mirror.Status) bool { // there is such a mirror as soon as it runs
		s, err := east.Control().Read(ctx)
		_, ok := s.Mirror("west-to-east")
		return err == nil && ok
	}))

	admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "west-to-east", Control: east.Control(), States: east.StateStore(), Destination: east, Strict: true})
	check(err)
	plan, err := admin.AskFailback(ctx, []string{"orders"}, mirror.AskFailbackOptions{})
	check(err)
	for _, p := range plan.Partitions {
		fmt.Printf("%s-%d: common point %s, drops [%s,%s)\n", p.Topic, p.Partition, p.CommonPoint, p.From, p.To)
	}
	dry, err := admin.Failback(ctx, plan, mirror.ConsentOptions{DryRun: true})
	check(err)
	result, err := admin.Failback(ctx, plan, mirror.ConsentOptions{Intent: mirror.Intent{Reason: "east is back", Plan: dry.Plan}})
	check(err)
	fmt.Println(result.Topics[0].Topic, "changed:", result.Topics[0].Changed)
	inStepWith(ctx, back, "orders", 4)
	records, err := east.Consume(ctx, "orders", 0, 0, memlog.ReadCommitted)
	check(err)
	fmt.Println(len(records), "records")
	// Output:
	// orders-0: common point 3, drops [3,4)
	// orders changed: true
	// 3 records
}

// The mirror's desired state is shared by processes: one runs the mirror, another one uses the verbs, and can still say how the mirror was when that process has died.
func ExampleAdmin() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, west := threeRecords(ctx), memlog.New(memlog.Config{ClusterID: "west"})
	control := mirror.NewMemoryControl() // in one process here
	admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "east-to-west", Control: control, States: west.StateStore(), Destination: west, SourceClusterID: "east", Strict: true})
	check(err)
	_, err = admin.Create(ctx, mirror.Settings{"bootstrap.servers": "east-1:9092"}, mirror.CreateOptions{})
	check(err)
	m, err := mirror.Open(ctx, mirror.Config{Name: "east-to-west", Source: east, Destination: west, Store: west.StateStore(), Control: control, Sink: mirror.Discard})
	check(err)
	_, err = admin.Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, m, "orders", 3)
	check(m.Close())

	result, err := admin.Stop(ctx, []string{"orders"}, mirror.StopOptions{DryRun: true})
	check(err)
	fmt.Print(result)
	_, err = admin.Stop(ctx, []string{"orders"}, mirror.StopOptions{})
	fmt.Println(err)
	_, err = admin.Stop(ctx, []string{"orders"}, mirror.StopOptions{Intent: mirror.Intent{Reason: "rehearsal", Plan: result.Plan}})
	check(err)
	d, err := admin.Describe(ctx)
	check(err)
	for _, t := range d.Topics {
		fmt.Println(t.Topic, t.MirrorName, t.Partitions[0].State)
	}
	// Output:
	// source east (east-1:9092) → destination west
	// dry run of stop, mirror east-to-west
	// orders: would be opened for clients
	// plan eb06645a-d8276294-5f5d60d2
	// east-to-west: INVALID_REQUEST: a stop, which opens topics for clients, needs a reason (Intent.Reason); nothing has changed
	// orders east-to-west.stopped MIRRORING
}
