package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client makes a client of the CLIENT listener with the options that its security asks for, closed when the test ends. more is put after them.
func (c *Cluster) Client(more ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append(append([]kgo.Opt{kgo.SeedBrokers(c.Bootstrap()...)}, c.clientOptions(Credentials{})...), more...)...)
	if err != nil {
		c.t.Fatalf("kafkatest: client: %v", err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// Admin speaks to the brokers over a listener of their own (ADMIN), whatever stands in front of the CLIENT listener, with all rights. It is the cluster's: do not close it.
func (c *cluster) Admin() *kadm.Client { return kadm.NewClient(c.admin) }

// AdminClient is the client under Admin.
func (c *cluster) AdminClient() *kgo.Client { return c.admin }

// Topic says what topic to create.
type Topic struct {
	Name        string
	Partitions  int       // 0 means 1; not with Assignment
	Replication int       // 0 means one; not with Assignment
	Assignment  [][]int32 // for each partition its replicas, the preferred leader first
	Configs     map[string]string
}

// CreateTopic creates the topic and waits until every running broker knows a leader of every partition. It returns the topic's id.
func (c *Cluster) CreateTopic(topic Topic) [16]byte {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	id, err := c.createTopic(ctx, topic)
	if err != nil {
		c.t.Fatalf("kafkatest: create topic %s: %v", topic.Name, err)
	}
	return id
}

func (c *Cluster) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.t.Context(), waitLimit)
}

func (c *cluster) createTopic(ctx context.Context, topic Topic) (id [16]byte, err error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic = topic.Name
	partitions := max(1, topic.Partitions)
	if topic.Assignment != nil {
		rt.NumPartitions, rt.ReplicationFactor = -1, -1
		partitions = len(topic.Assignment)
		for i, replicas := range topic.Assignment {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), replicas
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
		}
	} else {
		rt.NumPartitions, rt.ReplicationFactor = int32(partitions), int16(max(1, topic.Replication))
	}
	for _, k := range slices.Sorted(maps.Keys(topic.Configs)) {
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = k, kmsg.StringPtr(topic.Configs[k])
		rt.Configs = append(rt.Configs, cfg)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.admin)
	if err != nil {
		return id, err
	}
	if len(resp.Topics) != 1 {
		return id, fmt.Errorf("answer names %d topics", len(resp.Topics))
	}
	if err := brokerError(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		return id, err
	}
	id = resp.Topics[0].TopicID
	for _, n := range c.nodes {
		if ok, _ := n.alive(); !ok || n.isPaused() {
			continue
		}
		err := poll(ctx, fmt.Sprintf("broker %d to know topic %s", n.id, topic.Name), func(ctx context.Context) (bool, error) {
			ps, err := c.partitions(ctx, n.id, topic.Name)
			if err != nil {
				return false, err
			}
			with := 0
			for _, p := range ps {
				// A leader without this package's own listener is a process that joined the cluster.
				if p.Leader >= 0 && p.ErrorCode == 0 || p.ErrorCode == kerr.ListenerNotFound.Code {
					with++
				}
			}
			return with == partitions, fmt.Errorf("%d of %d partitions have a leader", with, partitions)
		})
		if err != nil {
			return id, err
		}
	}
	return id, nil
}

// partitions asks one broker for its view of a topic.
func (c *cluster) partitions(ctx context.Context, broker int32, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	raw, err := c.admin.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.MetadataResponse)
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("answer names %d topics", len(resp.Topics))
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return nil, err
	}
	return resp.Topics[0].Partitions, nil
}

func brokerError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil {
		return fmt.Errorf("%w (%s)", err, *message)
	}
	return err
}

// Partition is one partition as the running brokers see it.
type Partition struct {
	Leader      int32 // -1 if none
	LeaderEpoch int32
	Replicas    []int32
	ISR         []int32 // in-sync replicas
}

func (c *cluster) describe(ctx context.Context, topic string, partition int32) (Partition, error) {
	err := errors.New("no broker is running")
	var best Partition
	best.LeaderEpoch = -2
	for _, n := range c.nodes {
		if ok, _ := n.alive(); !ok || n.isPaused() {
			continue
		}
		var ps []kmsg.MetadataResponseTopicPartition
		if ps, err = c.partitions(ctx, n.id, topic); err != nil {
			continue
		}
		for _, p := range ps {
			if p.Partition == partition && p.LeaderEpoch > best.LeaderEpoch {
				best = Partition{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR}
			}
		}
	}
	if best.LeaderEpoch == -2 {
		return Partition{}, fmt.Errorf("no broker knows %s-%d: %w", topic, partition, err)
	}
	return best, nil
}

// Describe is the newest view that a running broker has of the partition.
func (c *Cluster) Describe(topic string, partition int32) Partition {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	p, err := c.describe(ctx, topic, partition)
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	return p
}

