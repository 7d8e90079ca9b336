package main

import (
	"bytes"
	"context"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// disk is what a dead cluster still has.
type disk struct {
	id     string
	topics []mirror.SourceTopic
	logs   map[mirror.TopicPartition][]byte
	epochs map[mirror.TopicPartition]int32
}

// disks reads every log of the source, by a connection of its own.
func (c *cluster) disks(ctx context.Context) (*disk, error) {
	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{c.address}})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	topics, err := src.Topics(ctx, orders, payments)
	if err != nil {
		return nil, err
	}
	d := &disk{id: c.id, topics: topics, logs: map[mirror.TopicPartition][]byte{}, epochs: map[mirror.TopicPartition]int32{}}
	for _, t := range topics {
		for _, p := range t.Leaders {
			tp := mirror.TopicPartition{Topic: t.Name, Partition: p.Partition}
			d.epochs[tp] = p.LeaderEpoch
			if d.logs[tp], err = drain(ctx, src, t, p); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// drain fetches one partition from its start to its end.
func drain(ctx context.Context, src mirror.Source, t mirror.SourceTopic, p mirror.SourcePartition) ([]byte, error) {
	tp := mirror.TopicPartition{Topic: t.Name, Partition: p.Partition}
	offsets, err := src.Offsets(ctx, []mirror.TopicPartition{tp})
	if err != nil {
		return nil, err
	}
	f, err := src.OpenFetcher(ctx, p.Leader, mirror.FetchOptions{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var log []byte
	for next := offsets[tp].LogStart; next < offsets[tp].HighWatermark; {
		f.Want(mirror.FetchPosition{TopicPartition: tp, TopicID: t.ID, Offset: next, LeaderEpoch: p.LeaderEpoch, LastEpoch: mirror.Unknown})
		reply, err := f.Fetch(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range reply {
			if r.Err != nil {
				return nil, r.Err
			}
			for info, b := range mirror.Batches(r.Records) {
				log, next = append(log, b...), info.Next()
			}
		}
	}
	return log, nil
}

// log is one partition's log.
func (d *disk) log(topic string, partition int32) []byte {
	return d.logs[mirror.TopicPartition{Topic: topic, Partition: partition}]
}

// revive brings the old source back with all that it had, now as a cluster in memory: same cluster id, same topic ids.
func (d *disk) revive() (*memlog.Cluster, error) {
	old := memlog.New(memlog.Config{ClusterID: d.id})
	for _, t := range d.topics {
		if _, err := old.CreateLocalTopic(memlog.LocalTopic{Name: t.Name, Partitions: t.Partitions, ID: t.ID}); err != nil {
			return nil, err
		}
		for p := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Name, Partition: p}
			if err := old.ImportLog(t.Name, p, bytes.Clone(d.logs[tp]), 0, d.epochs[tp]); err != nil {
				return nil, err
			}
		}
	}
	return old, nil
}
