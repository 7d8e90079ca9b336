package kafkametadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// The last versions of OffsetFetch and OffsetCommit that name topics. The next ones (KIP-848, Kafka 4.1) know their ids only, and offsets may be of a topic that was made anew since.
const (
	mostOffsetFetch  = 9
	mostOffsetCommit = 9
)

// firstManyGroups is the first version of OffsetFetch that asks about many groups (KIP-709, Kafka 3.0).
const firstManyGroups = 8

// fetchOffsets asks one coordinator for the committed offsets of its groups in all their partitions.
func (c *Client) fetchOffsets(ctx context.Context, broker int32, groups []string) map[string]answer {
	const api = "OffsetFetch"
	got := make(map[string]answer, len(groups))
	for some := 1; len(groups) > 0; groups = groups[some:] {
		some = min(len(groups), mostGroups)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = true
		req.Group = groups[0] // what a broker before 3.0 sees
		for _, g := range groups[:some] {
			of := kmsg.NewOffsetFetchRequestGroup()
			of.Group = g
			req.Groups = append(req.Groups, of)
		}
		resp, err := ask[*kmsg.OffsetFetchResponse](ctx, c, broker, pinned{req, mostOffsetFetch})
		if err != nil {
			unanswered(got, groups, broker, api, err, true)
			return got
		}
		answers := resp.Groups
		if resp.Version < firstManyGroups {
			some, answers = 1, []kmsg.OffsetFetchResponseGroup{onlyGroup(groups[0], resp)}
		}
		for i := range answers {
			got[answers[i].Group] = offsetsOf(broker, &answers[i])
		}
	}
	return got
}

// onlyGroup is the answer of a broker before 3.0 in the shape of later ones.
func onlyGroup(group string, resp *kmsg.OffsetFetchResponse) kmsg.OffsetFetchResponseGroup {
	g := kmsg.OffsetFetchResponseGroup{Group: group, ErrorCode: resp.ErrorCode}
	for _, t := range resp.Topics {
		of := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			of.Partitions = append(of.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		g.Topics = append(g.Topics, of)
	}
	return g
}

// offsetsOf reads one group's answer. An offset of −1 is none.
func offsetsOf(broker int32, g *kmsg.OffsetFetchResponseGroup) answer {
	const api = "OffsetFetch"
	switch g.ErrorCode {
	case 0:
	case kerr.GroupIDNotFound.Code: // it does not exist, or is a share group here
		return answer{}
	default:
		return answer{GroupOffsets: mirror.GroupOffsets{Err: &BrokerError{Broker: broker, API: api, Err: kerr.ErrorForCode(g.ErrorCode)}}, again: isAgain(g.ErrorCode)}
	}
	a := answer{GroupOffsets: mirror.GroupOffsets{Offsets: map[mirror.TopicPartition]mirror.GroupOffset{}}}
	var refused BrokersError
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			switch {
			case p.ErrorCode == kerr.UnstableOffsetCommit.Code:
				a.Pending = append(a.Pending, tp)
			case isAgain(p.ErrorCode): // a broker before 3.0 says it of partitions
				return answer{GroupOffsets: mirror.GroupOffsets{Err: &BrokerError{Broker: broker, API: api, Err: kerr.ErrorForCode(p.ErrorCode)}}, again: true}
			case p.ErrorCode != 0:
				a.Unread = append(a.Unread, tp)
				refused = append(refused, &BrokerError{Broker: broker, API: api, Err: fmt.Errorf("%s-%d: %w", tp.Topic, tp.Partition, kerr.ErrorForCode(p.ErrorCode))})
			case p.Offset >= 0:
				o := mirror.GroupOffset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}
				if p.Metadata != nil {
					o.Metadata = *p.Metadata
				}
				a.Offsets[tp] = o
			}
		}
	}
	slices.SortFunc(a.Pending, byPartition)
	slices.SortFunc(a.Unread, byPartition)
	a.Err = refused.orNil()
	return a
}

// commitBounds is how many bounds a write may take: its answer waits for every replica that is in sync, for a dead one too until that is fenced, and a coordinator for 5 s by default
// (offsets.commit.timeout.ms).
const commitBounds = 2

