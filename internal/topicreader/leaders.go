package topicreader

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refresh asks for leaders if they are not known, and looks for topics that were not there if look is true.
func (r *Reader) refresh(ctx context.Context, look bool) error {
	var ask []string
	for _, name := range r.names {
		if r.stale || look && r.topics[name].partitions == nil {
			ask = append(ask, name)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	resp, err := metadataRequest(ask).RequestWith(ctx, r.client)
	if err != nil {
		return passing(err)
	}
	missing, err := r.learn(resp)
	if err != nil {
		return err
	}
	for _, b := range resp.Brokers {
		if len(missing) == 0 {
			break
		}
		// A broker that cannot be reached leads nothing now, so what it knows more is not missed.
		kresp, err := r.client.Broker(int(b.NodeID)).Request(ctx, metadataRequest(missing))
		if err != nil {
			if ctx.Err() != nil {
				return passing(err)
			}
			continue
		}
		if missing, err = r.learn(kresp.(*kmsg.MetadataResponse)); err != nil {
			return err
		}
	}
	if len(missing) > 0 && !r.missing {
		return &MissingError{missing[0]}
	}
	r.stale = false
	return nil
}

func metadataRequest(names []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// learn keeps the leaders that an answer names, and returns the topics that its broker does not know.
func (r *Reader) learn(resp *kmsg.MetadataResponse) (missing []string, err error) {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, passing(err)
	}
	for i := range resp.Topics {
		mt := &resp.Topics[i]
		if mt.Topic == nil || r.topics[*mt.Topic] == nil {
			continue
		}
		name := *mt.Topic
		t := r.topics[name]
		if mt.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			if t.partitions != nil {
				// It was there. A broker that is behind, or it was deleted: that becomes a *ReplacedError when it is there again.
				return nil, passing(fmt.Errorf("topic %s: %w", name, kerr.UnknownTopicOrPartition))
			}
			missing = append(missing, name)
			continue
		}
		if err := refusal(mt.ErrorCode, name, "DESCRIBE"); err != nil {
			return nil, err
		}
		if t.partitions != nil && t.id != mt.TopicID {
			return nil, &ReplacedError{Topic: name}
		}
		t.id = mt.TopicID
		if t.partitions == nil {
			t.partitions = make([]*partition, len(mt.Partitions))
			for n := range t.partitions {
				t.partitions[n] = &partition{topic: name, number: int32(n), leader: -1, leaderEpoch: -1, end: -1, stable: -1}
			}
		}
		for _, mp := range mt.Partitions {
			if mp.Partition < 0 || int(mp.Partition) >= len(t.partitions) {
				return nil, &PartitionsError{Topic: name, Had: int32(len(t.partitions)), Has: int32(len(mt.Partitions))}
			}
			p := t.partitions[mp.Partition]
			if mp.LeaderEpoch < p.leaderEpoch {
				continue // a broker that is behind
			}
			p.leader, p.leaderEpoch = mp.Leader, mp.LeaderEpoch
		}
	}
	return missing, nil
}
