package kraftlife_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// The basic life of a mirror, whatever Kafka both sides are: plain and transactional batches, a failover with a transaction open, and home again into a log that went on.
func TestVersions(t *testing.T) {
	kafkatest.Require(t)
	versions := []string{"3.9.1", "4.4.0"}
	switch v := os.Getenv("CLUSTERMIRROR_MATRIX"); v {
	case "":
	case "all":
		versions = append(versions, "4.0.0", "4.1.1", "4.3.1")
	default:
		t.Fatalf("CLUSTERMIRROR_MATRIX=%q is unknown: leave it empty, or use all", v)
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			basicLife(t, kafkatest.Start(t, kafkatest.Options{Version: v}), kafkatest.Start(t, kafkatest.Options{Version: v}))
		})
	}
}

func basicLife(t *testing.T, a, b *kafkatest.Cluster) {
	topic := "basic-life"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	at := lives.Join(t, b)
	there := lives.Open(t, "there", a, at)
	there.Start(topic)
	lives.Produce(t, lives.Client(a, lives.Plain...), topic, 0, lives.Values("plain", 5)...)                 // 0..4
	lives.Produce(t, lives.Client(a, kgo.ProducerBatchCompression(kgo.GzipCompression())), topic, 0, "gzip") // 5
	left := lives.Client(a, kgo.TransactionalID(topic))
	lives.Transaction(t, a, left, kgo.TryCommit, topic, 0, lives.Values("committed", 3)...) // 6..9
	lives.Transaction(t, a, left, kgo.TryAbort, topic, 0, lives.Values("aborted", 3)...)    // 10..13
	lives.Begin(t, left)
	lives.Produce(t, left, topic, 0, "open") // 14
	copied := there.Same(topic, 0, 15)
	there.Link.Cut()
	lives.Finish(t, a, left, kgo.TryCommit, topic, 0) // 15

	got := there.Failover().Partitions[0]
	if got.FinalOffset != 15 || len(got.Aborts) != 1 || got.OpensAt != 17 {
		t.Fatalf("%+v", got)
	}
	there.End()
	at.Leave()
	lives.NoTrace(t, b, topic)
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("new primary", 5)...) // 17..21
	want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 19, 20, 21}
	if got := lives.Committed(t, b, topic, 0, 21); !slices.Equal(got, want) {
		t.Errorf("read_committed: %v, want %v", got, want)
	}

	old := lives.Join(t, a)
	back := lives.Open(t, "back", b, old)
	if plan := back.Failback(topic); plan.Dropped != 1 {
		t.Errorf("the plan drops %d", plan.Dropped)
	}
	if now := back.Same(topic, 0, 22); !bytes.HasPrefix(now, copied) {
		t.Errorf("what both had was not kept: %s", lives.Difference(now, copied))
	}
	back.Failover()
	back.End()
	old.Leave()
	lives.NoTrace(t, a, topic)
	lives.Produce(t, lives.Client(a), topic, 0, "home again") // 23
	if got := lives.Committed(t, a, topic, 0, 23); !slices.Equal(got, append(want, 23)) {
		t.Errorf("read_committed at home: %v, want %v", got, append(want, 23))
	}
}