// byPartition is the order of topics and partitions.
func byPartition(a, b mirror.TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// mostCommitted is how many bytes the records of one OffsetCommit may have about. A coordinator writes them as one batch, and __consumer_offsets takes 1 MiB by default.
const mostCommitted = 256 << 10

// inParts are offsets in parts that one commit bears, in the order of their partitions.
func inParts(group string, offsets map[mirror.TopicPartition]mirror.GroupOffset) iter.Seq[[]mirror.TopicPartition] {
	return func(yield func([]mirror.TopicPartition) bool) {
		var part []mirror.TopicPartition
		size := 0
		for _, tp := range slices.SortedFunc(maps.Keys(offsets), byPartition) {
			n := len(group) + len(tp.Topic) + len(offsets[tp].Metadata) + 64
			if len(part) > 0 && size+n > mostCommitted {
				if !yield(part) {
					return
				}
				part, size = nil, 0
			}
			part, size = append(part, tp), size+n
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// WriteGroupOffsets is mirror.GroupWriter's: OffsetCommit as a member of no generation (Kafka's own way to move a group without members), or AlterShareGroupOffsets (KIP-932). The
// coordinator refuses both where there are members. A coordinator that is none any more, or does not answer, is looked up anew and the new one asked within the same call, and one
// that is none yet is waited for: writing twice what one has written is no harm.
func (c *Client) WriteGroupOffsets(ctx context.Context, group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	write, api := c.commitOffsets, "OffsetCommit"
	if group.Kind == mirror.ShareGroup {
		write, api = c.alterShareOffsets, "AlterShareGroupOffsets"
	}
	refused := make(map[mirror.TopicPartition]error)
	unsure := false // something was written, or may have been
	for part := range inParts(group.Name, offsets) {
		err := c.writePart(ctx, group.Name, api, &unsure, func(broker int32) (map[mirror.TopicPartition]error, error) {
			return write(ctx, broker, group.Name, part, offsets)
		}, part, refused)
		if err != nil {
			return refused, fmt.Errorf("%s %q: %w", group.Kind, group.Name, err)
		}
	}
	return refused, nil
}

// writePart writes to one coordinator, and to another one if that was none any more.
func (c *Client) writePart(ctx context.Context, group, api string, unsure *bool, write func(broker int32) (map[mirror.TopicPartition]error, error), part []mirror.TopicPartition, refused map[mirror.TopicPartition]error) error {
	var last *BrokerError
	silent := false
	for try := 0; try <= mostPauses; try++ {
		broker, err := c.coordinator(ctx, group)
		switch {
		case last == nil && err != nil:
			return err
		case err != nil, last != nil && last.Broker == broker && (silent || !wait(ctx, firstPause<<(try-1))):
			return last
		}
		answers, err := write(broker)
		if err == nil {
			err = wholeGroup(answers)
		}
		var code *kerr.Error
		switch isCode := errors.As(err, &code); {
		case err == nil:
			for _, tp := range part {
				if reason, ok := answers[tp]; !ok {
					refused[tp] = errLeftOut
				} else if reason != nil {
					refused[tp] = reason
				} else {
					*unsure = true
				}
			}
			return nil
		case errors.Is(err, mirror.ErrUnsupported):
			return &BrokerError{Broker: broker, API: api, Err: err}
		case !isCode:
			silent, *unsure = true, true
			c.coordinators.forgetBroker(broker)
		case isAgain(code.Code):
			silent = false
			// A coordinator whose write was not replicated in time says the same (Kafka: OffsetCommit maps NOT_ENOUGH_REPLICAS to it).
			*unsure = *unsure || code == kerr.CoordinatorNotAvailable
			c.coordinators.forget(group, broker)
		case isActive(code) && !*unsure:
			return fmt.Errorf("%w: %w", mirror.ErrGroupActive, &BrokerError{Broker: broker, API: api, Err: err})
		case isActive(code):
			return fmt.Errorf("the group has become active, and a part may have been written before: %w", &BrokerError{Broker: broker, API: api, Err: err})
		case *unsure:
			return &BrokerError{Broker: broker, API: api, Err: err}
		default:
			return Refused(code.Code, &BrokerError{Broker: broker, API: api, Err: err})
		}
		last = &BrokerError{Broker: broker, API: api, Err: err}
	}
	return last
}

// isActive: the coordinator knows members, or the group is of a kind that such offsets are not written to (GROUP_ID_NOT_FOUND: Kafka's ShareGroup.validateOffsetCommit).
func isActive(err *kerr.Error) bool {
	switch err {
	case kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.FencedInstanceID,
		kerr.NonEmptyGroup, kerr.GroupSubscribedToTopic, kerr.InconsistentGroupProtocol, kerr.GroupIDNotFound:
		return true
	}
	return false
}

// wholeGroup is an error that partitions were answered with and that is not theirs alone, nil if there is none.
func wholeGroup(answers map[mirror.TopicPartition]error) error {
	for _, err := range answers {
		var code *kerr.Error
		if !errors.As(err, &code) {
			continue
		}
		switch code {
		case kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.GroupAuthorizationFailed, kerr.InvalidGroupID, kerr.RequestTimedOut:
			return err
		}
		if isActive(code) {
			return err
		}
	}
	return nil
}

// commitOffsets writes to one coordinator. The answer has each partition's error, nil for written.
func (c *Client) commitOffsets(ctx context.Context, broker int32, group string, part []mirror.TopicPartition, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.RetentionTimeMillis = group, -1, "", -1
	for _, tp := range part {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		o := offsets[tp]
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, o.Offset, o.LeaderEpoch, kmsg.StringPtr(o.Metadata)
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := askWithin[*kmsg.OffsetCommitResponse](ctx, c, commitBounds*c.bound, broker, pinned{req, mostOffsetCommit})
	if err != nil {
		return nil, err
	}
	answers := make(map[mirror.TopicPartition]error, len(part))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answers[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return answers, nil
}
