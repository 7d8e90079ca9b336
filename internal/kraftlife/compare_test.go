package kraftlife_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"
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

// since drops the batches that end below start, as a log whose start was raised still has them on disk.
func since(log []byte, start int64) ([]byte, error) {
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

// difference says where two logs part; "" if nowhere.
func difference(copied, source []byte) string {
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

func TestDifferenceSaysNo(t *testing.T) {
	log := batch.AppendData(nil, batch.DataSpec{BaseOffset: 5, LeaderEpoch: 3, ProducerID: -1, Records: []batch.Record{{Value: []byte("one")}}})
	first := len(log)
	log = batch.AppendData(log, batch.DataSpec{BaseOffset: 6, LeaderEpoch: 3, ProducerID: -1, Records: []batch.Record{{Value: []byte("two")}}})
	if d := difference(bytes.Clone(log), log); d != "" {
		t.Fatal(d)
	}
	for i := range log {
		other := bytes.Clone(log)
		other[i] ^= 1
		if difference(other, log) == "" {
			t.Errorf("a flipped bit in byte %d is not seen", i)
		}
	}
	shifted := bytes.Clone(log)
	batch.SetBaseOffset(shifted[first:], 7)
	for name, other := range map[string][]byte{"a missing batch": log[:first], "a missing first batch": log[first:], "a cut batch": log[:first+30], "a shifted batch": shifted, "nothing": nil} {
		if difference(other, log) == "" || difference(log, other) == "" {
			t.Errorf("%s is not seen", name)
		}
	}
	for start, want := range map[int64]int{0: 0, 5: 0, 6: first, 7: len(log), 9: len(log)} {
		got, err := since(log, start)
		if err != nil || len(got) != len(log)-want {
			t.Errorf("since %d: %d bytes, %v; want %d", start, len(got), err, len(log)-want)
		}
	}
	if _, err := since(log[:first+30], 9); err == nil {
		t.Error("a cut batch is not an error")
	}
}

// same compares a partition of the mirror, on the disk of every broker of the destination, with the files on the disk of the source's leader, and with what a raw fetch of a consumer
// brings from there. end is where all must end. It returns the copy's bytes.
func (r *running) same(topic string, partition int32, end int64) []byte {
	r.t.Helper()
	r.inStep(topic, partition, end)
	return sameLogs(r.t, r.to.c, r.from, topic, partition, end)
}

// sameLogs compares a partition on the disks of all brokers of one cluster with that of the leader in another one. Batches below the source's log start may still lie on a disk.
func sameLogs(t *testing.T, to, from *kafkatest.Cluster, topic string, partition int32, end int64) []byte {
	t.Helper()
	start := offsetOf(t, from, earliest, topic, partition)
	disk, err := since(from.SegmentBytes(topic, partition, from.LeaderOf(topic, partition)), start)
	if err != nil {
		t.Fatalf("segments of %s-%d at the source: %v", topic, partition, err)
	}
	var copied []byte
	for _, id := range to.Brokers() {
		eventually(t, fmt.Sprintf("%s-%d on broker %d is that of the source", topic, partition, id), func() (bool, string) {
			if copied, err = since(to.SegmentBytes(topic, partition, id), start); err != nil {
				return false, err.Error()
			}
			d := difference(copied, disk)
			return d == "", d
		})
	}
	if len(copied) == 0 {
		t.Fatalf("the copy of %s-%d holds nothing", topic, partition)
	}
	if d := difference(copied, fetch(t, from, topic, partition, start, end)); d != "" {
		t.Fatalf("%s-%d and a fetch from the source: %s", topic, partition, d)
	}
	return copied
}

type whichOffset string

const (
	earliest   whichOffset = "log start"
	latest     whichOffset = "high watermark"
	lastStable whichOffset = "last stable offset"
)

// ask sends one request to one broker, so that no broker that stands still is asked by chance.
func ask[R any](t *testing.T, c *kafkatest.Cluster, broker int32, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	raw, err := c.AdminClient().Broker(int(broker)).Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return raw.(R), nil
}

func offsetOf(t *testing.T, c *kafkatest.Cluster, which whichOffset, topic string, partition int32) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	switch which {
	case earliest:
		rp.Timestamp = -2
	case lastStable:
		req.IsolationLevel = 1
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	offset := int64(-1)
	eventually(t, fmt.Sprintf("%s-%d tells its %s", topic, partition, which), func() (bool, string) {
		resp, err := ask[*kmsg.ListOffsetsResponse](t, c, c.LeaderOf(topic, partition), req)
		if err != nil {
			return false, err.Error()
		}
		p := resp.Topics[0].Partitions[0]
		offset = p.Offset
		return p.ErrorCode == 0, fmt.Sprint(kerr.ErrorForCode(p.ErrorCode))
	})
	return offset
}

func topicID(t *testing.T, c *kafkatest.Cluster, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := ask[*kmsg.MetadataResponse](t, c, 1, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].TopicID
}

// fetch reads the batches of [start, end) as a consumer does, and returns them as they came.
func fetch(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, start, end int64) []byte {
	t.Helper()
	id := topicID(t, c, topic)
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
		resp, err := ask[*kmsg.FetchResponse](t, c, c.LeaderOf(topic, partition), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			t.Fatal(err)
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			t.Fatal(err)
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

// headers are those of a log that was compared already.
func headers(log []byte) []batch.Header {
	var all []batch.Header
	for h := range batch.All(log) {
		all = append(all, h)
	}
	return all
}
