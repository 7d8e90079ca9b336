package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Timestamps with a meaning of their own (ListOffsetsRequest).
const (
	latestTimestamp        = -1
	earliestTimestamp      = -2
	earliestLocalTimestamp = -4 // KIP-405
)

// leastLocalListOffsets is the first ListOffsets version that knows earliestLocalTimestamp (KIP-405). Earlier ones would look for a record of that time.
const leastLocalListOffsets = 8

// logEnd stands for latestTimestamp, asked as a replica does. It is in no request.
const logEnd = math.MinInt64

const listOffsetsOperation = "list offsets"

// Offsets asks the current leader of each partition for its log start and its high watermark: one metadata request, then two requests per broker.
func (s *Source) Offsets(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return s.startsAndEnds(ctx, partitions, latestTimestamp)
}

// LogEnds is Offsets, and asks as a replica does: to it a leader says where its log ends, whatever other replicas have of it (Kafka: Partition.fetchOffsetForTimestamp without an isolation level). The
// user needs no more rights for that, and nothing changes by it.
func (s *Source) LogEnds(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return s.startsAndEnds(ctx, partitions, logEnd)
}

func (s *Source) startsAndEnds(ctx context.Context, partitions []mirror.TopicPartition, latest int64) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	ctx, end, err := s.begin(ctx, listOffsetsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	targets, result, err := s.targets(ctx, listOffsetsOperation, partitions)
	if err != nil {
		return nil, err
	}
	var starts, ends map[mirror.TopicPartition]listed
	var both sync.WaitGroup
	both.Go(func() { starts = s.listOffsets(ctx, targets, earliestTimestamp) })
	both.Go(func() { ends = s.listOffsets(ctx, targets, latest) })
	both.Wait()
	for _, t := range targets {
		o := mirror.SourceOffsets{LogStart: -1, HighWatermark: -1, LeaderEpoch: -1}
		start, end := starts[t.tp].known(t.tp), ends[t.tp].known(t.tp)
		if err := cmp.Or(start.err, end.err); err != nil {
			o.Err = err
		} else {
			o.LogStart, o.HighWatermark, o.LeaderEpoch = start.offset, end.offset, end.epoch
		}
		result[t.tp] = o
	}
	return result, nil
}

