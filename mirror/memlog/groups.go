package memlog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/mirror"
)

// group is one group. Its fields are under Cluster.mu.
type group struct {
	kind    mirror.GroupKind
	members int
	offsets map[mirror.TopicPartition]mirror.GroupOffset
	pending map[mirror.TopicPartition]struct{} // partitions with a transactional commit under way
}

func (g *group) describe(name string) mirror.Group {
	d := mirror.Group{Name: name, Kind: g.kind, Active: g.members > 0, State: "Empty"}
	if d.Active {
		d.State = "Stable"
	}
	return d
}

// group finds a group, or makes one. Under mu.
func (c *Cluster) group(name string, kind mirror.GroupKind) *group {
	g := c.groups[name]
	if g == nil {
		g = &group{kind: kind, offsets: map[mirror.TopicPartition]mirror.GroupOffset{}, pending: map[mirror.TopicPartition]struct{}{}}
		c.groups[name] = g
	}
	return g
}

// forget drops a group without members that keeps nothing, as Kafka does. Under mu.
func (c *Cluster) forget(name string) {
	if g := c.groups[name]; g != nil && g.members == 0 && len(g.offsets)+len(g.pending) == 0 {
		delete(c.groups, name)
	}
}

// forgetTopic drops what groups keep of a deleted topic (Kafka: GroupCoordinator.onPartitionsDeleted). Under mu.
func (c *Cluster) forgetTopic(name string) {
	for id, g := range c.groups {
		maps.DeleteFunc(g.offsets, func(tp mirror.TopicPartition, _ mirror.GroupOffset) bool { return tp.Topic == name })
		maps.DeleteFunc(g.pending, func(tp mirror.TopicPartition, _ struct{}) bool { return tp.Topic == name })
		c.forget(id)
	}
}

// there says that a partition exists. Under mu.
func (c *Cluster) there(tp mirror.TopicPartition) error {
	t := c.topics[tp.Topic]
	if t == nil {
		return unknownTopic(tp.Topic)
	}
	if tp.Partition < 0 || int(tp.Partition) >= len(t.logs) {
		return fmt.Errorf("memlog: %w: %s has no partition %d", mirror.ErrUnknownTopic, tp.Topic, tp.Partition)
	}
	return nil
}

// commit keeps an offset of a group of this kind. Under mu.
func (c *Cluster) commit(name string, kind mirror.GroupKind, tp mirror.TopicPartition, at mirror.GroupOffset) error {
	if err := c.there(tp); err != nil {
		return err
	}
	if at.Offset < 0 {
		return fmt.Errorf("memlog: group %s: offset %d of %s-%d is none", name, at.Offset, tp.Topic, tp.Partition)
	}
	g := c.group(name, kind)
	if g.kind != kind {
		return fmt.Errorf("memlog: %s is a %s, not a %s", name, g.kind, kind)
	}
	g.offsets[tp] = at
	return nil
}

// CommitOffset commits as a member of the group or a standalone consumer does: whether it has members or not. The group is made where there is none.
// An error that wraps mirror.ErrUnknownTopic: there is no such partition.
func (c *Cluster) CommitOffset(group string, tp mirror.TopicPartition, at mirror.GroupOffset) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commit(group, mirror.OffsetGroup, tp, at)
}

// SetShareOffset sets the start offset of a share group (KIP-932), as its members move it. The group is made where there is none.
func (c *Cluster) SetShareOffset(group string, tp mirror.TopicPartition, start int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commit(group, mirror.ShareGroup, tp, mirror.GroupOffset{Offset: start, LeaderEpoch: mirror.Unknown})
}

// JoinGroup adds a member: the group is active. A group that is not there is made, of kind OffsetGroup; a share group has to have an offset first.
func (c *Cluster) JoinGroup(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group(group, mirror.OffsetGroup).members++
}

// LeaveGroup takes one member away; with the last one the group is no longer active, and gone if it keeps no offset. Without members nothing happens.
func (c *Cluster) LeaveGroup(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.groups[group]; g != nil {
		g.members = max(g.members-1, 0)
		c.forget(group)
	}
}

// DeleteGroupOffsets takes offsets of these partitions away; no partitions: all of them. So does a cluster after offsets.retention.minutes.
func (c *Cluster) DeleteGroupOffsets(group string, partitions ...mirror.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[group]
	if g == nil {
		return
	}
	for _, tp := range partitions {
		delete(g.offsets, tp)
	}
	if len(partitions) == 0 {
		clear(g.offsets)
	}
	c.forget(group)
}

// PendingCommit begins a transactional commit of the group for the partition, or ends it (KIP-447). While it is under way the partition is in GroupOffsets.Pending.
// A commit that succeeds is a CommitOffset besides.
func (c *Cluster) PendingCommit(group string, tp mirror.TopicPartition, pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pending {
		c.group(group, mirror.OffsetGroup).pending[tp] = struct{}{}
	} else if g := c.groups[group]; g != nil {
		delete(g.pending, tp)
		c.forget(group)
	}
}