// LeaderOf is the partition's leader, -1 if it has none.
func (c *Cluster) LeaderOf(topic string, partition int32) int32 {
	c.t.Helper()
	return c.Describe(topic, partition).Leader
}

// WaitPartition waits until the newest view of the partition satisfies is, and returns it. what names the wish for the error.
func (c *Cluster) WaitPartition(topic string, partition int32, what string, is func(Partition) bool) Partition {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	var p Partition
	err := poll(ctx, fmt.Sprintf("%s-%d: %s", topic, partition, what), func(ctx context.Context) (bool, error) {
		var err error
		if p, err = c.describe(ctx, topic, partition); err != nil {
			return false, err
		}
		return is(p), fmt.Errorf("leader %d, leader epoch %d, replicas %v, in-sync replicas %v", p.Leader, p.LeaderEpoch, p.Replicas, p.ISR)
	})
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	return p
}

// WaitISR waits until exactly the given replicas are in sync.
func (c *Cluster) WaitISR(topic string, partition int32, replicas ...int32) Partition {
	c.t.Helper()
	want := slices.Sorted(slices.Values(replicas))
	return c.WaitPartition(topic, partition, fmt.Sprintf("in-sync replicas %v", want), func(p Partition) bool {
		return slices.Equal(slices.Sorted(slices.Values(p.ISR)), want)
	})
}

// MoveLeader makes broker the leader: by a reassignment that puts it first (and adds it, if it was no replica), then a preferred election.
func (c *Cluster) MoveLeader(topic string, partition, broker int32) Partition {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	if err := c.moveLeader(ctx, topic, partition, broker); err != nil {
		c.t.Fatalf("kafkatest: move the leader of %s-%d to broker %d: %v", topic, partition, broker, err)
	}
	return c.WaitPartition(topic, partition, fmt.Sprintf("leader %d", broker), func(p Partition) bool { return p.Leader == broker })
}

func (c *cluster) moveLeader(ctx context.Context, topic string, partition, broker int32) error {
	p, err := c.describe(ctx, topic, partition)
	if err != nil {
		return err
	}
	replicas := []int32{broker}
	for _, r := range p.Replicas {
		if r != broker {
			replicas = append(replicas, r)
		}
	}
	if !slices.Equal(replicas, p.Replicas) {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.TimeoutMillis = 30_000
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = partition, replicas
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, c.admin)
		if err != nil {
			return err
		}
		if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := brokerError(p.ErrorCode, p.ErrorMessage); err != nil {
					return err
				}
			}
		}
		err = poll(ctx, "the reassignment to end", func(ctx context.Context) (bool, error) {
			p, err := c.describe(ctx, topic, partition)
			if err != nil {
				return false, err
			}
			return slices.Equal(p.Replicas, replicas) && slices.Contains(p.ISR, broker), fmt.Errorf("replicas %v, in-sync replicas %v", p.Replicas, p.ISR)
		})
		if err != nil {
			return err
		}
	}
	return poll(ctx, "the preferred election", func(ctx context.Context) (bool, error) {
		err := c.elect(ctx, topic, partition, 0)
		return err == nil, err
	})
}

func (c *cluster) elect(ctx context.Context, topic string, partition int32, kind int8) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = kind, 30_000
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.admin)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := brokerError(p.ErrorCode, p.ErrorMessage); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
				return err
			}
		}
	}
	return nil
}

// UncleanElection makes some living replica the leader of a partition that has none, in-sync or not, and returns the view with the new leader. Records that only dead replicas hold are lost.
func (c *Cluster) UncleanElection(topic string, partition int32) Partition {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	err := poll(ctx, "the unclean election", func(ctx context.Context) (bool, error) {
		err := c.elect(ctx, topic, partition, 1)
		return err == nil, err
	})
	if err != nil {
		c.t.Fatalf("kafkatest: unclean election of %s-%d: %v", topic, partition, err)
	}
	return c.WaitPartition(topic, partition, "a leader", func(p Partition) bool { return p.Leader >= 0 })
}

// DeleteRecords raises the partition's log start offset.
func (c *Cluster) DeleteRecords(topic string, partition int32, before int64) {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: before, LeaderEpoch: -1})
	resps, err := c.Admin().DeleteRecords(ctx, os)
	if err == nil {
		err = resps.Error()
	}
	if err != nil {
		c.t.Fatalf("kafkatest: delete records of %s-%d below %d: %v", topic, partition, before, err)
	}
}

// Produce writes records to one partition as one acks=all client, in order, and returns the offset of the last one.
func (c *Cluster) Produce(topic string, partition int32, values ...string) int64 {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	cl, err := kgo.NewClient(append(c.adminOptions(), kgo.SeedBrokers(c.addresses("ADMIN")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
	}
	last := int64(-1)
	for _, r := range cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			c.t.Fatalf("kafkatest: produce to %s-%d: %v", topic, partition, r.Err)
		}
		last = max(last, r.Record.Offset)
	}
	return last
}
