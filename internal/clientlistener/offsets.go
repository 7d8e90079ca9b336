package clientlistener

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// notLed says of a broker's answer that it looked at the client's rights and at its own copy, and does not lead the partition.
func notLed(code int16) bool {
	return code == codeNotLeaderOrFollower || code == codeFencedLeaderEpoch || code == codeUnknownLeaderEpoch
}

// named is a partition as ListOffsets and OffsetForLeaderEpoch name it.
type named struct {
	topic     string
	partition int32
}

// listed answers ListOffsets for the partitions that the broker does not lead and we do.
func (c *connection) listed(req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) {
	if req.ReplicaID != -1 {
		return // of debug readers: the broker has answered for its own copy
	}
	asked := map[named]*kmsg.ListOffsetsRequestTopicPartition{}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			asked[named{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	ctx, stop := context.WithTimeout(c.ctx, c.server.config.AnswerBound)
	defer stop()
	var answering sync.WaitGroup
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			q := asked[named{t.Topic, p.Partition}]
			if q == nil || !notLed(p.ErrorCode) {
				continue
			}
			ours, ok := c.find(t.Topic, [16]byte{}, p.Partition)
			if !ok {
				continue
			}
			question := OffsetQuestion{LeaderEpoch: q.CurrentLeaderEpoch, Timestamp: q.Timestamp, Committed: req.IsolationLevel == 1}
			place := func(a OffsetAnswer) {
				if a.Code == codeOffsetNotAvailable && req.Version < 5 {
					a.Code = codeLeaderNotAvailable // KIP-207
				}
				p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch = a.Code, a.Timestamp, a.Offset, a.LeaderEpoch
			}
			if !question.asks() {
				place(ours.Offset(ctx, question))
				continue
			}
			select {
			case c.server.questions <- struct{}{}:
			case <-ctx.Done():
				place(NoOffset(codeOffsetNotAvailable))
				continue
			}
			answering.Go(func() {
				defer func() { <-c.server.questions }()
				place(ours.Offset(ctx, question))
			})
		}
	}
	answering.Wait()
}

// asks says that a follower has to be asked.
func (q OffsetQuestion) asks() bool {
	return q.Timestamp >= 0 || q.Timestamp == MaxTimestamp || q.Committed && q.Timestamp == Latest
}

// ended answers OffsetForLeaderEpoch for the partitions that the broker does not lead and we do.
func (c *connection) ended(req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	asked := map[named]*kmsg.OffsetForLeaderEpochRequestTopicPartition{}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			asked[named{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			q := asked[named{t.Topic, p.Partition}]
			if q == nil || !notLed(p.ErrorCode) {
				continue
			}
			if ours, ok := c.find(t.Topic, [16]byte{}, p.Partition); ok {
				p.LeaderEpoch, p.EndOffset, p.ErrorCode = ours.EndOffsetFor(q.CurrentLeaderEpoch, q.LeaderEpoch)
			}
		}
	}
}
