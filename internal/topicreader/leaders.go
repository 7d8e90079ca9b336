package topicreader

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/asking"
)

// Lead is who led a partition when a request for it was sent.
type Lead struct {
	Topic     string
	Partition int32
	Leader    int32 // -1: nobody
	Epoch     int32 // the leader epoch, -1: not known
}

// Moved says whether another broker leads one of these partitions since. A leader epoch that is higher alone does not: Kafka also raises it when a replica is taken out of those in
// sync, and a produce that waited for that one is about to succeed.
func Moved(ctx context.Context, client *kgo.Client, leads []Lead) bool {
	var names []string
	for _, l := range leads {
		if !slices.Contains(names, l.Topic) {
			names = append(names, l.Topic)
		}
	}
	resp, err := asking.Any[*kmsg.MetadataResponse](ctx, client, func() kmsg.Request { return metadataRequest(names) })
	if err != nil {
		return false
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic != nil && slices.ContainsFunc(leads, func(l Lead) bool {
				return l.Topic == *t.Topic && l.Partition == p.Partition && p.Leader >= 0 && p.Leader != l.Leader && p.LeaderEpoch > l.Epoch // a lower one: the broker that answers is behind
			}) {
				return true
			}
		}
	}
	return false
}

// isGone says whether a broker is none of the cluster's live ones any more.
func isGone(ctx context.Context, client *kgo.Client, broker int32) bool {
	resp, err := asking.Any[*kmsg.MetadataResponse](ctx, client, func() kmsg.Request { return metadataRequest(nil) })
	return err == nil && !slices.ContainsFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == broker })
}

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
	resp, err := asking.Any[*kmsg.MetadataResponse](ctx, r.client, func() kmsg.Request { return metadataRequest(ask) })
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
		gone := func(ctx context.Context) bool { return isGone(ctx, r.client, b.NodeID) }
		kresp, err := asking.Holder(ctx, r.client, b.NodeID, metadataRequest(missing), 0, gone)
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
	req.Topics = []kmsg.MetadataRequestTopic{} // nil would be all
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
