package realkafka_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF46OpenTransactionAtFailover(t *testing.T) {
	c := shared(t)
	topic := "f46-open"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c, kgo.TransactionalID(topic))
	r := open(t, c)
	r.start(topic)
	lives.Begin(t, cl)
	lives.Produce(t, cl, topic, 0, lives.Values("in a transaction", 5)...)
	lives.Produce(t, lives.Client(c, lives.Plain...), topic, 0, "plain")
	copied := r.same(topic, 0, 6)
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.link.Cut()
	lives.Finish(t, c, cl, kgo.TryCommit, topic, 0) // nobody copies it

	report := r.failover()
	got := report.Partitions[0]
	if got.FinalOffset != 6 || got.ResetAt != 7 || got.OpensAt != 8 || len(got.Aborts) != 1 {
		t.Fatalf("%+v", got)
	}
	if a := got.Aborts[0]; a.ProducerID != id || a.ProducerEpoch != epoch || a.FirstOffset != 0 || a.Offset != 6 {
		t.Errorf("%+v; the producer is %d with epoch %d", a, id, epoch)
	}
	if p := lives.One(r.Status(), topic, 0); p.LastStable != p.End || p.End != 8 || p.State != statemachine.Stopped {
		t.Errorf("last stable offset %d, end %d, %s", p.LastStable, p.End, p.State)
	}
	after, err := r.dst.RawLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(after, copied) {
		t.Errorf("what was copied changed: %s", lives.Difference(after, copied))
	}
	hs := lives.Headers(after)
	if len(hs) != 4 || !hs[2].Control() || !hs[3].Control() || hs[2].ProducerID != id {
		t.Errorf("%+v", hs)
	}
	for i, h := range hs {
		if mirrored := i < 2; mirrored != (h.LeaderEpoch <= got.LME) {
			t.Errorf("the batch at %d has leader epoch %d, the last mirror epoch is %d", h.BaseOffset, h.LeaderEpoch, got.LME)
		}
	}
	readers := func(isolation memlog.Isolation) (offsets []int64) {
		records, err := r.dst.Consume(t.Context(), topic, 0, 0, isolation)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			offsets = append(offsets, r.Offset)
		}
		return offsets
	}
	if got := readers(memlog.ReadCommitted); len(got) != 1 || got[0] != 5 {
		t.Errorf("read_committed readers get %v, want the plain record at 5", got)
	}
	if got := readers(memlog.ReadUncommitted); len(got) != 6 {
		t.Errorf("read_uncommitted readers get %v", got)
	}
}

// revive is the old cluster as a destination: its topic with its id, holding what lies on a broker's disk.
func revive(t *testing.T, c *kafkatest.Cluster, topic string, id [16]byte) (*memlog.Cluster, []byte) {
	t.Helper()
	p := c.Describe(topic, 0)
	disk := c.SegmentBytes(topic, 0, p.Leader)
	old := memlog.New(memlog.Config{ClusterID: c.ID()})
	t.Cleanup(func() { old.Close() })
	if _, err := old.CreateLocalTopic(memlog.LocalTopic{Name: topic, ID: id}); err != nil {
		t.Fatal(err)
	}
	if err := old.ImportLog(topic, 0, bytes.Clone(disk), lives.OffsetOf(t, c, lives.Earliest, topic, 0), p.LeaderEpoch); err != nil {
		t.Fatal(err)
	}
	return old, disk
}

// dropped is a Sink that keeps what it is handed.
type dropped struct {
	from, to int64
	batches  []byte
}

func (d *dropped) Dropped(_ context.Context, _ mirror.TopicPartition, from, to int64, batches []byte) error {
	d.from, d.to = from, to
	d.batches = append(d.batches, batches...)
	return nil
}

