package mirrortest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// destination is a cluster as a mirror writes to it: logs in memory, what surrounds them by the Kafka protocol.
type destination struct {
	*kafkametadata.Client
	cluster *Cluster
}

var (
	_ mirror.Destination       = (*destination)(nil)
	_ mirror.GroupWriter       = (*destination)(nil)
	_ mirror.TopicConfigWriter = (*destination)(nil)
	_ mirror.ACLWriter         = (*destination)(nil)
	_ mirror.RightsChecker     = (*destination)(nil)
)

// Destination is the cluster as a mirror.Destination: a topic that a mirror makes there refuses clients' writes until it is stopped. Close of the Cluster closes it.
func (c *Cluster) Destination() mirror.Destination {
	return &destination{kafkametadata.New(brokers{c}, time.Second), c}
}

// brokers is how a cluster's groups, settings and access rules are asked for: past its fronts.
type brokers struct{ c *Cluster }

func (b brokers) Brokers(context.Context) ([]int32, error) {
	var ids []int32
	for _, f := range b.c.fronts {
		ids = append(ids, f.node)
	}
	return ids, b.c.alive()
}

func (b brokers) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	if err := b.c.alive(); err != nil {
		return nil, err
	}
	return b.c.inner.Broker(int(broker)).RetriableRequest(ctx, req)
}

func (d *destination) ClusterID(ctx context.Context) (string, error) {
	return d.cluster.id, d.cluster.alive()
}

func (d *destination) Topic(ctx context.Context, name string) (mirror.Topic, error) {
	return d.cluster.memory.Topic(ctx, name)
}

// CreateTopic makes the topic in kfake first, whose id it then has.
func (d *destination) CreateTopic(ctx context.Context, spec mirror.TopicSpec) (mirror.Topic, error) {
	c := d.cluster
	if err := c.alive(); err != nil {
		return mirror.Topic{}, err
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if t, err := c.memory.Topic(ctx, spec.Name); err == nil {
		return t, fmt.Errorf("mirrortest: %w: %s", mirror.ErrTopicExists, spec.Name)
	}
	if err := c.kfake.CreateTopic(spec.Name, spec.Partitions, settings(spec.Configs)); err != nil {
		return mirror.Topic{}, fmt.Errorf("mirrortest: cluster %s: %w", c.id, err)
	}
	spec.SourceID = c.kfake.TopicInfo(spec.Name).TopicID
	return c.memory.CreateTopic(ctx, spec)
}

func (d *destination) GrowTopic(ctx context.Context, name string, partitions int32) (mirror.Topic, error) {
	c := d.cluster
	if err := c.alive(); err != nil {
		return mirror.Topic{}, err
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if have, err := c.memory.Topic(ctx, name); err != nil || have.Partitions == partitions {
		return have, err
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, partitions
	req.Topics = append(req.Topics, t)
	req.TimeoutMillis = 1000
	if _, err := req.RequestWith(ctx, c.inner); err != nil { // what is wrong with the count is said by the logs
		return mirror.Topic{}, err
	}
	return c.memory.GrowTopic(ctx, name, partitions)
}

func (d *destination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	return d.cluster.memory.OpenLog(ctx, tp)
}

func (d *destination) RaiseLeaderEpochs(ctx context.Context, atLeast map[mirror.TopicPartition]int32) (map[mirror.TopicPartition]int32, error) {
	return d.cluster.memory.RaiseLeaderEpochs(ctx, atLeast)
}

func (d *destination) Close() error { return nil }