// LocalStarts asks the current leader of each partition which offset is the first on its own disks: one metadata request, then one request per broker. Brokers that know less than KIP-405 cannot tell.
func (s *Source) LocalStarts(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]int64, error) {
	ctx, end, err := s.begin(ctx, listOffsetsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	targets, result, err := s.targets(ctx, listOffsetsOperation, partitions)
	if err != nil {
		return nil, err
	}
	starts := make(map[mirror.TopicPartition]int64, len(targets))
	var errs []error
	for _, tp := range partitions {
		errs = append(errs, result[tp].Err)
	}
	for tp, l := range s.listOffsets(ctx, targets, earliestLocalTimestamp) {
		switch {
		case l.err != nil:
			errs = append(errs, l.err)
		case l.offset >= 0 && l.version >= leastLocalListOffsets:
			starts[tp] = l.offset
		}
	}
	return starts, errors.Join(errs...)
}

// OffsetsAt looks offsets up by time. The end is asked first: where no record is late enough, nothing that arrives meanwhile is skipped (F-24).
func (s *Source) OffsetsAt(ctx context.Context, at time.Time, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	ctx, end, err := s.begin(ctx, listOffsetsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	targets, result, err := s.targets(ctx, listOffsetsOperation, partitions)
	if err != nil {
		return nil, err
	}
	ends := s.listOffsets(ctx, targets, latestTimestamp)
	found := s.listOffsets(ctx, targets, millisecondsUp(at))
	for _, t := range targets {
		o := mirror.SourceOffsets{LogStart: -1, HighWatermark: -1, LeaderEpoch: -1}
		end, first := ends[t.tp].known(t.tp), found[t.tp]
		if first.err == nil && first.offset < 0 {
			first = end
		}
		if first.err != nil {
			o.Err = first.err
		} else {
			o.HighWatermark, o.LeaderEpoch = first.offset, first.epoch
		}
		result[t.tp] = o
	}
	return result, nil
}

// millisecondsUp is the first millisecond at or after t. Times before 1970 would be taken for the special timestamps.
func millisecondsUp(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return max(ms, 0)
}

// target is a partition that can be asked, and whom.
type target struct {
	tp mirror.TopicPartition
	leader
}

// targets finds the current leader of each partition. Those without one are in the result already, with their error.
func (s *Source) targets(ctx context.Context, operation string, partitions []mirror.TopicPartition) ([]target, map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	result := make(map[mirror.TopicPartition]mirror.SourceOffsets, len(partitions))
	if len(partitions) == 0 {
		return nil, result, nil
	}
	var names []string
	for _, tp := range partitions {
		names = append(names, tp.Topic)
	}
	slices.Sort(names)
	resp, err := s.metadata(ctx, operation, slices.Compact(names), false)
	if err != nil {
		return nil, nil, err
	}
	topicErr := make(map[string]int16)
	known := make(map[mirror.TopicPartition]*kmsg.MetadataResponseTopicPartition)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		topicErr[*t.Topic] = t.ErrorCode
		for j := range t.Partitions {
			known[mirror.TopicPartition{Topic: *t.Topic, Partition: t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	var targets []target
	for _, tp := range partitions {
		if _, twice := result[tp]; twice {
			continue
		}
		p := known[tp]
		err := failed(operation, tp, topicErr[tp.Topic])
		switch {
		case err != nil:
		case p == nil:
			err = failed(operation, tp, kerr.UnknownTopicOrPartition.Code)
		case p.Leader < 0:
			err = failed(operation, tp, kerr.LeaderNotAvailable.Code)
		default:
			err = partitionFailed(operation, tp, p.ErrorCode)
		}
		result[tp] = mirror.SourceOffsets{LogStart: -1, HighWatermark: -1, LeaderEpoch: -1, Err: err}
		if err == nil {
			targets = append(targets, target{tp, leader{p.Leader, p.LeaderEpoch}})
		}
	}
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.broker, b.broker), cmp.Compare(a.tp.Topic, b.tp.Topic), cmp.Compare(a.tp.Partition, b.tp.Partition))
	})
	return targets, result, nil
}

// listed is one partition's answer.
type listed struct {
	offset  int64
	epoch   int32
	err     error
	version int16 // of the answer
}

// known refuses an answer without an offset: a log always has a start and an end.
func (l listed) known(tp mirror.TopicPartition) listed {
	if l.err == nil && l.offset < 0 {
		l.err = &mirror.SourceError{
			Code: mirror.SourceOffsetsNotReady, Operation: listOffsetsOperation, Partition: tp,
			Err: fmt.Errorf("the leader answered offset %d and no error", l.offset),
		}
	}
	return l
}

// listOffsets sends one request to each leader, all at once. targets are sorted by broker.
func (s *Source) listOffsets(ctx context.Context, targets []target, timestamp int64) map[mirror.TopicPartition]listed {
	result := make(map[mirror.TopicPartition]listed, len(targets))
	var mu sync.Mutex
	var all sync.WaitGroup
	for len(targets) > 0 {
		n := 1
		for n < len(targets) && targets[n].broker == targets[0].broker {
			n++
		}
		batch := targets[:n]
		targets = targets[n:]
		all.Go(func() {
			answers := s.listOffsetsOf(ctx, batch, timestamp)
			mu.Lock()
			defer mu.Unlock()
			for tp, l := range answers {
				result[tp] = l
			}
		})
	}
	all.Wait()
	return result
}

// listOffsetsOf asks one leader about its partitions, each under the leader epoch by which it was found.
func (s *Source) listOffsetsOf(ctx context.Context, targets []target, timestamp int64) map[mirror.TopicPartition]listed {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = 0 // READ_UNCOMMITTED
	if timestamp == logEnd {
		req.ReplicaID, timestamp = targets[0].broker, latestTimestamp // whose id it is does not matter; −2 would let a follower answer
	}
	for _, t := range targets {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != t.tp.Topic {
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = t.tp.Topic
			req.Topics = append(req.Topics, topic)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = t.tp.Partition, t.epoch, timestamp
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, p)
	}
	result := make(map[mirror.TopicPartition]listed, len(targets))
	kresp, err := s.ask(ctx, targets[0].broker, req)
	if err == nil {
		if v := kresp.GetVersion(); v < leastListOffsets {
			err = tooOld(listOffsetsOperation, "ListOffsets", v, leastListOffsets)
		}
	}
	if err == nil {
		for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				result[tp] = listed{p.Offset, p.LeaderEpoch, failed(listOffsetsOperation, tp, p.ErrorCode), kresp.GetVersion()}
			}
		}
		err = errors.New("the broker left this partition out of its answer")
	}
	for _, t := range targets {
		if _, answered := result[t.tp]; !answered {
			e := *s.failure(listOffsetsOperation, t.tp, err)
			e.Partition = t.tp
			result[t.tp] = listed{offset: -1, epoch: -1, err: &e}
		}
		if result[t.tp].err != nil {
			s.forgetLeader(t.tp)
		}
	}
	return result
}
