package memlog

import (
	"context"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// remote is the part of a log that is in remote storage (tiered storage, KIP-405). Under the log's mu.
type remote struct {
	below int64         // the first offset on the cluster's own disks; 0: all are
	takes time.Duration // how long it takes to read from it
	asked int64         // what is being read
	ready time.Time     // when it will be there
}

// SetRemote moves everything below an offset into remote storage. A fetch of it gets no records and no error, as Kafka's brokers answer while a read takes longer than they wait
// (DelayedRemoteFetch), until that much time has passed since it was asked for first. As a copy the log cannot be cut there any more (mirror.CutBounder). 0 brings all of it back.
func (c *Cluster) SetRemote(topic string, partition int32, below int64, takes time.Duration) error {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if below > l.highWatermark {
		return l.errorf("[0, %d) into remote storage: the high watermark is %d", below, l.highWatermark)
	}
	l.remote = remote{below: below, takes: takes, asked: -1}
	l.notify()
	return nil
}

// slow says that what lies at an offset has not arrived from remote storage yet.
func (r *remote) slow(at int64) bool {
	if at >= r.below {
		return false
	}
	now := time.Now()
	if r.asked != at {
		r.asked, r.ready = at, now.Add(r.takes)
	}
	return now.Before(r.ready)
}

// LowestCut is the lowest offset that the log can be cut to.
func (l *partitionLog) LowestCut() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remote.below
}

// cutsRemote refuses what would cut a log below an offset, in its remote part. Under mu.
func (l *partitionLog) cutsRemote(to int64) error {
	if l.remote.below > l.start && to < l.remote.below {
		return l.errorf("truncation to %d: [%d, %d) is there, where nothing can be cut: %w", to, l.start, l.remote.below, mirror.ErrRemoteStorage)
	}
	return nil
}

// LocalStarts is the first offset of each partition that is not in remote storage alone.
func (c *Cluster) LocalStarts(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]int64, error) {
	starts := make(map[mirror.TopicPartition]int64, len(partitions))
	err := c.ask(ctx, "LocalStarts", "list offsets", mirror.TopicPartition{}, func() error {
		for _, tp := range partitions {
			l, err := c.led(tp, "list offsets")
			if err != nil {
				return err
			}
			starts[tp] = max(l.start, l.remote.below)
			l.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return starts, nil
}
