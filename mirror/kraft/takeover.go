package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// A take-over makes this process the leader of a partition that a stock broker leads, without giving up a copy: the stock replicas stay full members. Its steps, each of which a
// crash may end, and which are found again in the metadata:
//
//  1. what the topic says of min.insync.replicas and unclean.leader.election.enable is remembered, then set to 1 and false. With more than 1, the shrinking of step 4 would make the
//     stock replicas eligible leaders (KIP-966), and the next fence or crash would elect one: divergent and writable.
//  2. this process is added to the replicas, first in order. Its log is held: whoever asks it for the partition is told to ask again. So it does not matter when it is elected.
//  3. one replica fetch at the leader's log end makes the leader take it into the in-sync replicas, which completes the reassignment; a preferred election makes it the leader.
//     From here on no client writes.
//  4. the in-sync replicas are shrunk to this process alone, and the metadata must show that nobody else may be elected. Until then nothing fences this process (barrier).
//  5. the longest copy becomes the log; the log is released. Whether enough copies can be asked is looked at before step 1; one that was in sync at the election suffices.
//     Followers that hold more of another history truncate when the mirror has truncated the log.
//
// A take-over that fails half way leaves the partition open, or led by this process and closed; Open undoes the one and the other, and a second try goes on from where it is.

// CloseForWrites takes the partition over if a stock broker leads it.
func (l *Log) CloseForWrites(ctx context.Context) error {
	d := l.d
	end, err := d.begin()
	if err != nil {
		return err
	}
	defer end()
	d.keepSettings(l.tp.Topic)
	defer d.freeSettings(l.tp.Topic)
	if err := l.work.take(ctx); err != nil {
		return d.errorf(l.tp, "take-over: something else is under way with it: %w", err)
	}
	defer l.work.release()
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	p, err := l.partition()
	if err != nil {
		return err
	}
	if p.Leader == d.cfg.NodeID && len(p.ISR) == 1 && !l.log.Held() && len(p.Adding)+len(p.Removing) == 0 && d.exposed(l.tp) == nil {
		return nil
	}
	if p.Leader >= 0 && d.isMirror(p.Leader) {
		return d.errorf(l.tp, "take-over: mirror process %d leads it: %w", p.Leader, mirror.ErrFenced)
	}
	if err := d.tiered(l.tp.Topic); err != nil {
		return err
	}
	if p.Leader != d.cfg.NodeID {
		if err := l.askable(ctx, p); err != nil {
			return err
		}
	}
	if err := d.guard(ctx, l.tp.Topic, p.TopicID); err != nil {
		return err
	}
	if p.Leader != d.cfg.NodeID {
		l.log.Hold()
		if err := l.becomeLeader(ctx, p); err != nil {
			return err
		}
	}
	if err := d.barrier.sharing(ctx, func() error { return d.alone(ctx, l.tp) }); err != nil {
		return err
	}
	if l.log.Held() {
		if err := l.regain(ctx); err != nil {
			return err
		}
	}
	if err := d.exposed(l.tp); err != nil {
		return err
	}
	_ = d.endTaking(ctx, l.tp.Topic, p.TopicID, 1) // or tidyUp does it
	d.notice(Event{Kind: TakenOver, Partition: l.tp, Text: fmt.Sprintf("its log is [%d, %d)", l.log.Start(), l.log.End())})
	return nil
}

// guard sets what keeps stock brokers from being elected, after it has remembered what was there.
func (d *Destination) guard(ctx context.Context, topic string, id mirror.TopicID) error {
	lock := d.settingsLock(topic)
	if err := lock.take(ctx); err != nil {
		return err
	}
	defer lock.release()
	safe := func(im *clustermetadata.Image) bool { return unsafeConfig(im, topic) == "" }
	done := false
	before := map[string]*string{minInSync: nil, uncleanElection: nil}
	d.meta.look(func(im *clustermetadata.Image) {
		done = safe(im)
		for name := range before {
			if v, ok := im.Config(clustermetadata.TopicResource, topic, name); ok {
				before[name] = &v
			}
		}
	})
	have, err := d.remembered.of(ctx, topic, id)
	if err != nil {
		return err
	}
	if says := d.unheld(topic); have.Configs == nil || !have.takenBy(d.cfg.NodeID) || len(says) > 0 {
		var others map[string]*string
		if err := d.remembered.change(ctx, topic, id, func(m *memory) {
			others = nil
			if m.Configs == nil {
				m.Configs = before
				m.say(before)
			} else { // it is mirrored already, or was not put back yet
				others = m.keep(says)
			}
			if !m.takenBy(d.cfg.NodeID) {
				m.Takers = append(slices.Clone(m.Takers), d.cfg.NodeID)
			}
		}); err != nil {
			return err
		}
		d.tellKept(topic, others)
	}
	if done {
		return nil
	}
	one, no := "1", "false"
	if err := carryOut(ctx, &d.requests.configs, configChange{topic, map[string]*string{minInSync: &one, uncleanElection: &no}}); err != nil {
		return err
	}
	return d.meta.wait(ctx, "the safe settings of topic "+topic, safe)
}

