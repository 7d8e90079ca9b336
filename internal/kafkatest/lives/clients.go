package lives

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

var (
	// Plain makes a producer without producer ids.
	Plain = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(kgo.NoCompression())}
	// OldProtocol keeps a client from transactions v2 (KIP-890).
	OldProtocol = kgo.MaxVersions(kversion.V3_7_0())
)

// Client is an idempotent producer without compression, unless options say otherwise. Records that are produced together become one batch.
func Client(c *kafkatest.Cluster, more ...kgo.Opt) *kgo.Client {
	return c.Client(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(20 * time.Millisecond),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.TransactionTimeout(time.Minute), kgo.RecordDeliveryTimeout(Bound),
		kgo.RequestTimeoutOverhead(2 * time.Second)}, more...)...)
}

// Produce writes values as one batch (if they fit) and waits for all replicas.
func Produce(t kafkatest.T, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s-%d: %v", topic, partition, err)
	}
}

// Values are n different ones.
func Values(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s %d", name, i)
	}
	return all
}

// Begin begins a transaction.
func Begin(t kafkatest.T, cl *kgo.Client) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatalf("%v", err)
	}
}

// Finish ends the transaction and waits until the marker is in the log: it is written after the client has its answer.
func Finish(t kafkatest.T, c *kafkatest.Cluster, cl *kgo.Client, how kgo.TransactionEndTry, topic string, partition int32) {
	t.Helper()
	before := OffsetOf(t, c, Latest, topic, partition)
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatalf("%v", err)
	}
	Eventually(t, "the marker is written", func() (bool, string) {
		now := OffsetOf(t, c, Latest, topic, partition)
		return now > before, fmt.Sprintf("the log ends at %d", now)
	})
}

// Transaction is one whole transaction of one batch.
func Transaction(t kafkatest.T, c *kafkatest.Cluster, cl *kgo.Client, how kgo.TransactionEndTry, topic string, partition int32, values ...string) {
	t.Helper()
	Begin(t, cl)
	Produce(t, cl, topic, partition, values...)
	Finish(t, c, cl, how, topic, partition)
}

// ProduceRaw sends one batch as it is.
func ProduceRaw(t kafkatest.T, c *kafkatest.Cluster, topic string, id [16]byte, partition int32, spec batch.DataSpec) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch.AppendData(nil, spec)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw, err := c.AdminClient().Broker(int(c.LeaderOf(topic, partition))).Request(t.Context(), req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := kerr.ErrorForCode(raw.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Fatalf("produce to %s-%d: %v", topic, partition, err)
	}
}

// RecordOf is some record of a topic.
func RecordOf(topic string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte("x")} }
