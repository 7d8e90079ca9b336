package mirrortest

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// node is kfake's number of a broker: it counts from 0, the memory cluster from 1. −1: there is none.
func node(broker int32) int32 { return max(broker-1, -1) }

// metadata has kfake's answer, with leaders and leader epochs as they are.
func (c *connection) metadata(ctx context.Context, r *request) (kmsg.Response, error) {
	got, err := c.passed(ctx, r)
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.MetadataResponse)
	for _, t := range resp.Topics {
		for j := range t.Partitions {
			p := &t.Partitions[j]
			c.correct(ctx, t.Topic, p.Partition, &p.ErrorCode, &p.Leader, &p.LeaderEpoch, &p.Replicas, &p.ISR)
		}
	}
	return resp, nil
}

// describeTopicPartitions is the same for what newer tools ask.
func (c *connection) describeTopicPartitions(ctx context.Context, r *request) (kmsg.Response, error) {
	got, err := c.passed(ctx, r)
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.DescribeTopicPartitionsResponse)
	for _, t := range resp.Topics {
		for j := range t.Partitions {
			p := &t.Partitions[j]
			c.correct(ctx, t.Topic, p.Partition, &p.ErrorCode, &p.LeaderID, &p.LeaderEpoch, &p.Replicas, &p.ISR)
		}
	}
	return resp, nil
}

// correct puts the leader and its epoch into what kfake says of a partition.
func (c *connection) correct(ctx context.Context, topic *string, partition int32, failed *int16, leader, epoch *int32, replicas, inSync *[]int32) {
	if topic == nil || *failed != 0 {
		return
	}
	*leader, *epoch, *failed = c.led(ctx, mirror.TopicPartition{Topic: *topic, Partition: partition})
	*replicas, *inSync = with(*replicas, *leader), with(*inSync, *leader)
}

// with are replicas of which the leader is one: kfake does not know where it is.
func with(replicas []int32, leader int32) []int32 {
	if leader < 0 || slices.Contains(replicas, leader) {
		return replicas
	}
	return append([]int32{leader}, replicas[min(1, len(replicas)):]...)
}

// led is who leads a partition, under which epoch, and the code where that is nobody.
func (c *connection) led(ctx context.Context, tp mirror.TopicPartition) (leader, epoch int32, failed int16) {
	is, err := c.front.cluster.memory.Leader(ctx, tp)
	switch {
	case err != nil:
		failed, _ = code(err)
		return -1, -1, failed
	case is.Leader < 0:
		return -1, is.LeaderEpoch, kerr.LeaderNotAvailable.Code
	}
	return node(is.Leader), is.LeaderEpoch, 0
}

// changeTopics lets kfake make, grow and delete topics, and then has the memory cluster follow.
func (c *connection) changeTopics(ctx context.Context, r *request) (kmsg.Response, error) {
	c.front.cluster.changing.Lock()
	defer c.front.cluster.changing.Unlock()
	got, err := c.passed(ctx, r)
	if err != nil {
		return nil, err
	}
	return got, c.front.cluster.follow()
}

// follow gives the memory cluster the topics that kfake has. Under changing.
func (c *Cluster) follow() error {
	have, err := c.memory.Topics(context.Background())
	if err != nil {
		return err
	}
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(context.Background(), c.inner)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		name := *t.Topic
		there[name] = true
		i := slices.IndexFunc(have, func(h mirror.SourceTopic) bool { return h.Name == name })
		if i >= 0 && have[i].ID != mirror.TopicID(t.TopicID) {
			if err := c.memory.DeleteTopic(name); err != nil {
				return err
			}
			i = -1
		}
		switch n := int32(len(t.Partitions)); {
		case i < 0:
			if _, err := c.memory.CreateLocalTopic(memlog.LocalTopic{Name: name, Partitions: n, ID: t.TopicID}); err != nil {
				return err
			}
		case n > have[i].Partitions:
			if _, err := c.memory.GrowTopic(context.Background(), name, n); err != nil {
				return err
			}
		}
	}
	for _, h := range have {
		if !there[h.Name] {
			if err := c.memory.DeleteTopic(h.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
