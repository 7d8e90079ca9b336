//go:build record

package realkafka_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// TestRecord writes testdata/kafka/recorded anew, see the README.md there:
//
//	go test -tags record -run 'TestRecord$' ./internal/realkafka
func TestRecord(t *testing.T) {
	kafkatest.Require(t)
	c := kafkatest.Start(t, kafkatest.Options{})
	topic := func(name string, configs map[string]string) string {
		c.CreateTopic(kafkatest.Topic{Name: name, Configs: configs})
		return name
	}

	// Each codec, by an idempotent producer.
	name := topic("codecs", nil)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, codec := range codecs {
		cl := c.Client(kgo.ProducerBatchCompression(codec))
		records := []*kgo.Record{
			{Topic: name, Key: []byte("k"), Value: []byte(strings.Repeat("compressible ", 20))},
			{Topic: name, Value: nil, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "null"}}},
			{Topic: name, Key: []byte{}, Value: []byte{}},
		}
		if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	record(t, c, name, 3*int64(len(codecs)))

	// Transactions: committed, aborted, open; by both protocols. A marker takes one offset.
	for name, protocol := range map[string][]kgo.Opt{"transactions-v1": {lives.OldProtocol}, "transactions-v2": nil} {
		topic(name, nil)
		cl := lives.Client(c, append(protocol, kgo.TransactionalID(name))...)
		for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			lives.Begin(t, cl)
			lives.Put(t, cl, name, "a", "b")
			lives.Finish(t, c, cl, how, name, 0)
		}
		lives.Begin(t, cl)
		lives.Put(t, cl, name, "open")
		record(t, c, name, 7)
	}

	// Compaction: a batch that was emptied, one that lost a record in its middle, and one that is gone.
	name = topic("compacted", lives.Compacted)
	first, second, last := lives.Client(c), lives.Client(c), lives.Client(c)
	lives.Put(t, first, name, "a")
	lives.Put(t, second, name, "b", "c", "d", "e")
	lives.Put(t, first, name, "f", "g", "h")
	lives.Put(t, lives.Client(c, lives.Plain...), name, "i", "j")
	lives.Put(t, last, name, "b", "c", "d", "e", "g", "i", "j", "z")
	lives.Put(t, lives.Client(c, lives.Plain...), name, "active")
	lives.Put(t, lives.Client(c, lives.Plain...), name, "still active")
	lives.Cleaned(t, c, name, []int32{1}, func(hs []batch.Header) bool {
		for _, h := range hs {
			if h.BaseOffset == 1 {
				return h.RecordCount == 0
			}
		}
		return false
	})
	record(t, c, name, 20)
}

// record writes what the broker answers to fetches of the whole log: the first answer, and the batches in all of them.
func record(t *testing.T, c *kafkatest.Cluster, topic string, end int64) {
	t.Helper()
	lives.Eventually(t, topic+" is there", func() (bool, string) {
		return lives.OffsetOf(t, c, lives.Latest, topic, 0) == end, "its end is not there yet"
	})
	metadata, err := lives.Ask[*kmsg.MetadataResponse](t, c, 1, func() kmsg.Request {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &topic
		req.Topics = append(req.Topics, rt)
		return req
	}())
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.IsolationLevel = 1<<20, 1, 1000, 0
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, metadata.Topics[0].TopicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := lives.Ask[*kmsg.FetchResponse](t, c, 1, req)
	if err != nil || len(answer.Topics) != 1 || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%v, %+v", err, answer)
	}
	batches := lives.Fetch(t, c, topic, 0, 0, end) // one answer ends with a segment
	next := int64(0)
	for h := range batch.All(batches) {
		next = h.NextOffset()
	}
	if next != end {
		t.Fatalf("%s: the answers end at %d, the log at %d", topic, next, end)
	}
	folder := filepath.Join("..", "..", "testdata", "kafka", "recorded")
	for suffix, b := range map[string][]byte{".batches": batches, ".fetch": answer.AppendTo(nil)} {
		if err := os.WriteFile(filepath.Join(folder, topic+suffix), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
