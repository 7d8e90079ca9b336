package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// mirrorCopies are those of the mirror that runs in this process.
type mirrorCopies struct{ m *Mirror }

func (c mirrorCopies) look(_ context.Context, topics []string, _ time.Time) (map[TopicPartition]promotionCopy, error) {
	if c.m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	s := c.m.Status()
	if s.Fenced != nil {
		return nil, fmt.Errorf("%w: %v", ErrFenced, s.Fenced)
	}
	found := map[TopicPartition]promotionCopy{}
	for _, t := range s.Topics {
		if !slices.Contains(topics, t.Topic) {
			continue
		}
		for i := range t.Partitions {
			p := &t.Partitions[i]
			x := promotionCopy{mirroring: p.State == statemachine.Mirroring && !p.Halted, heard: true, stopped: stopped(t.MirrorName), state: p.State.String() + because(p.Reason), replicated: p.Replicated}
			if p.NothingLeft && p.Replicated >= p.End {
				x.emptyTo = p.SourceEnd
			}
			tp := TopicPartition{p.Topic, p.Partition}
			for _, open := range p.InFlight {
				x.open = append(x.open, OpenTransaction{tp, open.ProducerID, open.ProducerEpoch, open.FirstOffset})
			}
			found[tp] = x
		}
	}
	return found, nil
}

func (c mirrorCopies) stop(ctx context.Context, p *promoting) (map[TopicPartition]promotedCopy, error) {
	plan := PlanFailover(c.m.Snapshot(), FailoverOptions{Topics: p.record.Topics, Partial: p.o.Partial, Reason: p.o.Intent.Reason})
	report, err := c.m.executeFailover(ctx, plan, p.stopOptions())
	p.r.DestinationClusterID = cmp.Or(p.r.DestinationClusterID, report.DestinationClusterID)
	if len(report.Partitions) == 0 {
		if err == nil {
			err = fmt.Errorf("%w: no partition of it is known", ErrIncomplete)
		}
		return nil, err
	}
	seen := map[TopicPartition]bool{} // a process that has begun since does not know what was aborted
	for _, t := range c.m.Status().Topics {
		for i := range t.Partitions {
			seen[TopicPartition{t.Topic, t.Partitions[i].Partition}] = !t.Partitions[i].StopEnded.IsZero()
		}
	}
	found := map[TopicPartition]promotedCopy{}
	for _, f := range report.Partitions {
		tp := TopicPartition{f.Topic, f.Partition}
		x := promotedCopy{final: f.FinalOffset, lme: int64(f.LME), aborts: Unknown, err: f.Err}
		if seen[tp] {
			x.aborts = int64(len(f.Aborts))
		}
		found[tp] = x
	}
	return found, err
}

// stopOptions are those of the stop that ends the promotion.
func (p *promoting) stopOptions() StopOptions {
	intent := p.o.Intent
	intent.Plan = "" // it was compared when the promotion began, and is about the request
	intent.detail = cmp.Or(prefixed("behind the fence ", p.record.Fence), "without a fence")
	if intent.Reason == "" {
		intent.Reason = cmp.Or(p.record.Reason, "promotion")
	}
	return StopOptions{Partial: p.o.Partial, Intent: intent, promotes: &promotes{record: &p.record}}
}

// reportedCopies are those of a mirror that another process runs, as it reports them. A report does not say that the source has nothing to read where it has no records (PartitionStatus.NothingLeft): a
// topic that ends so can be promoted by its own process only.
type reportedCopies struct{ a *Admin }

func (c reportedCopies) reports(ctx context.Context, topics []string) ([]PartitionReport, error) {
	reports, _, err := c.a.hear(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading reports: %w", err)
	}
	for _, u := range reports.Unread {
		if u.Mirror == c.a.cfg.Mirror && !u.Node && !u.Answer {
			return nil, u.Err
		}
	}
	return slices.DeleteFunc(reports.Partitions, func(r PartitionReport) bool { return r.Mirror != c.a.cfg.Mirror || !slices.Contains(topics, r.Topic) }), nil
}

func (c reportedCopies) look(ctx context.Context, topics []string, since time.Time) (map[TopicPartition]promotionCopy, error) {
	reports, err := c.reports(ctx, topics)
	if err != nil {
		return nil, err
	}
	state, err := c.a.cfg.Control.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the desired state: %w", err)
	}
	found := map[TopicPartition]promotionCopy{}
	for _, r := range reports {
		tp := TopicPartition{r.Topic, r.Partition}
		heard := c.a.pulses.since(r.Owner, since)
		if found[tp].heard && !heard {
			continue // somebody had it before
		}
		wish, _ := state.Topic(r.Topic)
		x := promotionCopy{mirroring: r.State == statemachine.Mirroring, heard: heard, stopped: stopped(wish.MirrorName), state: r.State.String() + because(r.Reason), replicated: r.DestinationEnd}
		if r.OpenTransactions > 0 {
			x.open = []OpenTransaction{{tp, Unknown, Unknown, r.OpenFrom}}
		}
		found[tp] = x
	}
	return found, nil
}

func (c reportedCopies) stop(ctx context.Context, p *promoting) (map[TopicPartition]promotedCopy, error) {
	if _, err := c.a.Stop(ctx, p.record.Topics, p.stopOptions()); err != nil {
		return nil, err
	}
	if _, err := c.a.Await(ctx, AwaitOptions{Topics: p.record.Topics, Until: ReachedStopped}, nil); err != nil {
		return nil, err
	}
	reports, err := c.reports(ctx, p.record.Topics)
	if err != nil {
		return nil, err
	}
	names := map[TopicID]string{}
	for _, r := range reports {
		names[r.TopicID] = r.Topic
	}
	found := map[TopicPartition]promotedCopy{}
	err = c.a.cfg.States.Load(ctx, func(e statemachine.Entry) error {
		name, ok := names[e.Key.TopicID]
		if !ok || e.Key.Mirror != c.a.cfg.Mirror {
			return nil
		}
		x := promotedCopy{final: Unknown, lme: Unknown, aborts: Unknown}
		if e.LME != nil {
			x.final, x.lme = e.LME.Offset, int64(e.LME.Epoch)
		}
		found[TopicPartition{name, e.Key.Partition}] = x
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading partition states: %w", err)
	}
	return found, nil
}
