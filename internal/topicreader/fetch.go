package topicreader

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Limits of one Fetch. A record of these topics is small; all partitions of one broker fit into one answer.
const (
	partitionMaxBytes = 4 << 20
	responseMaxBytes  = 32 << 20
	// hiddenWait is how long one Fetch waits for the end of a transaction that hides what follows.
	hiddenWait = 500 * time.Millisecond
)

const (
	latest   = -1 // of ListOffsets: the high watermark, for a reader of everything
	earliest = -2
)

var decompressor = kgo.DefaultDecompressor()

// findEnds asks for the high watermark of each partition whose end is not known yet.
func (r *Reader) findEnds(ctx context.Context) error {
	return r.offsets(ctx, latest, func(p *partition) bool { return p.end < 0 }, func(p *partition, offset int64) error {
		if offset < p.next {
			return &ReplacedError{Topic: p.topic, Partition: p.number, Next: p.next, End: offset}
		}
		p.end = offset
		return nil
	})
}

// restart moves positions that are before the log's start to it.
func (r *Reader) restart(ctx context.Context) error {
	return r.offsets(ctx, earliest, func(p *partition) bool { return p.restart }, func(p *partition, offset int64) error {
		if offset <= p.next {
			return &ReplacedError{Topic: p.topic, Partition: p.number, Next: p.next, End: offset}
		}
		p.next, p.restart = offset, false
		return nil
	})
}

func (r *Reader) offsets(ctx context.Context, timestamp int64, wanted func(*partition) bool, found func(*partition, int64) error) error {
	request := func(ps []*partition) kmsg.Request {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		for _, p := range ps {
			if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
				t := kmsg.NewListOffsetsRequestTopic()
				t.Topic = p.topic
				req.Topics = append(req.Topics, t)
			}
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = p.number, p.leaderEpoch, timestamp
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, rp)
		}
		return req
	}
	return ask(ctx, r, r.byLeader(wanted), request, func(_ []*partition, resp *kmsg.ListOffsetsResponse) error {
		var first error
		for i := range resp.Topics {
			t := &resp.Topics[i]
			for j := range t.Partitions {
				rp := &t.Partitions[j]
				p := r.find(t.Topic, [16]byte{}, rp.Partition)
				if p == nil {
					continue
				}
				err := refusal(rp.ErrorCode, p.topic, "DESCRIBE")
				if err == nil {
					err = found(p, rp.Offset)
				}
				if first == nil || err != nil && !isPassing(err) {
					first = err
				}
			}
		}
		return first
	})
}

// find returns a partition by its topic's name, or id where an answer has no name.
func (r *Reader) find(topicName string, id [16]byte, number int32) *partition {
	t := r.topics[topicName]
	if topicName == "" {
		for _, candidate := range r.topics {
			if candidate.id == id && id != [16]byte{} {
				t = candidate
			}
		}
	}
	if t == nil || number < 0 || int(number) >= len(t.partitions) {
		return nil
	}
	return t.partitions[number]
}

func (r *Reader) fetchRequest(ps []*partition, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.IsolationLevel, req.MinBytes, req.MaxBytes = -1, 1, 1, responseMaxBytes
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.SessionEpoch = -1 // no session
	for _, p := range ps {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, r.topics[p.topic].id
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.FetchOffset, rp.PartitionMaxBytes = p.number, p.leaderEpoch, p.next, partitionMaxBytes
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	return req
}

// fetch reads once from each broker.
func (r *Reader) fetch(ctx context.Context, by map[int32][]*partition, apply func(Record)) error {
	request := func(ps []*partition) kmsg.Request { return r.fetchRequest(ps, hiddenWait) }
	err := ask(ctx, r, by, request, func(_ []*partition, resp *kmsg.FetchResponse) error {
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return passing(err)
		}
		var first error
		for i := range resp.Topics {
			t := &resp.Topics[i]
			for j := range t.Partitions {
				p := r.find(t.Topic, t.TopicID, t.Partitions[j].Partition)
				if p == nil {
					continue
				}
				if err := p.take(&t.Partitions[j], apply); first == nil || err != nil && !isPassing(err) {
					first = err
				}
			}
		}
		return first
	})
	if err != nil {
		return err
	}
	return r.restart(ctx)
}

// take hands over what an answer has of one partition.
func (p *partition) take(rp *kmsg.FetchResponseTopicPartition, apply func(Record)) error {
	if rp.ErrorCode == kerr.OffsetOutOfRange.Code {
		p.restart = true
		return nil
	}
	if err := refusal(rp.ErrorCode, p.topic, "READ"); err != nil {
		return err
	}
	p.stable = rp.LastStableOffset
	o := kgo.ProcessFetchPartitionOpts{Offset: p.next, IsolationLevel: kgo.ReadCommitted(), Topic: p.topic, Partition: p.number}
	got, next := kgo.ProcessFetchPartition(o, rp, decompressor, nil)
	for _, k := range got.Records {
		record := Record{Topic: k.Topic, Partition: k.Partition, Offset: k.Offset, Key: k.Key, Value: k.Value, Timestamp: k.Timestamp}
		for _, h := range k.Headers {
			record.Headers = append(record.Headers, Header(h))
		}
		apply(record)
		p.next = k.Offset + 1
	}
	p.next = max(p.next, next)
	if got.Err != nil {
		return fmt.Errorf("%s at offset %d: %w", p, p.next, got.Err)
	}
	return nil
}