// GroupOffset is where a group is, of any kind; false: it has no offset there. It passes no hook.
func (c *Cluster) GroupOffset(group string, tp mirror.TopicPartition) (mirror.GroupOffset, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[group]
	if g == nil {
		return mirror.GroupOffset{}, false
	}
	at, ok := g.offsets[tp]
	return at, ok
}

// GroupCoordinator is the broker that answers for a group. It is the same for the same name and number of brokers; while the broker is stopped nobody answers for its groups.
func (c *Cluster) GroupCoordinator(group string) int32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(group))
	return int32(sum.Sum32()%uint32(c.cfg.Brokers)) + 1
}

// coordinated is an error if nobody answers for the group. Under mu.
func (c *Cluster) coordinated(name string) error {
	id := c.GroupCoordinator(name)
	if !c.stopped[id] {
		return nil
	}
	return sourceError(mirror.SourceUnreachable, "groups", mirror.TopicPartition{}, fmt.Errorf("memlog: broker %d, which coordinates group %s, is stopped", id, name))
}

// Groups lists every group, in order of name. Groups of a stopped broker are missing, and the error names it.
func (c *Cluster) Groups(ctx context.Context) (found []mirror.Group, err error) {
	var failed []error
	err = c.metadata(ctx, Call{Operation: "Metadata.Groups"}, "list groups", func() error {
		silent := map[int32]bool{}
		for _, name := range slices.Sorted(maps.Keys(c.groups)) {
			switch id := c.GroupCoordinator(name); {
			case c.lacks("Describe", "Cluster", "") && c.lacks("Describe", "Group", name): // Kafka leaves out, without a word, what may not be seen
			case silent[id]:
			case c.stopped[id]:
				silent[id] = true
				failed = append(failed, sourceError(mirror.SourceUnreachable, "list groups", mirror.TopicPartition{}, fmt.Errorf("memlog: broker %d is stopped", id)))
			default:
				found = append(found, c.groups[name].describe(name))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, errors.Join(failed...)
}

// GroupOffsets reads offsets of groups. Partitions of a topic that may not be described are left out, as Kafka does.
func (c *Cluster) GroupOffsets(ctx context.Context, groups []mirror.Group) (map[string]mirror.GroupOffsets, error) {
	found := make(map[string]mirror.GroupOffsets, len(groups))
	err := c.metadata(ctx, Call{Operation: "Metadata.GroupOffsets"}, "read group offsets", func() error {
		for _, g := range groups {
			found[g.Name] = c.groupOffsets(g)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// groupOffsets reads one group. Under mu.
func (c *Cluster) groupOffsets(asked mirror.Group) mirror.GroupOffsets {
	o := mirror.GroupOffsets{Offsets: map[mirror.TopicPartition]mirror.GroupOffset{}}
	if err := c.groupRight("Describe", asked); err != nil {
		o.Err = err
		return o
	}
	g := c.groups[asked.Name]
	if g == nil || g.kind != asked.Kind {
		return o
	}
	for tp, at := range g.offsets {
		if _, pending := g.pending[tp]; !pending && !c.lacks("Describe", "Topic", tp.Topic) {
			o.Offsets[tp] = at
		}
	}
	for _, tp := range sorted(g.pending) {
		if !c.lacks("Describe", "Topic", tp.Topic) {
			o.Pending = append(o.Pending, tp)
		}
	}
	return o
}

// groupRight is why nothing is to be had of a group at all. Under mu.
func (c *Cluster) groupRight(operation string, g mirror.Group) error {
	switch {
	case g.Kind == mirror.ShareGroup && c.cfg.NoShareGroups:
		return fmt.Errorf("memlog: %w: the cluster has no share groups", mirror.ErrUnsupported)
	case c.lacks(operation, "Group", g.Name):
		return denied(operation, "Group", g.Name)
	}
	return c.coordinated(g.Name)
}

// WriteGroupOffsets moves or makes a group without members.
func (c *Cluster) WriteGroupOffsets(
	ctx context.Context, group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset,
) (refused map[mirror.TopicPartition]error, err error) {
	err = c.call(ctx, Call{Operation: "Destination.WriteGroupOffsets", Group: group.Name}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.groupRight("Read", group); err != nil {
			return err
		}
		if g := c.groups[group.Name]; g != nil && (g.members > 0 || g.kind != group.Kind) {
			return fmt.Errorf("memlog: %w: %s is a %s with %d members", mirror.ErrGroupActive, group.Name, g.kind, g.members)
		}
		for _, tp := range sorted(offsets) {
			at, err := offsets[tp], error(nil)
			if group.Kind == mirror.ShareGroup {
				at = mirror.GroupOffset{Offset: at.Offset, LeaderEpoch: mirror.Unknown}
			}
			if c.lacks("Read", "Topic", tp.Topic) {
				err = denied("Read", "Topic", tp.Topic)
			} else {
				err = c.commit(group.Name, group.Kind, tp, at)
			}
			if err != nil {
				if refused == nil {
					refused = map[mirror.TopicPartition]error{}
				}
				refused[tp] = err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refused, nil
}
