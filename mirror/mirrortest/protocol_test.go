package mirrortest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

func cluster(t testing.TB, brokers int) *mirrortest.Cluster {
	t.Helper()
	c, err := mirrortest.NewCluster(brokers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestTopicsOfClients: topics are made, grown, emptied and deleted by a client's own requests, over several brokers, and looked at as an operator does.
func TestTopicsOfClients(t *testing.T) {
	t.Parallel()
	c := cluster(t, 3)
	ctx := bounded(t)
	cl := client(t, c, kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kmsg.StringPtr("1000")}, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(ctx, 2, 1, nil, "orders"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("again: %v", err)
	}
	if r, err := admin.UpdatePartitions(ctx, 4, "orders"); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	leaders := map[int32]bool{}
	for p := range int32(4) {
		r, err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("x"), Timestamp: time.UnixMilli(1000 * int64(p+1))}).First()
		if err != nil || r.Offset != 0 {
			t.Fatalf("partition %d: offset %d, %v", p, r.Offset, err)
		}
	}
	found, err := admin.ListTopics(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	found.EachPartition(func(p kadm.PartitionDetail) { leaders[p.Leader] = true })
	if len(leaders) != 3 {
		t.Errorf("leaders %v of 4 partitions on 3 brokers", leaders)
	}
	for at, want := range map[int64]int64{0: 0, 3000: 0, 3001: 1} {
		listed, err := admin.ListOffsetsAfterMilli(ctx, at, "orders")
		if o, _ := listed.Lookup("orders", 2); err != nil || o.Err != nil || o.Offset != want {
			t.Errorf("offset at %d: %+v, %v", at, o, err)
		}
	}
	if listed, err := admin.ListMaxTimestampOffsets(ctx, "orders"); err != nil || listed["orders"][2].Timestamp != 3000 {
		t.Errorf("%+v, %v", listed, err)
	}
	var to kadm.Offsets
	to.AddOffset("orders", 1, 1, -1)
	deleted, err := admin.DeleteRecords(ctx, to)
	if d, _ := deleted.Lookup("orders", 1); err != nil || d.Err != nil || d.LowWatermark != 1 {
		t.Errorf("%+v, %v", deleted, err)
	}
	if starts, err := admin.ListStartOffsets(ctx, "orders"); err != nil || starts["orders"][1].Offset != 1 || starts["orders"][0].Offset != 0 {
		t.Errorf("%+v, %v", starts, err)
	}
	if producers, err := admin.DescribeProducers(ctx, found.TopicsSet()); err != nil || len(producers["orders"].Partitions[0].ActiveProducers) != 1 {
		t.Errorf("%+v, %v", producers, err)
	}
	before := found["orders"].ID
	if _, err := admin.DeleteTopic(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Memory().Topic(ctx, "orders"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("after the deletion: %v", err)
	}
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	if again, err := kadm.NewClient(client(t, c)).ListTopics(ctx, "orders"); err != nil || again["orders"].ID == before || len(again["orders"].Partitions) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestElections: clients follow leaders that move, and are told the epochs.
func TestElections(t *testing.T) {
	t.Parallel()
	c := cluster(t, 2)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	cl := client(t, c, kgo.DefaultProduceTopic("orders"), kgo.MetadataMinAge(10*time.Millisecond))
	admin := kadm.NewClient(cl)
	for i := range 4 {
		produce(ctx, t, cl, fmt.Sprint(i))
		moved, err := c.Memory().ElectLeader("orders", 0)
		if err != nil {
			t.Fatal(err)
		}
		found, err := kadm.NewClient(client(t, c)).ListTopics(ctx, "orders")
		if p := found["orders"].Partitions[0]; err != nil || p.Leader != moved.Leader-1 || !slices.Contains(p.Replicas, p.Leader) || p.LeaderEpoch != moved.LeaderEpoch {
			t.Errorf("%+v, %v, not %+v", p, err, moved)
		}
		ends, err := admin.OffsetForLeaderEpoch(ctx, requestEpoch("orders", int32(i)))
		if e := ends["orders"][0]; err != nil || e.Err != nil || e.EndOffset != int64(i+1) || e.LeaderEpoch != int32(i) {
			t.Errorf("epoch %d: %+v, %v", i, e, err)
		}
	}
	if got := consume(ctx, t, c, "orders", 4); len(got) != 4 {
		t.Errorf("%v", got)
	}
}

func requestEpoch(topic string, epoch int32) kadm.OffsetForLeaderEpochRequest {
	var r kadm.OffsetForLeaderEpochRequest
	r.Add(topic, 0, epoch)
	return r
}

// TestProduceAgain: a batch that is sent twice is there once, and its second answer is the first one's; one that leaves a gap, an older epoch and a damaged one are refused, each by its code.
func TestProduceAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	cl := client(t, c, kgo.MaxVersions(versionsByName()))
	send := func(sequence int32, epoch int16, change func([]byte)) (int16, int64) {
		t.Helper()
		records := oneBatch(77, epoch, sequence)
		if change != nil {
			change(records)
		}
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 1000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "orders"
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Records = records
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		resp, err := cl.Broker(0).Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		return p.ErrorCode, p.BaseOffset
	}
	for _, tc := range []struct {
		name     string
		sequence int32
		epoch    int16
		change   func([]byte)
		code     *kerr.Error
		base     int64
	}{
		{"first", 0, 1, nil, nil, 0},
		{"second", 1, 1, nil, nil, 1},
		{"first again", 0, 1, nil, nil, 0},
		{"second again", 1, 1, nil, nil, 1},
		{"a gap", 3, 1, nil, kerr.OutOfOrderSequenceNumber, -1},
		{"an old epoch", 2, 0, nil, kerr.InvalidProducerEpoch, -1},
		{"damaged", 2, 1, func(b []byte) { b[len(b)-1] ^= 1 }, kerr.CorruptMessage, -1},
		{"cut", 2, 1, func(b []byte) { b[11]++ }, kerr.CorruptMessage, -1},
		{"third", 2, 1, nil, nil, 2},
		{"a new epoch", 0, 2, nil, nil, 3},
	} {
		code, base := send(tc.sequence, tc.epoch, tc.change)
		want := int16(0)
		if tc.code != nil {
			want = tc.code.Code
		}
		if code != want || base != tc.base {
			t.Errorf("%s: code %d, base %d", tc.name, code, base)
		}
	}
	if got := consume(ctx, t, c, "orders", 4); len(got) != 4 {
		t.Errorf("%v", got)
	}
	transactional := func(b []byte) {
		b[22] |= 0x10
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	if code, _ := send(1, 2, transactional); code != kerr.InvalidTxnState.Code { // nobody would ever end it
		t.Errorf("a batch of a transaction without its id: code %d", code)
	}
}

// TestTransactionsEnd: a transaction whose time is over is aborted and its producer fenced; a new one under the same id fences the old one; what operators see of it.
func TestTransactionsEnd(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	begin := func(opts ...kgo.Opt) *kgo.Client {
		t.Helper()
		cl := client(t, c, append(opts, kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders"))...)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return cl
	}
	state := func() string {
		t.Helper()
		described, err := kadm.NewClient(client(t, c)).DescribeTransactions(ctx, "tx")
		if err != nil {
			t.Fatal(err)
		}
		return described["tx"].State
	}
	slow := begin(kgo.TransactionTimeout(30 * time.Millisecond))
	produce(ctx, t, slow, "too slow")
	until(ctx, t, "the transaction is aborted", func() bool { return state() == "CompleteAbort" || state() == "Empty" })
	if err := slow.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a transaction whose time was over was committed")
	}
	first := begin()
	produce(ctx, t, first, "fenced")
	if got := state(); got != "Ongoing" {
		t.Errorf("state %s", got)
	}
	listed, err := kadm.NewClient(client(t, c)).ListTransactions(ctx, nil, nil)
	if err != nil || listed["tx"].State != "Ongoing" {
		t.Errorf("%+v, %v", listed, err)
	}
	second := begin()
	produce(ctx, t, second, "committed")
	if err := first.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a fenced producer committed")
	}
	if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != "CompleteCommit" {
		t.Errorf("state %s", got)
	}
	if got := consume(ctx, t, c, "orders", 1, kgo.FetchIsolationLevel(kgo.ReadCommitted())); got[0] != "committed" {
		t.Errorf("read committed: %v", got)
	}
}

// TestKilledInATransaction: a transaction that is open when the cluster dies is open when it is back, and its time goes on: it is aborted.
func TestKilledInATransaction(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	open := func() bool {
		known, err := c.Memory().Producers(ctx, "orders", 0)
		return err == nil && len(known) == 1 && known[0].OpenSince >= 0
	}
	for timeout := 20 * time.Millisecond; !open(); timeout *= 4 { // on a slow machine it may be over before the cluster is killed
		c.Revive()
		cl := client(t, c, kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders"), kgo.TransactionTimeout(timeout), kgo.RecordDeliveryTimeout(time.Second))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, cl, "open")
		c.Kill()
	}
	c.Revive()
	until(ctx, t, "it is aborted", func() bool { return !open() })
	if got := committedBelow(ctx, t, c); len(got) > 0 {
		t.Errorf("read committed: %v", got)
	}
}

// committedBelow reads what is committed below a plain record that it adds.
func committedBelow(ctx context.Context, t *testing.T, c *mirrortest.Cluster) []string {
	t.Helper()
	produce(ctx, t, client(t, c, kgo.DefaultProduceTopic("orders")), "behind")
	got := consume(ctx, t, c, "orders", 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got[len(got)-1] != "behind" {
		t.Errorf("the last record is %q", got[len(got)-1])
	}
	return got[:len(got)-1]
}

// TestWhatIsOffered: what newer tools ask of topics is answered with leaders as they are; share groups and telemetry are not offered.
func TestWhatIsOffered(t *testing.T) {
	t.Parallel()
	c := cluster(t, 2)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	moved, err := c.Memory().ElectLeader("orders", 0)
	if err != nil {
		t.Fatal(err)
	}
	cl := client(t, c)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = "orders"
	req.Topics, req.ResponsePartitionLimit = append(req.Topics, topic), 10
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.Topics[0].Partitions[0]; p.LeaderID != moved.Leader-1 || p.LeaderEpoch != moved.LeaderEpoch || !slices.Contains(p.ISR, p.LeaderID) {
		t.Errorf("%+v, not %+v", p, moved)
	}
	for _, req := range []kmsg.Request{kmsg.NewPtrShareFetchRequest(), kmsg.NewPtrShareGroupHeartbeatRequest(), kmsg.NewPtrGetTelemetrySubscriptionsRequest()} {
		if resp, err := cl.Broker(0).Request(ctx, req); err == nil {
			t.Errorf("%T was answered: %+v", req, resp)
		}
	}
}

// until polls.
func until(ctx context.Context, t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// TestKillAndRevive: while a cluster is dead nobody gets an answer; what it holds is there when it is back, on the same ports, its groups without members and where they were.
func TestKillAndRevive(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)
	ctx := bounded(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	cl := client(t, c, kgo.DefaultProduceTopic("orders"))
	produce(ctx, t, cl, "a")
	for kind, opts := range groupKinds {
		member := client(t, c, append(opts, kgo.ConsumerGroup(kind), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.RetryTimeout(time.Millisecond))...)
		poll(ctx, t, member, 1)
		if err := member.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ports := c.Addresses()
	c.Kill()
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := client(t, c).Ping(short); err == nil {
		t.Error("a dead cluster answers")
	}
	if _, err := c.Destination().ClusterID(ctx); err == nil {
		t.Error("a dead cluster can be mirrored into")
	}
	c.Revive()
	if got := c.Addresses(); got[0] != ports[0] {
		t.Errorf("addresses %v, were %v", got, ports)
	}
	produce(ctx, t, client(t, c, kgo.DefaultProduceTopic("orders")), "b")
	for kind := range groupKinds {
		offsets, err := kadm.NewClient(client(t, c)).FetchOffsets(ctx, kind)
		if at, ok := offsets.Lookup("orders", 0); err != nil || !ok || at.At != 1 {
			t.Errorf("%s: %+v, %v", kind, offsets, err)
		}
	}
}
