package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// sourceLook is where the logs of the promoted topics end at the source.
type sourceLook struct {
	began, done time.Time
	ends        map[TopicPartition]sourceLogEnd
}

type sourceLogEnd struct {
	topicID       TopicID
	end           int64 // of the leader's log
	highWatermark int64
}

// errOtherSource: another cluster, or another topic of that name, is where the source was.
var errOtherSource = errors.New("it is not what the mirror copies")

// lookAtSource looks at every partition that the topics have there now. An answer that lacks one is none. It takes no longer than CallBound would.
func (p *promoting) lookAtSource(ctx context.Context) (*sourceLook, error) {
	ctx, stop := context.WithTimeout(ctx, 2*askBound)
	defer stop()
	look := &sourceLook{began: p.now(), ends: map[TopicPartition]sourceLogEnd{}}
	info, err := p.source.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	if p.sourceID = cmp.Or(p.sourceID, info.ID); info.ID != p.sourceID {
		return nil, fmt.Errorf("%w: cluster %s answers, and the source is cluster %s", errOtherSource, info.ID, p.sourceID)
	}
	p.r.SourceClusterID = cmp.Or(p.r.SourceClusterID, info.ID)
	found, err := p.source.Topics(ctx, p.record.Topics...)
	if err != nil {
		return nil, err
	}
	var all []TopicPartition
	ids := map[string]TopicID{}
	for _, t := range found {
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
		ids[t.Name] = t.ID
		for i := range t.Partitions {
			all = append(all, TopicPartition{t.Name, i})
		}
	}
	for _, name := range p.record.Topics {
		if _, there := ids[name]; !there {
			return nil, fmt.Errorf("topic %s: %w", name, ErrUnknownTopic)
		}
	}
	marks, err := p.source.Offsets(ctx, all)
	if err != nil {
		return nil, err
	}
	ends := marks
	if reader, ok := p.source.(LogEndReader); ok {
		if ends, err = reader.LogEnds(ctx, all); err != nil {
			return nil, err
		}
	} else {
		p.r.NoLogEnds = true
	}
	for _, tp := range all {
		mark, end := marks[tp], ends[tp]
		if err := cmp.Or(mark.Err, end.Err); err != nil {
			return nil, fmt.Errorf("%s-%d: %w", tp.Topic, tp.Partition, err)
		}
		if mark.HighWatermark < 0 || end.HighWatermark < 0 {
			return nil, fmt.Errorf("%s-%d: the source does not say where it ends", tp.Topic, tp.Partition)
		}
		look.ends[tp] = sourceLogEnd{ids[tp.Topic], end.HighWatermark, mark.HighWatermark}
	}
	look.done = p.now()
	return look, nil
}

// agrees says that two looks saw the same logs end at the same offsets.
func (l *sourceLook) agrees(other *sourceLook) bool {
	if len(l.ends) != len(other.ends) {
		return false
	}
	for tp, e := range l.ends {
		if o, ok := other.ends[tp]; !ok || o.end != e.end || o.topicID != e.topicID {
			return false
		}
	}
	return true
}

// settled says that replicas have everything: what a leader alone has may yet be acknowledged, or lost.
func (l *sourceLook) settled() bool { return l.unsettled() == "" }

func (l *sourceLook) unsettled() string {
	var late []string
	for _, tp := range l.partitions() {
		if e := l.ends[tp]; e.highWatermark < e.end {
			late = append(late, fmt.Sprintf("%s-%d [%d,%d)", tp.Topic, tp.Partition, e.highWatermark, e.end))
		}
	}
	if len(late) == 0 {
		return ""
	}
	return "not on every replica in sync at the source yet: " + few(late)
}

func (l *sourceLook) partitions() []TopicPartition {
	all := make([]TopicPartition, 0, len(l.ends))
	for tp := range l.ends {
		all = append(all, tp)
	}
	slices.SortFunc(all, compareTopicPartitions)
	return all
}

type openTransactions []OpenTransaction

func (open openTransactions) names() (words []string) {
	for _, t := range open {
		who := fmt.Sprintf("of producer %d", t.ProducerID)
		if t.ProducerID == Unknown {
			who = "of a producer"
		}
		words = append(words, fmt.Sprintf("%s-%d since offset %d %s", t.Topic, t.Partition, t.FirstOffset, who))
	}
	return words
}

// lacking says what copies lack of what the look saw, and which transactions are open in them. What somebody else has stopped gets no more, and is compared when all is stopped.
func (l *sourceLook) lacking(copies map[TopicPartition]promotionCopy) (lack []string, open openTransactions) {
	for _, tp := range l.partitions() {
		end := l.ends[tp].end
		switch c, there := copies[tp]; {
		case c.stopped:
		case !there:
			lack = append(lack, fmt.Sprintf("%s-%d is not copied", tp.Topic, tp.Partition))
		case !c.mirroring:
			lack = append(lack, fmt.Sprintf("%s-%d is %s", tp.Topic, tp.Partition, c.state))
		case !c.heard:
			lack = append(lack, fmt.Sprintf("%s-%d: nobody who copies it has reported since %s", tp.Topic, tp.Partition, stamp(l.done)))
		case !c.has(end):
			lack = append(lack, fmt.Sprintf("%s-%d [%d,%d)", tp.Topic, tp.Partition, c.replicated, end))
		default:
			open = append(open, c.open...)
		}
	}
	return lack, open
}
