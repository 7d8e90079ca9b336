package verify

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// copyOf is a closed copy in memory of what a side shows now, byte for byte as a mirror appends it.
func copyOf(t *testing.T, side Side) mirror.Log {
	t.Helper()
	c := memlog.New(memlog.Config{})
	t.Cleanup(func() { c.Close() })
	p := side.Partition()
	if _, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: p.Topic, Partitions: p.Partition + 1}); err != nil {
		t.Fatal(err)
	}
	log, err := c.OpenLog(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	epochs, err := c.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{p: 100})
	if err != nil {
		t.Fatal(err)
	}
	bounds, err := side.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for log.End() < bounds.End {
		b, err := side.Read(t.Context(), log.End(), 1<<20)
		if err != nil || len(b) == 0 {
			t.Fatalf("reading at %d of [%d,%d): %v", log.End(), bounds.Start, bounds.End, err)
		}
		if err := log.Append(t.Context(), epochs[p], slices.Clone(b)); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// kafkaSide is a side over a topic of a real cluster.
func kafkaSide(t *testing.T, c *kafkatest.Cluster, topic string) *FetchSide {
	t.Helper()
	source, err := kafkasource.New(kafkasource.Config{Seeds: c.Bootstrap(), Bound: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	side := SourceSide(source, mirror.TopicPartition{Topic: topic}, SourceOptions{Fetch: mirror.FetchOptions{MaxWait: 50 * time.Millisecond}})
	t.Cleanup(func() { side.Close(); source.Close() })
	return side
}

func TestRealKafkaAndACopyOfIt(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Config: map[string]string{"log.cleaner.backoff.ms": "100"}})
	t.Run("cleaned", func(t *testing.T) { cleansTheSourceAndNotTheCopy(t, c) })
	t.Run("plain", func(t *testing.T) { isEqualByteByByte(t, c) })
}

// The source's broker cleans: batches of all codecs, tombstones, an aborted transaction. The copy keeps what was there before. Nothing of that is a mismatch; one flipped byte of the copy is, wherever it is.
func cleansTheSourceAndNotTheCopy(t *testing.T, c *kafkatest.Cluster) {
	const topic = "verify-cleaned"
	c.CreateTopic(kafkatest.Topic{Name: topic, Configs: map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "segment.ms": "50", "delete.retention.ms": "3600000"}})
	for i, codec := range []kgo.CompressionCodec{kgo.Lz4Compression(), kgo.ZstdCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.NoCompression()} {
		cl := lives.Client(c, kgo.ProducerBatchCompression(codec))
		var keys []string
		for j := range 20 {
			keys = append(keys, fmt.Sprint("k", j), fmt.Sprint("only ", i, " ", j))
		}
		lives.Put(t, cl, topic, keys...)
	}
	plain := lives.Client(c, lives.Plain...)
	tombstones := []*kgo.Record{{Topic: topic, Key: []byte("k3")}, {Topic: topic, Key: []byte("k5"), Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}}
	if err := plain.ProduceSync(t.Context(), tombstones...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	aborting := lives.Client(c, kgo.TransactionalID("verify"))
	lives.Begin(t, aborting)
	if err := aborting.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k7"), Value: []byte("aborted")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	lives.Finish(t, c, aborting, kgo.TryAbort, topic, 0)
	lives.Put(t, plain, topic, "k1", "k2")
	lives.Put(t, plain, topic, "last but one")
	lives.Put(t, plain, topic, "last")

	side := kafkaSide(t, c, topic)
	whole := copyOf(t, side)
	r := look(t, side, LogSide(side.Partition(), whole), Options{Compacted: true})
	if !r.Equal() || r.Recordwise.Batches != 0 || r.Compacted != 0 {
		t.Fatalf("before it is cleaned: %s", &r)
	}
	before := c.SegmentBytes(topic, 0, 1)
	var alter []kadm.AlterConfig
	for name, value := range map[string]string{"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"} {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	if answers, err := c.Admin().AlterTopicConfigs(t.Context(), alter, topic); err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	lives.Cleaned(t, c, topic, []int32{1}, func(hs []batch.Header) bool {
		return len(hs) > 4 && hs[0].RecordCount < hs[0].LastOffsetDelta+1 && hs[3].RecordCount < hs[3].LastOffsetDelta+1
	})
	if bytes.Equal(before, c.SegmentBytes(topic, 0, 1)) {
		t.Fatal("nothing was cleaned")
	}

	r = look(t, side, LogSide(side.Partition(), whole), Options{Compacted: true})
	t.Logf("%s, clean from %d", &r, r.Clean)
	if !r.Equal() || r.Recordwise.Batches < 5 || r.Compacted < 80 || r.Bytewise.Batches == 0 || r.Clean <= r.From || r.Clean >= r.To {
		t.Errorf("after it is cleaned: %s, clean from %d", &r, r.Clean)
	}
	if cleaned := look(t, side, LogSide(side.Partition(), copyOf(t, side)), Options{Compacted: true}); !cleaned.Equal() || cleaned.Recordwise.Batches != 0 {
		t.Errorf("a copy of what is cleaned: %s", &cleaned)
	}
	// One bit of each batch of the uncleaned copy, at a place that moves through the batch.
	var bases []int64
	for info := range mirror.Batches(all(t, whole)) {
		bases = append(bases, info.Base)
	}
	found := 0
	for i, base := range bases {
		bad := named{diskOf(split(all(t, whole))...), side.Partition()}
		bad.batches[i][len(bad.batches[i])-1-i] ^= 0x10
		r := look(t, side, bad, Options{Compacted: true})
		if m := r.Mismatch; m == nil || m.Offset != base {
			t.Errorf("batch %d: %s", base, &r)
			continue
		}
		found++
	}
	t.Logf("%d of %d flipped bits were found", found, len(bases))
}

func all(t *testing.T, log mirror.Log) []byte {
	t.Helper()
	var b []byte
	for at := log.Start(); at < log.End(); {
		some, err := log.Read(t.Context(), at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, some...)
		for info := range mirror.Batches(some) {
			at = info.Next()
		}
	}
	return b
}

// A topic without compaction, with transactions and all codecs, while it is written and its old records are deleted.
func isEqualByteByByte(t *testing.T, c *kafkatest.Cluster) {
	const topic = "verify-plain"
	c.CreateTopic(kafkatest.Topic{Name: topic})
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(), kgo.GzipCompression(), kgo.SnappyCompression()} {
		cl := lives.Client(c, kgo.ProducerBatchCompression(codec))
		for j := range 5 {
			lives.Produce(t, cl, topic, 0, lives.Values(fmt.Sprint(i, " ", j), 10)...)
		}
	}
	lives.Transaction(t, c, lives.Client(c, kgo.TransactionalID("a")), kgo.TryCommit, topic, 0, "x", "y")
	lives.Transaction(t, c, lives.Client(c, kgo.TransactionalID("b")), kgo.TryAbort, topic, 0, "z")
	side := kafkaSide(t, c, topic)
	log := copyOf(t, side)
	lives.Produce(t, lives.Client(c), topic, 0, "later")
	r := look(t, side, LogSide(side.Partition(), log), Options{})
	t.Logf("%s", &r)
	if !r.Equal() || r.Bytewise.Batches < 29 || r.To != log.End() || r.A.End != log.End()+1 {
		t.Errorf("%s", &r)
	}
	for _, at := range []int{14, 40, 70} {
		bad := named{diskOf(split(all(t, log))...), side.Partition()}
		i := slices.IndexFunc(bad.last, func(last int64) bool { return last >= 100 })
		h, _, _ := batch.Next(bad.batches[i])
		bad.batches[i][at] ^= 1
		if r := look(t, side, bad, Options{}); r.Mismatch == nil || r.Mismatch.Offset != h.BaseOffset || r.Mismatch.Byte != at {
			t.Errorf("byte %d of batch %d: %s", at, h.BaseOffset, &r)
		}
	}
	c.DeleteRecords(topic, 0, 101)
	r = look(t, side, LogSide(side.Partition(), log), Options{})
	if want := []Uncomparable{{Retention, "a", 0, 101}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) {
		t.Errorf("%s", &r)
	}
}

// named is a log as another partition's.
type named struct {
	*disk
	partition mirror.TopicPartition
}

func (n named) Partition() mirror.TopicPartition { return n.partition }

func split(b []byte) (batches [][]byte) {
	for _, one := range mirror.Batches(b) {
		batches = append(batches, one)
	}
	return batches
}
