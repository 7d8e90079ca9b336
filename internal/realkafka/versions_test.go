package realkafka_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// The basic life of a mirror, whatever Kafka the source is: plain and transactional batches, a failover with a transaction open, and back.
func TestBasicLifeOnOtherVersions(t *testing.T) {
	kafkatest.Require(t)
	versions := []string{"3.9.1"}
	switch v := os.Getenv("CLUSTERMIRROR_MATRIX"); v {
	case "":
	case "all":
		versions = append(versions, "4.0.0", "4.1.1", "4.4.0")
	default:
		t.Fatalf("CLUSTERMIRROR_MATRIX=%q is unknown: leave it empty, or use all", v)
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { basicLife(t, kafkatest.Start(t, kafkatest.Options{Version: v})) })
	}
}

func basicLife(t *testing.T, c *kafkatest.Cluster) {
	topic := "basic-life"
	id := c.CreateTopic(kafkatest.Topic{Name: topic})
	r := open(t, c)
	r.start(topic)
	lives.Produce(t, lives.Client(c, lives.Plain...), topic, 0, lives.Values("plain", 5)...)                 // 0..4
	lives.Produce(t, lives.Client(c, kgo.ProducerBatchCompression(kgo.GzipCompression())), topic, 0, "gzip") // 5
	tx := lives.Client(c, kgo.TransactionalID(topic))
	lives.Transaction(t, c, tx, kgo.TryCommit, topic, 0, lives.Values("committed", 3)...) // 6..9
	lives.Transaction(t, c, tx, kgo.TryAbort, topic, 0, lives.Values("aborted", 3)...)    // 10..13
	sameProducers(t, c, topic, r.same(topic, 0, 14))
	lives.Begin(t, tx)
	lives.Produce(t, tx, topic, 0, "open") // 14
	copied := r.same(topic, 0, 15)
	sameProducers(t, c, topic, copied)
	if at := r.sameLastStable(topic); at != 14 {
		t.Errorf("last stable offset %d", at)
	}
	c.DeleteRecords(topic, 0, 2)
	copied = r.sameFrom(topic, 15, 2)
	r.link.Cut()
	lives.Finish(t, c, tx, kgo.TryCommit, topic, 0) // 15

	got := r.failover().Partitions[0]
	if got.FinalOffset != 15 || len(got.Aborts) != 1 || got.OpensAt != 17 {
		t.Fatalf("%+v", got)
	}
	records, err := r.dst.Consume(t.Context(), topic, 0, 2, memlog.ReadCommitted)
	if err != nil || len(records) != 7 {
		t.Errorf("%d committed records, %v; want 2 to 8", len(records), err)
	}
	writeTo(t, r.dst, topic, lives.Values("new primary", 5)...)
	old, _ := revive(t, c, topic, id)
	plan, _ := failback(t, topic, r.dst, old)
	if plan.Dropped != 1 {
		t.Errorf("the plan drops %d", plan.Dropped)
	}
	now, err := old.RawLog(topic, 0)
	if err != nil || !bytes.HasPrefix(now, copied) {
		t.Errorf("what both had was not kept: %v", err)
	}
}
