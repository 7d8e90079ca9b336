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

// destination is the cluster as a mirror.Destination: a topic that a mirror makes there refuses clients' writes until it is stopped. While the cluster is dead it fails, and so do its logs.
func (c *Cluster) destination() mirror.Destination {
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

func (d *destination) Topic(ctx context.Context, name string) (found mirror.Topic, err error) {
	err = d.cluster.call(ctx, func(ctx context.Context) error {
		found, err = d.cluster.memory.Topic(ctx, name)
		return err
	})
	return found, err
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

func (d *destination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (log mirror.Log, err error) {
	err = d.cluster.call(ctx, func(ctx context.Context) error {
		log, err = d.cluster.memory.OpenLog(ctx, tp)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &copied{log, d.cluster}, nil
}

func (d *destination) RaiseLeaderEpochs(ctx context.Context, atLeast map[mirror.TopicPartition]int32) (are map[mirror.TopicPartition]int32, err error) {
	err = d.cluster.call(ctx, func(ctx context.Context) error {
		are, err = d.cluster.memory.RaiseLeaderEpochs(ctx, atLeast)
		return err
	})
	return are, err
}

func (d *destination) Close() error { return nil }

// copied is a log as a mirror writes it: of a cluster that can be killed. Its numbers are what the mirror knows already.
type copied struct {
	mirror.Log
	cluster *Cluster
}

var (
	_ mirror.CutBounder        = (*copied)(nil)
	_ mirror.ProducerIDSettler = (*copied)(nil)
)

func (l *copied) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	return l.cluster.call(ctx, func(ctx context.Context) error { return l.Log.Append(ctx, leaderEpoch, batches) })
}

func (l *copied) Read(ctx context.Context, from int64, max int) (batches []byte, err error) {
	err = l.cluster.call(ctx, func(ctx context.Context) error {
		batches, err = l.Log.Read(ctx, from, max)
		return err
	})
	return batches, err
}

func (l *copied) TruncateTo(ctx context.Context, offset int64) (end int64, err error) {
	err = l.cluster.call(ctx, func(ctx context.Context) error {
		end, err = l.Log.TruncateTo(ctx, offset)
		return err
	})
	return end, err
}

func (l *copied) ResetTo(ctx context.Context, start int64) error {
	return l.cluster.call(ctx, func(ctx context.Context) error { return l.Log.ResetTo(ctx, start) })
}

func (l *copied) RaiseStart(ctx context.Context, start int64) error {
	return l.cluster.call(ctx, func(ctx context.Context) error { return l.Log.RaiseStart(ctx, start) })
}

func (l *copied) AwaitReplicated(ctx context.Context, offset int64) error {
	return l.cluster.call(ctx, func(ctx context.Context) error { return l.Log.AwaitReplicated(ctx, offset) })
}

func (l *copied) AwaitTruncated(ctx context.Context) error {
	return l.cluster.call(ctx, l.Log.AwaitTruncated)
}

func (l *copied) Open(ctx context.Context) error { return l.cluster.call(ctx, l.Log.Open) }

func (l *copied) CloseForWrites(ctx context.Context) error {
	return l.cluster.call(ctx, l.Log.CloseForWrites)
}

func (l *copied) Owner(ctx context.Context) (whose mirror.Ownership, epoch int32, err error) {
	err = l.cluster.call(ctx, func(ctx context.Context) error {
		whose, epoch, err = l.Log.Owner(ctx)
		return err
	})
	return whose, epoch, err
}

func (l *copied) LowestCut() int64 { return l.Log.(mirror.CutBounder).LowestCut() }

func (l *copied) SettleProducerIDs(ctx context.Context, highest int64) error {
	return l.cluster.call(ctx, func(ctx context.Context) error {
		return l.Log.(mirror.ProducerIDSettler).SettleProducerIDs(ctx, highest)
	})
}