// failback makes old a mirror of the cluster that took over, and compares both. It returns the plan and what was cut.
func failback(t *testing.T, topic string, from *memlog.Cluster, old *memlog.Cluster) (mirror.FailbackPlan, *dropped) {
	t.Helper()
	sink := &dropped{}
	back, err := mirror.Open(t.Context(), mirror.Config{
		Name: "back", Source: from, Destination: old, Store: old.StateStore(), Sink: sink, RefreshInterval: 500 * time.Millisecond,
		Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	plan, err := back.PlanFailback(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(plan)
	report, err := back.ExecuteFailback(ctx, plan)
	t.Log(report)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := old.RawLog(topic, 0)
	b, errB := from.RawLog(topic, 0)
	if errA != nil || errB != nil || len(b) == 0 {
		t.Fatal(errA, errB, len(b))
	}
	if d := lives.Difference(a, b); d != "" {
		t.Fatalf("after the failback: %s", d)
	}
	return plan, sink
}

func writeTo(t *testing.T, c *memlog.Cluster, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		if _, err := c.Produce(t.Context(), topic, 0, memlog.Record{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

// The whole way: failover with a transaction open and a tail that was not copied, local writes, and back into the log that lies on the old broker's disk.
func TestF84FailbackIntoARealLog(t *testing.T) {
	c := shared(t)
	topic := "f84-failback"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	r := open(t, c)
	r.start(topic)
	left, done := lives.Client(c, kgo.TransactionalID(topic+"-left")), lives.Client(c, kgo.TransactionalID(topic+"-done"))
	produceTens(t, c, topic, "before", 3)                                                                                               // 0..29
	lives.Transaction(t, c, done, kgo.TryCommit, topic, 0, lives.Values("committed", 3)...)                                             // 30..33
	lives.Begin(t, left)                                                                                                                //
	lives.Produce(t, left, topic, 0, lives.Values("open", 2)...)                                                                        // 34..35
	lives.Produce(t, lives.Client(c, kgo.ProducerBatchCompression(kgo.ZstdCompression())), topic, 0, lives.Values("compressed", 10)...) // 36..45
	copied := r.same(topic, 0, 46)
	r.link.Cut()
	lives.Finish(t, c, left, kgo.TryCommit, topic, 0) // 46
	produceTens(t, c, topic, "never copied", 1)       // 47..56

	got := r.failover().Partitions[0]
	if got.FinalOffset != 46 || got.OpensAt != 48 || len(got.Aborts) != 1 {
		t.Fatalf("%+v", got)
	}
	writeTo(t, r.dst, topic, lives.Values("new primary", 20)...)
	producer := r.dst.NewProducer(memlog.ProducerOptions{Transactions: memlog.TransactionV2})
	if err := producer.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Produce(t.Context(), topic, 0, memlog.Record{Value: []byte("in a transaction")}); err != nil {
		t.Fatal(err)
	}
	if err := producer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	old, disk := revive(t, c, topic, id)
	tail, err := lives.Since(disk, 46)
	if err != nil {
		t.Fatal(err)
	}
	plan, sink := failback(t, topic, r.dst, old)
	if plan.Dropped != 11 || sink.from != 46 || sink.to != 57 || !bytes.Equal(sink.batches, tail) {
		t.Errorf("the plan drops %d; [%d,%d) and %d bytes were handed out, want [46,57) and the %d bytes on disk", plan.Dropped, sink.from, sink.to, len(sink.batches), len(tail))
	}
	if d := plan.Partitions[0].Disagreements; len(d) != 1 || d[0].CommitAt != 46 {
		t.Errorf("the transaction that committed there and aborted here is not named: %+v", d)
	}
	now, err := old.RawLog(topic, 0)
	if err != nil || !bytes.HasPrefix(now, copied) {
		t.Errorf("what both had was not kept: %v", err)
	}
}

// The source comes back after an unclean election: what the recorded offset allows was replaced there, and both sides used one leader epoch for different records.
func TestF84FailbackAfterAnUncleanElection(t *testing.T) {
	c := rough(t)
	topic := "f84-unclean"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	r := open(t, c)
	r.start(topic)
	produceTens(t, c, topic, "on both", 8)
	lives.Freeze(t, c, topic, 3)
	produceTens(t, c, topic, "on broker 2 only", 1)
	r.same(topic, 0, 90)
	r.link.Cut()
	if got := r.failover().Partitions[0]; got.FinalOffset != 90 {
		t.Fatalf("%+v", got)
	}
	lives.FreezeLeader(t, c, topic, 2)
	epoch := lives.Elect(t, c, topic, 3)
	tp := mirror.TopicPartition{Topic: topic}
	raised, err := r.dst.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{tp: epoch})
	if err != nil {
		t.Fatal(err)
	}
	if raised[tp] != epoch {
		t.Fatalf("the new primary is at leader epoch %d, the old cluster at %d", raised[tp], epoch)
	}
	writeTo(t, r.dst, topic, lives.Values("new primary", 20)...)
	produceTens(t, c, topic, "on broker 3, other", 2) // 80..99

	old, _ := revive(t, c, topic, id)
	c.Resume(2)
	plan, sink := failback(t, topic, r.dst, old)
	if p := plan.Partitions[0]; p.CommonPoint != mirror.KnownNumber(80) || plan.Dropped != 20 || sink.from != 80 || sink.to != 100 {
		t.Errorf("common point %s, %d dropped, [%d,%d) handed out; want 80, 20 and [80,100)", p.CommonPoint, plan.Dropped, sink.from, sink.to)
	}
	c.WaitReady()
}
