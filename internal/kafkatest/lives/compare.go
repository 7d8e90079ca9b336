package lives

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// piece is one batch, cut out of a log by the three header fields that say where it ends. Nothing of package batch is used, so that its errors cannot hide.
type piece struct {
	base, next int64
	raw        []byte
}

func pieces(log []byte) ([]piece, error) {
	var all []piece
	for at := 0; at < len(log); {
		rest := log[at:]
		if len(rest) < 27 {
			return all, fmt.Errorf("%d bytes too many at byte %d", len(rest), at)
		}
		base := int64(binary.BigEndian.Uint64(rest))
		size := 12 + int(int32(binary.BigEndian.Uint32(rest[8:])))
		if size < 61 || size > len(rest) {
			return all, fmt.Errorf("a batch of %d bytes at byte %d, where %d are left", size, at, len(rest))
		}
		all = append(all, piece{base, base + int64(int32(binary.BigEndian.Uint32(rest[23:]))) + 1, rest[:size]})
		at += size
	}
	return all, nil
}

// Since drops the batches that end below start, as a log whose start was raised still has them on disk.
func Since(log []byte, start int64) ([]byte, error) {
	all, err := pieces(log)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, p := range all {
		if p.next > start {
			break
		}
		at += len(p.raw)
	}
	return log[at:], nil
}

// Difference says where two logs part; "" if nowhere.
func Difference(copied, source []byte) string {
	if bytes.Equal(copied, source) {
		return ""
	}
	a, errA := pieces(copied)
	b, errB := pieces(source)
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i].raw, b[i].raw) {
			at := 0
			for at < min(len(a[i].raw), len(b[i].raw)) && a[i].raw[at] == b[i].raw[at] {
				at++
			}
			return fmt.Sprintf("batch %d parts in byte %d: the copy has offsets [%d,%d) in %d bytes, the source [%d,%d) in %d bytes", i, at,
				a[i].base, a[i].next, len(a[i].raw), b[i].base, b[i].next, len(b[i].raw))
		}
	}
	return fmt.Sprintf("the copy has %d batches in %d bytes (%v), the source %d in %d (%v)", len(a), len(copied), errA, len(b), len(source), errB)
}

// WhichOffset is one of a log's offsets.
type WhichOffset string

// The offsets.
const (
	Earliest   WhichOffset = "log start"
	Latest     WhichOffset = "high watermark"
	LastStable WhichOffset = "last stable offset"
)

// Ask sends one request to one broker, so that no broker that stands still is asked by chance.
func Ask[R any](t kafkatest.T, c *kafkatest.Cluster, broker int32, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	raw, err := c.AdminClient().Broker(int(broker)).Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return raw.(R), nil
}

// OffsetOf is what the partition's leader says.
func OffsetOf(t kafkatest.T, c *kafkatest.Cluster, which WhichOffset, topic string, partition int32) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	switch which {
	case Earliest:
		rp.Timestamp = -2
	case LastStable:
		req.IsolationLevel = 1
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	offset := int64(-1)
	Eventually(t, fmt.Sprintf("%s-%d tells its %s", topic, partition, which), func() (bool, string) {
		resp, err := Ask[*kmsg.ListOffsetsResponse](t, c, c.LeaderOf(topic, partition), req)
		if err != nil {
			return false, err.Error()
		}
		p := resp.Topics[0].Partitions[0]
		offset = p.Offset
		return p.ErrorCode == 0, fmt.Sprint(kerr.ErrorForCode(p.ErrorCode))
	})
	return offset
}

// TopicID is a topic's id.
func TopicID(t kafkatest.T, c *kafkatest.Cluster, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := Ask[*kmsg.MetadataResponse](t, c, 1, req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return resp.Topics[0].TopicID
}

// Fetch reads the batches of [start, end) as a consumer does, and returns them as they came.
func Fetch(t kafkatest.T, c *kafkatest.Cluster, topic string, partition int32, start, end int64) []byte {
	t.Helper()
	id := TopicID(t, c, topic)
	var all []byte
	for at := start; at < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 50<<20
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = topic, id
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, at, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := Ask[*kmsg.FetchResponse](t, c, c.LeaderOf(topic, partition), req)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			t.Fatalf("%v", err)
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			t.Fatalf("%v", err)
		}
		whole, _ := pieces(got.RecordBatches) // the last one may be cut
		if len(whole) == 0 {
			t.Fatalf("fetch of %s-%d at %d of %d brings nothing", topic, partition, at, end)
		}
		for _, p := range whole {
			all, at = append(all, p.raw...), p.next
		}
	}
	return all
}

// Headers are those of a log that was compared already.
func Headers(log []byte) []batch.Header {
	var all []batch.Header
	for h := range batch.All(log) {
		all = append(all, h)
	}
	return all
}
