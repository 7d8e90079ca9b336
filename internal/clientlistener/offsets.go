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

// lookUp is a question for a follower, and where its answer goes.
type lookUp struct {
	to       *kmsg.ListOffsetsResponseTopicPartition
	ours     Partition
	question OffsetQuestion
	version  int16
}

func (l lookUp) place(a OffsetAnswer) {
	if a.Code == codeOffsetNotAvailable && l.version < 5 {
		a.Code = codeLeaderNotAvailable // KIP-207
	}
	l.to.ErrorCode, l.to.Timestamp, l.to.Offset, l.to.LeaderEpoch = a.Code, a.Timestamp, a.Offset, a.LeaderEpoch
}

// listed answers ListOffsets for the partitions that the broker does not lead and we do, but for what a follower has to be asked: it returns that.
func (c *connection) listed(req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) (ask []lookUp) {
	if req.ReplicaID != -1 {
		return nil // of debug readers: the broker has answered for its own copy
	}
	asked := map[named]*kmsg.ListOffsetsRequestTopicPartition{}
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
			ours, ok := c.find(t.Topic, [16]byte{}, p.Partition)
			if !ok {
				continue
			}
			l := lookUp{p, ours, OffsetQuestion{LeaderEpoch: q.CurrentLeaderEpoch, Timestamp: q.Timestamp, Committed: req.IsolationLevel == 1}, req.Version}
			if l.question.asks() {
				ask = append(ask, l)
				continue
			}
			l.place(ours.Offset(c.ctx, l.question))
		}
	}
	return ask
}

// lookUp asks followers, within AnswerBound for all. A few are asked at a time, in the server and for an address.
func (c *connection) lookUp(ask []lookUp) {
	ctx, stop := context.WithTimeout(c.ctx, c.server.config.AnswerBound)
	defer stop()
	var asking sync.WaitGroup
	for _, l := range ask {
		if c.server.questions.take(ctx, c.from, 1) != nil {
			l.place(NoOffset(codeOffsetNotAvailable))
			continue
		}
		asking.Go(func() {
			defer c.server.questions.give(c.from, 1)
			l.place(l.ours.Offset(ctx, l.question))
		})
	}
	asking.Wait()
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
