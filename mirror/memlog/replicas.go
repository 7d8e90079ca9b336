package memlog

import (
	"context"

	"github.com/clustermirror/clustermirror/mirror"
)

// follower is a simulated replica beside the leader.
type follower struct {
	confirmed int64 // below it the replica's log is the leader's
	stale     bool  // it still has what the leader has cut
	held      bool
	dead      bool
}

// replicate lets the followers that may follow do so, and moves the high watermark: what every live replica has. Under mu.
func (l *partitionLog) replicate() {
	live, all := 1, l.end
	for i := range l.followers {
		f := &l.followers[i]
		if f.dead {
			continue
		}
		if !f.held {
			f.confirmed, f.stale = l.end, false
		}
		live++
		all = min(all, f.confirmed)
	}
	if live >= l.c.cfg.MinInSync {
		l.highWatermark = max(l.highWatermark, all)
	}
	l.highWatermark = max(min(l.highWatermark, l.end), l.start)
}

// cutFollowers tells the followers of a cut. Under mu.
func (l *partitionLog) cutFollowers() {
	for i := range l.followers {
		f := &l.followers[i]
		f.stale = f.stale || f.confirmed > l.end
		f.confirmed = min(f.confirmed, l.end)
	}
	l.highWatermark = min(l.highWatermark, l.end)
	l.replicate()
}

// AwaitReplicated waits for the high watermark.
func (l *partitionLog) AwaitReplicated(ctx context.Context, offset int64) error {
	return l.await(ctx, "AwaitReplicated", func() bool { return l.highWatermark >= offset })
}

// AwaitTruncated waits until every replica has followed the last cut; a dead one too, for it may come back with what was cut.
func (l *partitionLog) AwaitTruncated(ctx context.Context) error {
	return l.await(ctx, "AwaitTruncated", func() bool {
		for i := range l.followers {
			if l.followers[i].stale {
				return false
			}
		}
		return true
	})
}

// HoldReplica keeps a replica (1 … Config.Replicas−1; 0 is the leader) where it is: it stays in sync, so that the high watermark waits for it, and follows no cut.
func (c *Cluster) HoldReplica(topic string, partition int32, replica int) error {
	return c.follower(topic, partition, replica, func(f *follower) { f.held = true })
}

// ReleaseReplica lets a replica follow again.
func (c *Cluster) ReleaseReplica(topic string, partition int32, replica int) error {
	return c.follower(topic, partition, replica, func(f *follower) { f.held = false })
}

// KillReplica takes a replica out of the in-sync replicas: the high watermark no longer waits for it.
func (c *Cluster) KillReplica(topic string, partition int32, replica int) error {
	return c.follower(topic, partition, replica, func(f *follower) { f.dead = true })
}

// ReviveReplica brings a killed replica back; it follows, unless it is held.
func (c *Cluster) ReviveReplica(topic string, partition int32, replica int) error {
	return c.follower(topic, partition, replica, func(f *follower) { f.dead = false })
}

func (c *Cluster) follower(topic string, partition int32, replica int, change func(*follower)) error {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if replica < 1 || replica > len(l.followers) {
		return l.errorf("replica %d: the followers are 1 to %d", replica, len(l.followers))
	}
	change(&l.followers[replica-1])
	l.replicate()
	l.notify()
	return nil
}
