package replicareader

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// failer is what the model needs of a test; *rapid.T is one too.
type failer interface {
	Errorf(format string, args ...any)
}

// copyModel is one broker's copy.
type copyModel struct {
	start, end, stable int64
	batches            [][]byte
	code               int16 // answered to everything
}

// place is where a copy lies.
type place struct {
	broker    int32
	topic     string
	partition int32
}

// brokers is a Requester over copies in memory. It answers as Apache Kafka does, complains of what the package must not send, and passes every message through its encoding, so
// that a field which the version does not have is not there.
type brokers struct {
	t            failer
	fetchVersion int16
	ids          map[string]statemachine.TopicID
	copies       map[place]*copyModel
	spoil        func(broker int32, req kmsg.Request, resp kmsg.Response) (kmsg.Response, error) // nil: nothing

	mu       sync.Mutex
	requests []kmsg.Request
}

func newBrokers(t failer) *brokers {
	return &brokers{t: t, fetchVersion: 18, ids: map[string]statemachine.TopicID{}, copies: map[place]*copyModel{}}
}

// target makes the topic known.
func (b *brokers) target(topic string, partition int32) Target {
	if _, ok := b.ids[topic]; !ok {
		b.ids[topic] = statemachine.TopicID{0: 7, 15: byte(len(b.ids) + 1)}
	}
	return Target{Topic: topic, ID: b.ids[topic], Partition: partition}
}

// put gives a broker a copy whose ends are those of its batches.
func (b *brokers) put(broker int32, t Target, batches ...[]byte) *copyModel {
	c := &copyModel{batches: batches}
	for i, raw := range batches {
		h, _, _ := batch.Next(raw)
		if i == 0 {
			c.start = h.BaseOffset
		}
		c.end = h.NextOffset()
	}
	c.stable = c.end
	b.copies[place{broker, t.Topic, t.Partition}] = c
	return c
}

func (b *brokers) count(key kmsg.Key) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.Key() == key.Int16() {
			n++
		}
	}
	return n
}

func (b *brokers) Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	version := req.MaxVersion()
	if req.Key() == kmsg.Fetch.Int16() {
		version = b.fetchVersion
	}
	req.SetVersion(version)
	sent := kmsg.RequestForKey(req.Key())
	sent.SetVersion(version)
	if err := sent.ReadFrom(req.AppendTo(nil)); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.requests = append(b.requests, sent)
	b.mu.Unlock()
	var answer kmsg.Response
	switch r := sent.(type) {
	case *kmsg.ListOffsetsRequest:
		answer = b.listOffsets(id, r)
	case *kmsg.FetchRequest:
		if version >= 12 && version < 15 && r.ReplicaState.ID != -1 {
			return nil, fmt.Errorf("connection closed: tag 1 is not valid for version %d", version) // what a broker does
		}
		answer = b.fetch(id, r)
	default:
		b.t.Errorf("%T was sent", r)
		return nil, fmt.Errorf("%T", r)
	}
	if b.spoil != nil {
		spoiled, err := b.spoil(id, sent, answer)
		if err != nil {
			return nil, err
		}
		answer = spoiled
	}
	got := kmsg.ResponseForKey(answer.Key())
	got.SetVersion(answer.GetVersion())
	return got, got.ReadFrom(answer.AppendTo(nil))
}

// find is Kafka's look-up of a copy (ReplicaManager.getPartitionOrError).
func (b *brokers) find(broker int32, topic string, partition int32) (*copyModel, int16) {
	if c := b.copies[place{broker, topic, partition}]; c != nil {
		return c, c.code
	}
	for p := range b.copies {
		if p.topic == topic && p.partition == partition {
			return nil, kerr.NotLeaderForPartition.Code
		}
	}
	return nil, kerr.UnknownTopicOrPartition.Code
}

