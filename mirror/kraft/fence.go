package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// A partition that this process leads alone gets a greater leader epoch only by an election, and the controllers hold one when they fence the leader and when they let it in
// again: the epoch is then greater by two. That concerns everything that this process leads, so it happens for all wanted partitions together, and never while a stock broker is
// among the in-sync replicas of any of them, because the controllers would elect it: creation, take-over and hand-over hold the barrier, and what is left half done by a crash
// is found in the metadata before each fence.

// maxFences bounds one call: a source's epoch that is further ahead is raised by the next call, after the bound on calls has been looked at again.
const maxFences = 2500

// RaiseLeaderEpochs raises leader epochs to at least these; each round raises them all by two and takes under a tenth of a second, in which followers have no leader.
func (d *Destination) RaiseLeaderEpochs(ctx context.Context, atLeast map[mirror.TopicPartition]int32) (map[mirror.TopicPartition]int32, error) {
	end, err := d.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	if err := d.barrier.exclude(ctx); err != nil {
		return nil, fmt.Errorf("kraft: raising leader epochs: a creation, take-over or hand-over is under way: %w", err)
	}
	excluded := true
	defer func() {
		if excluded {
			d.barrier.include()
		}
	}()
	got := map[mirror.TopicPartition]int32{}
	var failed error
	for round := 0; ; round++ {
		if err := d.meta.caughtUp(ctx); err != nil {
			failed = err
			break
		}
		missing := false
		var wrong []error
		for tp, epoch := range atLeast {
			p, err := d.partition(tp)
			switch {
			case err != nil:
				wrong = append(wrong, err)
			case p.LeaderEpoch >= epoch:
				got[tp] = p.LeaderEpoch
			case p.Leader != d.cfg.NodeID:
				wrong = append(wrong, d.errorf(tp, "its leader is %d and not this process, so its leader epoch %d cannot be raised to %d: %w", p.Leader, p.LeaderEpoch, epoch, mirror.ErrFenced))
			default:
				missing = true
			}
		}
		failed = errors.Join(wrong...)
		if !missing {
			break
		}
		if round == maxFences {
			failed = errors.Join(failed, fmt.Errorf("kraft: %d rounds did not raise every leader epoch; it goes on with the next try", round))
			break
		}
		unheld := d.holdLed(ctx)
		if err := d.fence(ctx); err != nil {
			err = errors.Join(err, unheld)
			failed = errors.Join(failed, err)
			break
		}
		if err := d.barrier.letIn(ctx); err != nil { // many rounds take long: nobody's hand-over waits for all of them
			excluded = false
			failed = errors.Join(failed, fmt.Errorf("kraft: raising leader epochs: a creation, take-over or hand-over is under way: %w", err))
			break
		}
	}
	for tp := range got {
		if p, err := d.partition(tp); err == nil { // later rounds raised it further
			got[tp] = p.LeaderEpoch
		}
	}
	return got, failed
}

// fence does one round, if nobody could profit from it.
func (d *Destination) fence(ctx context.Context) error {
	if err := d.unsafeToFence(); err != nil {
		return err
	}
	if err := d.membership.fenceOnce(ctx); err != nil {
		return err
	}
	// Everything that had us as its leader has us again.
	return d.meta.wait(ctx, "this process's leadership after a fence", func(im *clustermetadata.Image) bool {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader < 0 && (slices.Contains(p.ISR, d.cfg.NodeID) || slices.Contains(p.ELR, d.cfg.NodeID)) {
				return false
			}
		}
		return true
	})
}

// unsafeToFence names a partition whose leadership a stock broker would get by a fence.
func (d *Destination) unsafeToFence() error {
	var wrong []error
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader != d.cfg.NodeID {
				continue
			}
			tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			switch {
			case len(p.ISR) != 1:
				wrong = append(wrong, d.errorf(tp, "other brokers are in sync (%v): a fence would make one of them the leader before the topic is stopped. Nothing was fenced; bring it to its shape first (the mirror does that when it opens the partition again)", p.ISR))
			case len(p.ELR) > 0:
				wrong = append(wrong, d.errorf(tp, "brokers %v may be elected (ELR): a fence would make one of them the leader before the topic is stopped. Nothing was fenced; set the topic's min.insync.replicas back to 1", p.ELR))
			}
			if reason := unsafeConfig(im, p.Topic); reason != "" && len(p.Replicas) > 1 {
				wrong = append(wrong, d.errorf(tp, "%s", reason))
			}
		}
	})
	if len(wrong) > 3 {
		wrong = append(wrong[:3], fmt.Errorf("and %d partitions more", len(wrong)-3))
	}
	return errors.Join(wrong...)
}

const (
	uncleanElection = "unclean.leader.election.enable"
	minInSync       = "min.insync.replicas"
)

// unsafeConfig is why a setting of a topic that this process leads lets a stock broker become the leader, "" if none does. Only a value of the topic itself is safe: what holds for
// the cluster may stand in files that the metadata does not show, and change.
func unsafeConfig(im *clustermetadata.Image, topic string) string {
	if mayElectUncleanly(im, topic) {
		v, ok := im.Config(clustermetadata.TopicResource, topic, uncleanElection)
		return fmt.Sprintf("unsafe: topic %s no longer says %s=false for itself (%s): a stock broker could be elected before the topic is stopped. This process sets it back to false; until then nothing is appended and no leader epoch is raised",
			topic, uncleanElection, shown(v, ok))
	}
	if v, ok := im.Config(clustermetadata.TopicResource, topic, minInSync); !ok || v != "1" {
		return fmt.Sprintf("unsafe: topic %s no longer says %s=1 for itself (%s): stock brokers could become eligible leaders (KIP-966) before the topic is stopped. This process sets it back to 1; until then nothing is appended and no leader epoch is raised",
			topic, minInSync, shown(v, ok))
	}
	return ""
}

// mayElectUncleanly says that the controllers could elect a replica which is not in sync: only the topic's own false forbids it.
func mayElectUncleanly(im *clustermetadata.Image, topic string) bool {
	v, ok := im.Config(clustermetadata.TopicResource, topic, uncleanElection)
	return !ok || v != "false"
}

func shown(v string, ok bool) string {
	if !ok {
		return "it is not set"
	}
	return "it is " + v
}
