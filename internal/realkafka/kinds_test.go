package realkafka_test

import (
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// kind is one kind of batch: how it is written to a partition, where the log ends then, and what must be seen in it, so that the test is about that kind.
type kind struct {
	name  string
	write func(t *testing.T, c *kafkatest.Cluster, topic string, partition int32)
	end   int64
	is    func(headers []batch.Header) bool
}

func codec(name string, c kgo.CompressionCodec, want int8) kind {
	return kind{name, func(t *testing.T, cluster *kafkatest.Cluster, topic string, partition int32) {
		cl := lives.Client(cluster, kgo.ProducerBatchCompression(c))
		lives.Produce(t, cl, topic, partition, lives.Values("the same words again and again", 20)...)
		lives.Produce(t, cl, topic, partition, lives.Values("the same words again and again", 20)...)
	}, 40, func(hs []batch.Header) bool { return len(hs) == 2 && hs[0].Codec() == want && hs[1].Codec() == want }}
}

// transactions commits one and aborts one, and says what the epochs of data and markers are from one to the next.
func transactions(name string, epochs [4]int16, opts ...kgo.Opt) kind {
	return kind{name, func(t *testing.T, c *kafkatest.Cluster, topic string, partition int32) {
		cl := lives.Client(c, append(opts, kgo.TransactionalID(t.Name()+name))...)
		lives.Transaction(t, c, cl, kgo.TryCommit, topic, partition, "a", "b")
		lives.Transaction(t, c, cl, kgo.TryAbort, topic, partition, "c", "d")
	}, 6, func(hs []batch.Header) bool {
		if len(hs) != 4 || hs[0].Control() || !hs[1].Control() || hs[2].Control() || !hs[3].Control() {
			return false
		}
		for i, h := range hs {
			if !h.Transactional() || h.ProducerEpoch-hs[0].ProducerEpoch != epochs[i] {
				return false
			}
		}
		return true
	}}
}

var kinds = []kind{
	{"plain", func(t *testing.T, c *kafkatest.Cluster, topic string, partition int32) {
		cl := lives.Client(c, lives.Plain...)
		for _, v := range lives.Values("plain", 5) {
			lives.Produce(t, cl, topic, partition, v)
		}
	}, 5, func(hs []batch.Header) bool { return len(hs) == 5 && hs[0].ProducerID == -1 }},
	{"idempotent", func(t *testing.T, c *kafkatest.Cluster, topic string, partition int32) {
		cl := lives.Client(c)
		lives.Produce(t, cl, topic, partition, lives.Values("first", 3)...)
		lives.Produce(t, cl, topic, partition, lives.Values("second", 4)...)
	}, 7, func(hs []batch.Header) bool { return len(hs) == 2 && hs[0].ProducerID >= 0 && hs[1].BaseSequence == 3 }},
	transactions("transactions v1", [4]int16{0, 0, 0, 0}, lives.OldProtocol),
	transactions("transactions v2", [4]int16{0, 1, 1, 2}),
	codec("none", kgo.NoCompression(), batch.CodecNone),
	codec("gzip", kgo.GzipCompression(), batch.CodecGzip),
	codec("snappy", kgo.SnappyCompression(), batch.CodecSnappy),
	codec("lz4", kgo.Lz4Compression(), batch.CodecLZ4),
	codec("zstd", kgo.ZstdCompression(), batch.CodecZstd),
	{"larger than a fetch of its partition", func(t *testing.T, c *kafkatest.Cluster, topic string, partition int32) {
		cl := lives.Client(c, kgo.ProducerBatchMaxBytes(8<<20))
		big := make([]byte, 3<<20)
		rand.Read(big)
		lives.Produce(t, cl, topic, partition, "before")
		lives.Produce(t, cl, topic, partition, string(big))
		lives.Produce(t, cl, topic, partition, "after")
	}, 3, func(hs []batch.Header) bool { return len(hs) == 3 && hs[1].Size() > 3<<20 }},
}

// Each kind of batch has a partition of its own; one mirror copies them all.
func TestSpec4EveryKindOfBatchIsCopiedByteForByte(t *testing.T) {
	c := shared(t)
	topic := "every-kind"
	c.CreateTopic(kafkatest.Topic{Name: topic, Partitions: len(kinds), Replication: 3, Configs: map[string]string{"max.message.bytes": "10485760"}})
	r := open(t, c)
	r.start(topic)
	for p, k := range kinds {
		k.write(t, c, topic, int32(p))
	}
	for p, k := range kinds {
		if hs := lives.Headers(r.same(topic, int32(p), k.end)); !k.is(hs) {
			t.Errorf("%s: the log holds something else: %+v", k.name, hs)
		}
	}
}

func TestSpec4LogAppendTimeIsKept(t *testing.T) {
	c := shared(t)
	topic := "log-append-time"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3, Configs: map[string]string{"message.timestamp.type": "LogAppendTime"}})
	cl := lives.Client(c, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	lives.Produce(t, cl, topic, 0, lives.Values("the same words", 10)...)
	lives.Produce(t, lives.Client(c), topic, 0, "uncompressed")
	r := open(t, c)
	r.start(topic)
	for _, h := range lives.Headers(r.same(topic, 0, 11)) {
		if !h.LogAppendTime() {
			t.Errorf("the batch at %d has its producer's time", h.BaseOffset)
		}
	}
}