// exposed is why a stock broker could be elected for a partition that this process is to lead alone, nil if none can.
func (d *Destination) exposed(tp mirror.TopicPartition) error {
	p, err := d.partition(tp)
	if err != nil {
		return err
	}
	if p.Leader == d.cfg.NodeID && (len(p.ISR) > 1 || len(p.ELR) > 0) {
		return d.errorf(tp, "brokers %v are in sync and brokers %v may be elected although they are not (ELR): one of them could lead it before the topic is stopped; it is brought to its shape when it is opened again", p.ISR, p.ELR)
	}
	if reason := d.unsafeTopic(tp.Topic); reason != "" {
		return d.errorf(tp, "%s", reason)
	}
	return nil
}

// endTaking forgets that this process takes a topic over, unless more than mine need its settings in this process now.
func (d *Destination) endTaking(ctx context.Context, topic string, id mirror.TopicID, mine int) error {
	m, err := d.remembered.of(ctx, topic, id)
	if err != nil || !m.takenBy(d.cfg.NodeID) || d.settingsUsers(topic) > mine {
		return err
	}
	return d.remembered.change(ctx, topic, id, func(m *memory) {
		if d.settingsUsers(topic) <= mine {
			if m.Takers = without(m.Takers, d.cfg.NodeID); len(m.Takers) == 0 {
				m.Said = nil // from here on what it says else is somebody's change
			}
		}
	})
}

// becomeLeader does steps 2 and 3.
func (l *Log) becomeLeader(ctx context.Context, p clustermetadata.Partition) error {
	d := l.d
	if p.Leader < 0 {
		return d.errorf(l.tp, "take-over: it has no leader; start the brokers %v", p.Replicas)
	}
	replicas := append([]int32{d.cfg.NodeID}, without(target(p), d.cfg.NodeID)...)
	if len(replicas) < 2 {
		return d.errorf(l.tp, "take-over: no stock broker is among its replicas")
	}
	if err := d.membership.uncordoned(ctx, func() error { return d.setReplicasOf(ctx, l.tp, l.id, replicas) }); err != nil {
		return err
	}
	for {
		p, err := l.partition()
		if err != nil {
			return err
		}
		if p.Leader == d.cfg.NodeID {
			return nil
		}
		if !slices.Contains(p.Replicas, d.cfg.NodeID) { // somebody has cancelled the addition
			if err := d.membership.uncordoned(ctx, func() error { return d.setReplicasOf(ctx, l.tp, l.id, replicas) }); err != nil {
				return err
			}
			continue
		}
		// A fence that comes between two tries finds this process out of the in-sync replicas, or leading alone.
		if err := d.barrier.sharing(ctx, func() error { return l.enter(ctx) }); err != nil {
			return err
		}
	}
}

// enter does one try of step 3, and step 4 if it led to something.
func (l *Log) enter(ctx context.Context) error {
	d := l.d
	p, err := l.partition()
	if err != nil {
		return err
	}
	if p.Leader != d.cfg.NodeID && !slices.Contains(p.ISR, d.cfg.NodeID) {
		if err := l.showUp(ctx, p); err != nil {
			return err
		}
		// The leader asks the controllers to take us in; while clients write, its end may have moved on before that.
		wait, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		err = d.meta.wait(wait, "", func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(l.tp.Topic, l.tp.Partition)
			return !ok || now.PartitionEpoch > p.PartitionEpoch
		})
		stop()
		if err != nil && ctx.Err() != nil {
			return d.errorf(l.tp, "take-over: its leader %d does not take this process into the in-sync replicas; clients that write all the time keep it out: end them: %w", p.Leader, ctx.Err())
		}
		if p, err = l.partition(); err != nil {
			return err
		}
	}
	if p.Leader != d.cfg.NodeID && slices.Contains(p.ISR, d.cfg.NodeID) {
		if err := carryOut(ctx, &d.requests.elect, l.tp); err != nil {
			return err
		}
		if err := d.meta.wait(ctx, fmt.Sprintf("this process to be elected for %s-%d", l.tp.Topic, l.tp.Partition), func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(l.tp.Topic, l.tp.Partition)
			return !ok || now.PartitionEpoch > p.PartitionEpoch
		}); err != nil {
			return err
		}
		if p, err = l.partition(); err != nil {
			return err
		}
	}
	if p.Leader == d.cfg.NodeID {
		return d.alone(ctx, l.tp)
	}
	return nil
}

// showUp sends one replica fetch at the leader's log end. It holds nothing of the log: what it says is that it would be ready to lead, and it will be before anybody is served.
func (l *Log) showUp(ctx context.Context, p clustermetadata.Partition) error {
	d := l.d
	ends, err := d.ends.do(ctx, endsQuestion{p.Leader, l.target()})
	if err = errors.Join(err, ends.Err); err != nil {
		return d.errorf(l.tp, "take-over: asking its leader %d for its end: %w", p.Leader, err)
	}
	answer, err := d.requests.showUps.do(ctx, showUp{p.Leader, l.target(), p.LeaderEpoch, ends.Start, ends.End})
	if err != nil {
		return d.errorf(l.tp, "take-over: %w", err)
	}
	switch err := answer; {
	case err == nil, errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.UnknownLeaderEpoch), errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.OffsetOutOfRange):
		return nil // asked again with what the metadata says then, where it must be
	default:
		return d.errorf(l.tp, "take-over: its leader %d refuses this process as a replica: %w", p.Leader, err)
	}
}
