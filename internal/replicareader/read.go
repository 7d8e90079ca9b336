package replicareader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
)

const (
	// attempts bounds how often one Read asks for the same thing: larger because a batch came cut, again because a checksum was wrong or the log moved.
	attempts = 3
	// longestThrottle bounds one wait for a quota; a broker's own bound is its quota window, some seconds.
	longestThrottle = 30 * time.Second
)

// Read returns whole batches of a broker's copy from the one that contains from (or the first after it) in order: at most max bytes, but at least one batch; nothing at the
// end. Each batch was checked (batch.Check), and none lies wholly below from. What follows a damaged batch is not returned: the damage is the error of the Read that begins
// with it. The bytes are the caller's.
//
// Errors: *RangeError when from is below the copy's log start or above its end, else *Error.
func (r *Reader) Read(ctx context.Context, broker int32, t Target, from int64, max int) ([]byte, error) {
	return r.read(ctx, broker, t, from, max, false)
}

// ReadAsItLies is Read for whoever looks for damage: an answer that begins with a damaged batch is returned as it came, unchecked. A wrong checksum is read again before, as by Read.
func (r *Reader) ReadAsItLies(ctx context.Context, broker int32, t Target, from int64, max int) ([]byte, error) {
	return r.read(ctx, broker, t, from, max, true)
}

func (r *Reader) read(ctx context.Context, broker int32, t Target, from int64, max int, damaged bool) ([]byte, error) {
	limit := int(min(int64(max), math.MaxInt32))
	if limit < 1 {
		limit = 1
	}
	ask := limit
	for attempt := 1; ; attempt++ {
		rp, err := r.fetch(ctx, broker, t, from, int32(ask))
		if err != nil {
			return nil, err
		}
		if rp.ErrorCode == kerr.OffsetOutOfRange.Code {
			if err := r.outOfRange(ctx, broker, t, from, attempt); err != nil {
				return nil, err
			}
			continue
		}
		if err := refusal(broker, t, rp.ErrorCode); err != nil {
			return nil, err
		}
		if len(rp.RecordBatches) == 0 && rp.PreferredReadReplica >= 0 {
			err := fmt.Errorf("it sends readers to broker %d (replica.selector.class)", rp.PreferredReadReplica)
			return nil, &Error{Broker: broker, Target: t, Reason: Refused, Err: err}
		}
		whole, need, err := wholeBatches(rp.RecordBatches, from, limit)
		switch {
		case err == nil && need == 0:
			return whole, nil
		case err == nil && ask < need && attempt < attempts:
			ask = need
		case err == nil:
			err := fmt.Errorf("the batch at or after %d came cut to %d bytes when %d were asked for", from, len(rp.RecordBatches), ask)
			return nil, &Error{Broker: broker, Target: t, Reason: BadAnswer, Err: err}
		case damaged && (!damagedInTransit(err) || attempt == attempts):
			return rp.RecordBatches, nil
		case !damagedInTransit(err) || attempt == attempts:
			return nil, &Error{Broker: broker, Target: t, Reason: reasonOf(err), Err: err}
		}
	}
}

// outOfRange finds out what a copy holds after it refused an offset; nil if it holds the offset by now.
func (r *Reader) outOfRange(ctx context.Context, broker int32, t Target, from int64, attempt int) error {
	start, end, err := r.startAndEnd(ctx, broker, t)
	if err != nil {
		return err
	}
	if from < start || from > end {
		return &RangeError{Broker: broker, Target: t, From: from, Start: start, End: end}
	}
	if attempt >= attempts {
		err := fmt.Errorf("it holds [%d,%d) and answers %d with %w", start, end, from, kerr.OffsetOutOfRange)
		return &Error{Broker: broker, Target: t, Reason: BadAnswer, Err: err}
	}
	return nil
}

var errOrder = errors.New("batches out of order")