func TestF01TrailingMarkerOfRealKafka(t *testing.T) {
	c := shared(t)
	topic := "f01-trailing-marker"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c, kgo.TransactionalID(topic))
	lives.Transaction(t, c, cl, kgo.TryCommit, topic, 0, lives.Values("in a transaction", 5)...)
	r := open(t, c)
	r.start(topic)
	r.same(topic, 0, 6)
	// Nothing is asked for below the end any more: the marker's offset counts. Every fetch that brings something would show as a batch that cannot be appended.
	lives.Produce(t, lives.Client(c, lives.Plain...), topic, 0, "later")
	hs := lives.Headers(r.same(topic, 0, 7))
	if len(hs) != 3 || !hs[1].Control() || hs[1].BaseOffset != 5 || hs[2].BaseOffset != 6 {
		t.Errorf("%+v", hs)
	}
	if lost := told[recordsDropped](r); len(lost) != 0 {
		t.Error(lost)
	}
}

func TestF07LogStartInsideARealBatch(t *testing.T) {
	c := shared(t)
	topic := "f07-start-inside"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	lives.Produce(t, cl, topic, 0, lives.Values("the same words", 10)...)
	lives.Produce(t, cl, topic, 0, lives.Values("the same words", 10)...)
	c.DeleteRecords(topic, 0, 5)
	r := open(t, c)
	r.start(topic)
	hs := lives.Headers(r.same(topic, 0, 20))
	if len(hs) != 2 || hs[0].BaseOffset != 0 || hs[0].LastOffset() != 9 || hs[0].Codec() != batch.CodecGzip {
		t.Errorf("the batch around the log start is not there as it was: %+v", hs)
	}
}

func TestF17OddTimestampsOfRealKafka(t *testing.T) {
	c := shared(t)
	topic := "f17-odd-timestamps"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3, Configs: map[string]string{"message.timestamp.after.max.ms": "9223372036854775807", "retention.ms": "-1"}})
	times := []int64{-1, 0, time.Date(1970, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), math.MaxInt64}
	for _, at := range times {
		lives.ProduceRaw(t, c, topic, id, 0, batch.DataSpec{LeaderEpoch: -1, ProducerID: -1, BaseTimestamp: at, MaxTimestamp: at, Records: []batch.Record{{Value: []byte("odd")}}})
	}
	r := open(t, c)
	r.start(topic)
	hs := lives.Headers(r.same(topic, 0, int64(len(times))))
	for i, h := range hs {
		if h.MaxTimestamp != times[i] {
			t.Errorf("the record at %d has time %d, want %d", i, h.MaxTimestamp, times[i])
		}
	}
}