func (b *brokers) listOffsets(broker int32, r *kmsg.ListOffsetsRequest) kmsg.Response {
	if r.ReplicaID != -2 || r.IsolationLevel != 0 {
		b.t.Errorf("ListOffsets of replica %d, isolation %d", r.ReplicaID, r.IsolationLevel)
	}
	resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
	seen := map[place]bool{}
	asked := 0
	for _, rt := range r.Topics {
		at := kmsg.NewListOffsetsResponseTopic()
		at.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			if asked++; asked > 4000 {
				b.t.Errorf("more than 4000 partitions in one request")
			}
			ap := kmsg.NewListOffsetsResponseTopicPartition()
			ap.Partition = rp.Partition
			c, code := b.find(broker, rt.Topic, rp.Partition)
			if seen[place{0, rt.Topic, rp.Partition}] {
				b.t.Errorf("%s-%d is named twice", rt.Topic, rp.Partition)
				code = kerr.InvalidRequest.Code
			}
			seen[place{0, rt.Topic, rp.Partition}] = true
			switch ap.ErrorCode = code; {
			case code != 0:
				ap.Offset = -1
			case rp.Timestamp == -1:
				ap.Offset = c.end
			case rp.Timestamp == -2:
				ap.Offset = c.start
			default:
				b.t.Errorf("ListOffsets for timestamp %d", rp.Timestamp)
			}
			at.Partitions = append(at.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

func (b *brokers) fetch(broker int32, r *kmsg.FetchRequest) kmsg.Response {
	replica := r.ReplicaID
	if r.Version >= 15 {
		replica = r.ReplicaState.ID
	}
	if replica != -3 || r.MaxWaitMillis != 0 || r.SessionID != 0 || r.SessionEpoch != -1 || r.MaxBytes <= 0 || r.IsolationLevel != 0 || len(r.ForgottenTopics) > 0 {
		b.t.Errorf("unwanted Fetch of replica %d: %+v", replica, r)
	}
	resp := r.ResponseKind().(*kmsg.FetchResponse)
	left, first := int(r.MaxBytes), true
	for _, rt := range r.Topics {
		at := kmsg.NewFetchResponseTopic()
		at.Topic, at.TopicID = rt.Topic, rt.TopicID
		name := rt.Topic
		if r.Version >= 13 {
			name = ""
			for topic, id := range b.ids {
				if id == rt.TopicID {
					name = topic
				}
			}
		}
		for _, rp := range rt.Partitions {
			ap := kmsg.NewFetchResponseTopicPartition()
			ap.Partition, ap.HighWatermark, ap.LastStableOffset, ap.LogStartOffset = rp.Partition, -1, -1, -1
			c, code := b.find(broker, name, rp.Partition)
			if code == kerr.UnknownTopicOrPartition.Code && r.Version >= 13 {
				code = kerr.UnknownTopicID.Code
			}
			if code == 0 && (rp.FetchOffset < c.start || rp.FetchOffset > c.end) {
				code = kerr.OffsetOutOfRange.Code
			}
			if ap.ErrorCode = code; code == 0 {
				ap.HighWatermark, ap.LastStableOffset, ap.LogStartOffset = c.start, c.stable, c.start
				ap.RecordBatches = c.read(rp.FetchOffset, min(int(rp.PartitionMaxBytes), left), first)
				left = max(0, left-len(ap.RecordBatches))
				first = first && len(ap.RecordBatches) == 0
			}
			at.Partitions = append(at.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// read is a slice of the copy's file from the batch that contains from: cut at limit, but with one whole batch if that is asked for.
func (c *copyModel) read(from int64, limit int, one bool) (b []byte) {
	for _, raw := range c.batches {
		h, n, _ := batch.Next(raw)
		if h.LastOffset() < from {
			continue
		}
		if len(b) == 0 && one {
			limit = max(limit, n)
		}
		b = append(b, raw...)
		if len(b) >= limit {
			return b[:limit]
		}
	}
	return b
}

// data is one uncompressed batch of n records with about size bytes in all.
func data(base int64, epoch int32, n, size int) []byte {
	s := batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, ProducerID: -1, BaseTimestamp: 1}
	for i := range n {
		s.Records = append(s.Records, batch.Record{OffsetDelta: int32(i), Value: make([]byte, size/n)})
	}
	return batch.AppendData(nil, s)
}

// scanned are the entries that a cache has after every header of a copy.
func scanned(batches [][]byte, start, end int64) []logtrunc.Entry {
	var cache logtrunc.Cache
	for _, raw := range batches {
		if h, _, _ := batch.Next(raw); start < end && h.LastOffset() >= start && h.BaseOffset < end {
			cache.Assign(h.LeaderEpoch, h.BaseOffset)
		}
	}
	return cache.Entries()
}

func wantEpochs(t failer, got []logtrunc.Entry, want ...logtrunc.Entry) {
	if !slices.Equal(got, want) {
		t.Errorf("epochs %v, want %v", got, want)
	}
}

func joined(batches ...[]byte) []byte { return slices.Concat(batches...) }

var _ failer = (*testing.T)(nil)
