package memlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

// ClusterID is the cluster's id.
func (c *Cluster) ClusterID(ctx context.Context) (string, error) {
	err := c.call(ctx, Call{Operation: "Destination.ClusterID"}, func() error { return nil })
	if err != nil {
		return "", err
	}
	return c.cfg.ClusterID, nil
}

// Topic looks one topic up.
func (c *Cluster) Topic(ctx context.Context, name string) (found mirror.Topic, err error) {
	err = c.call(ctx, Call{Operation: "Destination.Topic", Partition: mirror.TopicPartition{Topic: name}}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		t := c.topics[name]
		if t == nil {
			return unknownTopic(name)
		}
		found = t.describe()
		return nil
	})
	return found, err
}

// CreateTopic makes a topic whose logs are closed for clients.
func (c *Cluster) CreateTopic(ctx context.Context, spec mirror.TopicSpec) (made mirror.Topic, err error) {
	err = c.call(ctx, Call{Operation: "Destination.CreateTopic", Partition: mirror.TopicPartition{Topic: spec.Name}}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		var id mirror.TopicID
		if c.cfg.KeepSourceIDs {
			id = spec.SourceID
		}
		for _, t := range c.topics {
			if id != (mirror.TopicID{}) && t.id == id && t.name != spec.Name {
				return fmt.Errorf("memlog: topic id %s is %s's already", id, t.name)
			}
		}
		var err error
		made, err = c.create(spec.Name, spec.Partitions, id, spec.Configs, false)
		return err
	})
	return made, err
}

// GrowTopic adds partitions. The gate of a new one is as it was for the topic's first ones when they were made.
func (c *Cluster) GrowTopic(ctx context.Context, name string, partitions int32) (grown mirror.Topic, err error) {
	err = c.call(ctx, Call{Operation: "Destination.GrowTopic", Partition: mirror.TopicPartition{Topic: name}}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		t := c.topics[name]
		if t == nil {
			return unknownTopic(name)
		}
		if int(partitions) < len(t.logs) {
			return fmt.Errorf("memlog: %s has %d partitions and cannot have %d: partitions are never removed", name, len(t.logs), partitions)
		}
		c.grow(t, partitions)
		grown = t.describe()
		return nil
	})
	return grown, err
}

// OpenLog returns the log of one partition.
func (c *Cluster) OpenLog(ctx context.Context, tp mirror.TopicPartition) (log mirror.Log, err error) {
	err = c.call(ctx, Call{Operation: "Destination.OpenLog", Partition: tp}, func() error {
		l, err := c.log(tp)
		if err != nil {
			return err
		}
		log = l
		return nil
	})
	if err != nil {
		return nil, err
	}
	return log, nil
}

// RaiseLeaderEpochs raises leader epochs.
func (c *Cluster) RaiseLeaderEpochs(ctx context.Context, atLeast map[mirror.TopicPartition]int32) (map[mirror.TopicPartition]int32, error) {
	are := make(map[mirror.TopicPartition]int32, len(atLeast))
	var failed []error
	err := c.call(ctx, Call{Operation: "Destination.RaiseLeaderEpochs"}, func() error {
		for _, tp := range sorted(atLeast) {
			l, err := c.log(tp)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			l.mu.Lock()
			if atLeast[tp] > l.leaderEpoch {
				l.setLeaderEpoch(atLeast[tp])
			}
			are[tp] = l.leaderEpoch
			l.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return are, errors.Join(failed...)
}
