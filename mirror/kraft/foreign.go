package kraft

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// A broker is given partitions of whatever topic somebody creates. From Kafka 4.3 on the log directory is cordoned, and nothing is placed here but what a manual assignment asks for.
// Earlier versions have no such thing: there a partition that is none of ours is moved to the stock brokers as soon as the metadata shows it. Nobody can have written to it while this
// process leads it.

// foreignPlacement looks at a new partition that has this process among its replicas.
func (d *Destination) foreignPlacement(p clustermetadata.Partition) {
	d.spawn(func(ctx context.Context) {
		tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		bounded, stop := context.WithTimeout(ctx, 3*d.cfg.RequestTimeout)
		defer stop()
		for d.settingsInUse(p.Topic) { // our own creation: it remembers the topic before it ends
			if pause(bounded, 50) != nil {
				return
			}
		}
		all, err := d.remembered.all(bounded)
		if err != nil {
			d.notice(Event{Kind: Trouble, Partition: tp, Err: err, Text: "it is not known whether this partition is one of ours"})
			return
		}
		if m, ours := all[p.Topic]; ours && (m.TopicID == p.TopicID || m.Creator == d.cfg.NodeID && d.justCreated(p.Topic)) {
			switch { // somebody has grown a mirrored topic
			case p.Leader == d.cfg.NodeID:
				if l := d.log(tp); l != nil {
					d.regainSoon(l)
				}
			case p.Leader >= 0 && !d.isMirror(p.Leader):
				err := d.errorf(tp, "somebody added it to a mirrored topic, and broker %d leads it from the start: clients may write into it. Stop the topic, or delete it and mirror it anew", p.Leader)
				d.notice(Event{Kind: Violation, Partition: tp, Err: err, Text: err.Error()})
			}
			return
		}
		if err := d.moveAway(bounded, tp); err != nil && ctx.Err() == nil {
			d.notice(Event{Kind: Trouble, Partition: tp, Err: err, Text: fmt.Sprintf("the cluster placed this partition on broker %d, which holds nothing but mirrored topics, and it could not be moved away: reassign it to other brokers", d.cfg.NodeID)})
		}
	})
}

// moveAway moves an empty partition to the stock brokers.
func (d *Destination) moveAway(ctx context.Context, tp mirror.TopicPartition) error {
	if err := d.inSession(); err != nil {
		return err
	}
	p, err := d.partition(tp)
	if err != nil {
		return nil // gone again
	}
	if !slices.Contains(p.Replicas, d.cfg.NodeID) {
		return nil
	}
	want := without(target(p), d.cfg.NodeID)
	for _, id := range d.liveBrokers() {
		if len(want) < len(target(p)) && !slices.Contains(want, id) {
			want = append(want, id)
		}
	}
	if len(want) == 0 {
		return d.errorf(tp, "no stock broker is alive to take it")
	}
	d.notice(Event{Kind: Trouble, Partition: tp, Text: fmt.Sprintf("the cluster placed this partition on broker %d, which holds nothing but mirrored topics: it is moved to %v", d.cfg.NodeID, want)})
	if err := d.setReplicas(ctx, tp, want); err != nil {
		return err
	}
	for {
		if p, err = d.partition(tp); err != nil || !slices.Contains(p.Replicas, d.cfg.NodeID) {
			return nil
		}
		if p.Leader == d.cfg.NodeID { // only the leader can say who is in sync, and its log is empty
			if err := d.barrier.sharing(ctx, func() error {
				return d.setISR(ctx, tp, append([]int32{d.cfg.NodeID}, want...), func(p clustermetadata.Partition) bool { return !slices.Contains(p.Replicas, d.cfg.NodeID) })
			}); err != nil {
				return err
			}
			continue
		}
		wait, stop := context.WithTimeout(ctx, time.Second)
		err := d.meta.wait(wait, fmt.Sprintf("%s-%d to leave this process", tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(tp.Topic, tp.Partition)
			return !ok || now.PartitionEpoch > p.PartitionEpoch
		})
		stop()
		if err != nil && ctx.Err() != nil {
			return err
		}
	}
}
