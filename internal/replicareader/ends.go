package replicareader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchTargets is how many partitions one request asks about at most.
const batchTargets = 2000

const (
	latest   = -1 // timestamps of ListOffsets
	earliest = -2
)

// Ends is where a copy starts and ends.
type Ends struct {
	Start int64 // log start offset; the first batch may begin below it
	End   int64 // log end offset, whatever the high watermark is
	// LastStable is the copy's own last stable offset, within [Start, End]; -1: not known. Between Start and it no transaction is open. It is bounded by the high watermark that
	// the broker knows, which on a follower lags behind, and stands still while nobody leads: it may be far below what is stable, never above.
	LastStable int64
	Err        error // *Error: nothing else in here counts
}

// Ends asks one broker where its copies start, end, and are stable. Each target has its own entry, and its own error. Targets are asked about together, some thousands a
// request: two ListOffsets and one Fetch that is answered with a batch at most. Start is asked for before End, so a copy that grows or is shortened meanwhile has Start ≤ End.
//
// Two targets of the same topic name and partition with different ids: the broker's Fetch says which one is not there, from version 13 on.
//
// The error is nil unless a request as a whole failed; every target without an answer then has it as its own error too, and the other entries count.
func (r *Reader) Ends(ctx context.Context, broker int32, targets []Target) (map[Target]Ends, error) {
	all := make(map[Target]Ends, len(targets))
	unique := make([]Target, 0, len(targets))
	for _, t := range targets {
		if _, ok := all[t]; !ok {
			all[t] = Ends{LastStable: -1}
			unique = append(unique, t)
		}
	}
	var first error
	for part := range slices.Chunk(unique, batchTargets) {
		if err := r.ends(ctx, broker, part, all); err != nil && first == nil {
			first = err
		}
	}
	return all, first
}

func (r *Reader) ends(ctx context.Context, broker int32, targets []Target, all map[Target]Ends) error {
	failed := func(err error) error {
		for _, t := range targets {
			if e := all[t]; e.Err == nil {
				all[t] = Ends{LastStable: -1, Err: forTarget(err, t)}
			}
		}
		return err
	}
	starts, err := r.offsets(ctx, broker, targets, earliest)
	if err != nil {
		return failed(err)
	}
	ends, err := r.offsets(ctx, broker, targets, latest)
	if err != nil {
		return failed(err)
	}
	var readable []Target
	for _, t := range targets {
		start, end := starts[t], ends[t]
		e := Ends{Start: start.offset, End: end.offset, LastStable: -1}
		switch {
		case start.err != nil:
			e = Ends{LastStable: -1, Err: start.err}
		case end.err != nil:
			e = Ends{LastStable: -1, Err: end.err}
		case e.Start > e.End:
			err := fmt.Errorf("its log start %d was asked for before its end, which is %d", e.Start, e.End)
			e = Ends{LastStable: -1, Err: &Error{Broker: broker, Target: t, Reason: Changed, Err: err}}
		default:
			readable = append(readable, t)
		}
		all[t] = e
	}
	return r.stable(ctx, broker, readable, all)
}

// stable notes the last stable offsets, which only Fetch tells of a copy that does not lead: ListOffsets with replica id -2 answers the log end under any isolation level.
func (r *Reader) stable(ctx context.Context, broker int32, targets []Target, all map[Target]Ends) error {
	if len(targets) == 0 {
		return nil
	}
	resp, err := request[*kmsg.FetchResponse](ctx, r, broker, Target{}, fetchRequest(targets, func(t Target) int64 { return all[t].End }, 1))
	if err != nil {
		// Start and end are known, and still count: not knowing what is stable is an answer.
		return err
	}
	if err := refusal(broker, Target{}, resp.ErrorCode); err != nil {
		return err
	}
	answers := fetched(resp, targets)
	for _, t := range targets {
		e, rp := all[t], answers[t]
		if rp == nil {
			continue // a quota: not known
		}
		var refused *Error
		if err := refusal(broker, t, rp.ErrorCode); errors.As(err, &refused) {
			if refused.Reason == UnknownTopic {
				e = Ends{LastStable: -1, Err: refused} // the start and end are those of another topic with this name
			}
		} else if rp.LastStableOffset >= 0 {
			e.LastStable = max(e.Start, min(rp.LastStableOffset, e.End)) // a high watermark that was lost counts from 0, below the log start
		}
		all[t] = e
	}
	return nil
}

// startAndEnd is Ends for one target without the last stable offset.
func (r *Reader) startAndEnd(ctx context.Context, broker int32, t Target) (start, end int64, err error) {
	starts, err := r.offsets(ctx, broker, []Target{t}, earliest)
	if err == nil {
		err = starts[t].err
	}
	if err != nil {
		return 0, 0, err
	}
	ends, err := r.offsets(ctx, broker, []Target{t}, latest)
	if err == nil {
		err = ends[t].err
	}
	return starts[t].offset, ends[t].offset, err
}

type offset struct {
	offset int64
	err    error
}

// offsets asks ListOffsets once. Every target has an entry unless the request failed.
func (r *Reader) offsets(ctx context.Context, broker int32, targets []Target, timestamp int64) (map[Target]offset, error) {
	type key struct {
		topic     string
		partition int32
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = offsetsReplica
	at := map[string]int{}
	asked := map[key]bool{} // a broker refuses a partition that is named twice
	for _, t := range targets {
		if asked[key{t.Topic, t.Partition}] {
			continue
		}
		asked[key{t.Topic, t.Partition}] = true
		i, ok := at[t.Topic]
		if !ok {
			i = len(req.Topics)
			at[t.Topic] = i
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = t.Topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = t.Partition, timestamp
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	var one Target
	if len(targets) == 1 {
		one = targets[0]
	}
	resp, err := request[*kmsg.ListOffsetsResponse](ctx, r, broker, one, req)
	if err != nil {
		return nil, err
	}
	found, twice := map[key]*kmsg.ListOffsetsResponseTopicPartition{}, map[key]bool{}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			k := key{resp.Topics[i].Topic, resp.Topics[i].Partitions[j].Partition}
			twice[k] = twice[k] || found[k] != nil
			found[k] = &resp.Topics[i].Partitions[j]
		}
	}
	answers := make(map[Target]offset, len(targets))
	for _, t := range targets {
		k := key{t.Topic, t.Partition}
		rp := found[k]
		bad := func(format string, args ...any) offset {
			return offset{err: &Error{Broker: broker, Target: t, Reason: BadAnswer, Err: fmt.Errorf(format, args...)}}
		}
		switch {
		case rp == nil:
			answers[t] = bad("the answer to ListOffsets lacks the partition")
		case twice[k]:
			answers[t] = bad("the answer to ListOffsets has the partition twice")
		case rp.ErrorCode != 0:
			answers[t] = offset{err: refusal(broker, t, rp.ErrorCode)}
		case rp.Offset < 0:
			answers[t] = bad("ListOffsets was answered with offset %d", rp.Offset)
		default:
			answers[t] = offset{offset: rp.Offset}
		}
	}
	return answers, nil
}

// forTarget is a request's error as that of one of its targets.
func forTarget(err error, t Target) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Broker: e.Broker, Target: t, Reason: e.Reason, Err: e.Err}
	}
	return err
}