// wholeBatches is the checked part of an answer: nothing and need when the first batch is cut and has need bytes.
func wholeBatches(raw []byte, from int64, limit int) (whole []byte, need int, err error) {
	size := 0
	for next := from; size < len(raw); {
		h, n, err := batch.Next(raw[size:])
		switch {
		case errors.Is(err, batch.ErrCut):
			if size > 0 {
				return raw[:size:size], 0, nil
			}
			// Without a length nothing is known but that more is there.
			if n <= len(raw) {
				n = max(2*len(raw), 1<<16)
			}
			return nil, min(n, math.MaxInt32), nil
		case err == nil && size > 0 && size+n > limit:
			return raw[:size:size], 0, nil
		case err == nil:
			err = batch.Check(raw[size:size+n], &h)
		}
		if err != nil {
			if size > 0 {
				return raw[:size:size], 0, nil
			}
			return nil, 0, err
		}
		if h.LastOffset() < next || size > 0 && h.BaseOffset < next {
			return nil, 0, fmt.Errorf("%w: [%d,%d] where %d or a later one has to come", errOrder, h.BaseOffset, h.LastOffset(), next)
		}
		next = h.NextOffset()
		size += n
	}
	return raw[:size:size], 0, nil
}

func damagedInTransit(err error) bool {
	var corrupt *batch.CorruptError
	return errors.As(err, &corrupt) && corrupt.CRC
}

func reasonOf(err error) Reason {
	if errors.Is(err, errOrder) {
		return BadAnswer
	}
	return Damaged
}

// fetch asks for one partition, once, or as often as a quota holds the answer back until ctx ends.
func (r *Reader) fetch(ctx context.Context, broker int32, t Target, from int64, maxBytes int32) (*kmsg.FetchResponseTopicPartition, error) {
	for {
		resp, err := request[*kmsg.FetchResponse](ctx, r, broker, t, fetchRequest([]Target{t}, func(Target) int64 { return from }, maxBytes))
		if err != nil {
			return nil, err
		}
		if err := refusal(broker, t, resp.ErrorCode); err != nil {
			return nil, err
		}
		answers := fetched(resp, []Target{t})
		if rp := answers[t]; rp != nil {
			return rp, nil
		}
		if len(resp.Topics) > 0 || resp.ThrottleMillis <= 0 {
			return nil, &Error{Broker: broker, Target: t, Reason: BadAnswer, Err: errors.New("the answer to a Fetch lacks the partition, or has it twice")}
		}
		// Over its quota a client gets an answer without partitions (Kafka: FetchContext.getThrottledResponse).
		if err := pause(ctx, time.Duration(resp.ThrottleMillis)*time.Millisecond); err != nil {
			return nil, &Error{Broker: broker, Target: t, Reason: Unreachable, Err: fmt.Errorf("held back by the quota of this client's user: %w", err)}
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(min(d, longestThrottle))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetchRequest is a Fetch without session that does not wait and is answered up to the log end by any replica.
func fetchRequest(targets []Target, from func(Target) int64, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	// Up to version 14; from 15 on. kmsg writes both in 12 to 14, which makes a broker close the connection: better than an answer that ends at the high watermark.
	req.ReplicaID, req.ReplicaState.ID = fetchReplica, fetchReplica
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, maxBytes, -1
	at := map[Target]int{} // by topic: its place in the request
	for _, t := range targets {
		topic := Target{Topic: t.Topic, ID: t.ID}
		i, ok := at[topic]
		if !ok {
			i = len(req.Topics)
			at[topic] = i
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = t.Topic, t.ID
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = t.Partition, from(t), maxBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

// fetched finds the targets' answers. One that came twice, or under a name that was not asked for, is none.
func fetched(resp *kmsg.FetchResponse, targets []Target) map[Target]*kmsg.FetchResponseTopicPartition {
	byID := resp.Version >= 13
	type key struct {
		topic     string
		id        [16]byte
		partition int32
	}
	found := map[key]*kmsg.FetchResponseTopicPartition{}
	twice := map[key]bool{}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		k := key{topic: rt.Topic}
		if byID {
			k = key{id: rt.TopicID}
		}
		for j := range rt.Partitions {
			k.partition = rt.Partitions[j].Partition
			twice[k] = twice[k] || found[k] != nil
			found[k] = &rt.Partitions[j]
		}
	}
	answers := make(map[Target]*kmsg.FetchResponseTopicPartition, len(targets))
	for _, t := range targets {
		k := key{topic: t.Topic, partition: t.Partition}
		if byID {
			k = key{id: t.ID, partition: t.Partition}
		}
		if rp := found[k]; rp != nil && !twice[k] {
			answers[t] = rp
		}
	}
	return answers
}
