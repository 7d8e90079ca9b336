package memlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// ErrUnreachable is what a source's calls return while it is unreachable, inside a *mirror.SourceError.
var ErrUnreachable = errors.New("memlog: cluster is unreachable")

// SetUnreachable cuts the cluster off as a source, or brings it back: its Source calls fail and its fetchers end. As a destination, and for clients, it stays there;
// only what a mirror reads at both sides (groups, settings, access rules, rights) cannot be read then, whoever asks.
func (c *Cluster) SetUnreachable(unreachable bool) {
	c.mu.Lock()
	c.unreachable = unreachable
	c.mu.Unlock()
	c.wakeFetchers()
}

func sourceError(code mirror.SourceCode, operation string, tp mirror.TopicPartition, err error) *mirror.SourceError {
	return &mirror.SourceError{Code: code, Operation: operation, Partition: tp, Err: err}
}

// ask runs one call of a source.
func (c *Cluster) ask(ctx context.Context, method, operation string, tp mirror.TopicPartition, f func() error) error {
	return c.call(ctx, Call{Operation: "Source." + method, Partition: tp}, func() error {
		c.mu.Lock()
		down := c.unreachable
		c.mu.Unlock()
		if down {
			return sourceError(mirror.SourceUnreachable, operation, tp, ErrUnreachable)
		}
		return f()
	})
}

// Cluster is the cluster's id and its live brokers.
func (c *Cluster) Cluster(ctx context.Context) (info mirror.ClusterInfo, err error) {
	err = c.ask(ctx, "Cluster", "metadata", mirror.TopicPartition{}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		info.ID = c.cfg.ClusterID
		for id := int32(1); int(id) <= c.cfg.Brokers; id++ {
			if !c.stopped[id] {
				info.Brokers = append(info.Brokers, address(id))
			}
		}
		return nil
	})
	return info, err
}

func address(broker int32) mirror.Broker {
	return mirror.Broker{ID: broker, Host: fmt.Sprintf("memlog-broker-%d", broker), Port: 9092}
}

// Topics looks topics up, in order of name.
func (c *Cluster) Topics(ctx context.Context, names ...string) (found []mirror.SourceTopic, err error) {
	err = c.ask(ctx, "Topics", "metadata", mirror.TopicPartition{}, func() error {
		var logs [][]*partitionLog
		c.mu.Lock()
		if len(names) == 0 {
			names = slices.Collect(maps.Keys(c.topics))
		}
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		for _, name := range names {
			if t := c.topics[name]; t != nil {
				found = append(found, mirror.SourceTopic{Topic: t.describe()})
				logs = append(logs, slices.Clone(t.logs))
			}
		}
		c.mu.Unlock()
		for i := range found {
			for _, l := range logs[i] {
				l.mu.Lock()
				p := mirror.SourcePartition{Partition: l.tp.Partition, Leader: l.leader, LeaderEpoch: l.leaderEpoch}
				l.mu.Unlock()
				if p.Leader < 0 {
					p.Err = sourceError(mirror.SourceNotLeader, "metadata", l.tp, errors.New("the partition has no leader"))
				}
				found[i].Leaders = append(found[i].Leaders, p)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// led finds a partition's log for its leader to answer. The log is locked when there is no error.
func (c *Cluster) led(tp mirror.TopicPartition, operation string) (*partitionLog, error) {
	l, err := c.log(tp)
	if errors.Is(err, mirror.ErrUnknownTopic) {
		return nil, sourceError(mirror.SourceUnknownTopic, operation, tp, err)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.leader < 0 {
		l.mu.Unlock()
		return nil, sourceError(mirror.SourceNotLeader, operation, tp, errors.New("the partition has no leader"))
	}
	return l, nil
}

func unknownOffsets(err error) mirror.SourceOffsets {
	return mirror.SourceOffsets{LogStart: -1, HighWatermark: -1, LeaderEpoch: -1, Err: err}
}

// Offsets gives log start and high watermark.
func (c *Cluster) Offsets(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return c.offsets(ctx, "Offsets", partitions, func(l *partitionLog) int64 { return l.highWatermark })
}

// LogEnds gives log start and the end of the leader's log.
func (c *Cluster) LogEnds(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return c.offsets(ctx, "LogEnds", partitions, func(l *partitionLog) int64 { return l.end })
}

// OffsetsAt finds offsets by timestamp. A record in a batch that cannot be read counts as its batch's first.
func (c *Cluster) OffsetsAt(ctx context.Context, at time.Time, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return c.offsets(ctx, "OffsetsAt", partitions, func(l *partitionLog) int64 {
		for i := range l.batches {
			s := &l.batches[i]
			if s.maxTimestamp < at.UnixMilli() || s.last >= l.highWatermark {
				continue
			}
			records, err := decode(s.bytes())
			if err != nil {
				return max(s.base, l.start)
			}
			for _, r := range records {
				if r.Offset >= l.start && r.Time.UnixMilli() >= at.UnixMilli() {
					return r.Offset
				}
			}
		}
		return l.highWatermark
	})
}

func (c *Cluster) offsets(ctx context.Context, method string, partitions []mirror.TopicPartition, find func(*partitionLog) int64) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	found := make(map[mirror.TopicPartition]mirror.SourceOffsets, len(partitions))
	err := c.ask(ctx, method, "list offsets", mirror.TopicPartition{}, func() error {
		for _, tp := range partitions {
			l, err := c.led(tp, "list offsets")
			if err != nil {
				found[tp] = unknownOffsets(err)
				continue
			}
			found[tp] = mirror.SourceOffsets{LogStart: l.start, HighWatermark: find(l), LeaderEpoch: l.leaderEpoch}
			l.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// EndOffsetForEpoch answers from the log's epoch cache.
func (c *Cluster) EndOffsetForEpoch(ctx context.Context, tp mirror.TopicPartition, leaderEpoch, epoch int32) (end mirror.EpochEnd, err error) {
	const operation = "offset for leader epoch"
	err = c.ask(ctx, "EndOffsetForEpoch", operation, tp, func() error {
		l, err := c.led(tp, operation)
		if err != nil {
			return err
		}
		defer l.mu.Unlock()
		if err := l.checkEpoch(operation, leaderEpoch); err != nil {
			return err
		}
		end.Epoch, end.End = l.epochs.EndOffsetFor(epoch, l.end)
		return nil
	})
	if err != nil {
		return mirror.EpochEnd{Epoch: -1, End: -1}, err
	}
	return end, nil
}

// checkEpoch fences a request as a leader does. Under mu.
func (l *partitionLog) checkEpoch(operation string, epoch int32) error {
	switch {
	case epoch >= 0 && epoch < l.leaderEpoch:
		return sourceError(mirror.SourceFencedEpoch, operation, l.tp, fmt.Errorf("leader epoch %d is old, the current one is %d", epoch, l.leaderEpoch))
	case epoch > l.leaderEpoch:
		return sourceError(mirror.SourceUnknownEpoch, operation, l.tp, fmt.Errorf("leader epoch %d is not known yet, the current one is %d", epoch, l.leaderEpoch))
	}
	return nil
}

// entries reads the state store for these partitions.
func (c *Cluster) entries(ctx context.Context, partitions []mirror.TopicPartition, each func(mirror.TopicPartition, statemachine.Entry)) error {
	type key struct {
		id        mirror.TopicID
		partition int32
	}
	asked := map[key]mirror.TopicPartition{}
	c.mu.Lock()
	for _, tp := range partitions {
		if t := c.topics[tp.Topic]; t != nil {
			asked[key{t.id, tp.Partition}] = tp
		}
	}
	c.mu.Unlock()
	return c.store.Load(ctx, func(e statemachine.Entry) error {
		if tp, ok := asked[key{e.Key.TopicID, e.Key.Partition}]; ok {
			each(tp, e)
		}
		return nil
	})
}

// LastMirrorEpochs answers from StateStore.
func (c *Cluster) LastMirrorEpochs(ctx context.Context, sourceClusterID string, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]statemachine.LastMirrorEpoch, error) {
	found := map[mirror.TopicPartition]statemachine.LastMirrorEpoch{}
	err := c.ask(ctx, "LastMirrorEpochs", "describe mirrors", mirror.TopicPartition{}, func() error {
		return c.entries(ctx, partitions, func(tp mirror.TopicPartition, e statemachine.Entry) {
			if e.LME == nil || e.LME.SourceClusterID != sourceClusterID {
				return
			}
			if best, ok := found[tp]; !ok || e.LME.Epoch > best.Epoch || e.LME.Epoch == best.Epoch && e.LME.Offset > best.Offset {
				found[tp] = *e.LME
			}
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// MirrorsOf answers from StateStore and Control, in the store's order.
func (c *Cluster) MirrorsOf(ctx context.Context, partitions []mirror.TopicPartition) ([]mirror.SourceMirror, error) {
	var found []mirror.SourceMirror
	err := c.ask(ctx, "MirrorsOf", "describe mirrors", mirror.TopicPartition{}, func() error {
		wanted, err := c.wants.Read(ctx)
		if err != nil {
			return err
		}
		return c.entries(ctx, partitions, func(tp mirror.TopicPartition, e statemachine.Entry) {
			s := mirror.SourceMirror{Mirror: e.Key.Mirror, SourceClusterID: e.State.SourceClusterID, Partition: tp, State: e.State.State}
			if o, ok := wanted.Origin(e.Key.Mirror, tp.Topic); ok && o.SourceClusterID == s.SourceClusterID {
				s.Upstream = o.Upstream
			}
			found = append(found, s)
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
