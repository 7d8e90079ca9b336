package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// code is Kafka's code for what went wrong, and words for a person where the protocol has room for them.
func code(err error) (int16, *string) {
	var refused *mirror.Error
	var source *mirror.SourceError
	is := kerr.UnknownServerError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &refused):
		is = kerr.PolicyViolation // what producers do not try again; the code of KIP-1279 is unknown to every client
	case errors.Is(err, mirror.ErrUnknownTopic):
		is = kerr.UnknownTopicOrPartition
	case errors.Is(err, memlog.ErrInvalidTransaction):
		is = kerr.InvalidTxnState
	case errors.Is(err, memlog.ErrInvalidBatch):
		is = kerr.CorruptMessage
	case errors.Is(err, memlog.ErrOutOfOrderSequence):
		is = kerr.OutOfOrderSequenceNumber
	case errors.Is(err, memlog.ErrProducerFenced):
		is = kerr.InvalidProducerEpoch
	case errors.Is(err, mirror.ErrBatchTooLarge):
		is = kerr.MessageTooLarge
	case errors.Is(err, mirror.ErrOffsetOutOfRange):
		is = kerr.OffsetOutOfRange
	case errors.As(err, &source):
		switch source.Code {
		case mirror.SourceNotLeader:
			is = kerr.NotLeaderForPartition
		case mirror.SourceFencedEpoch:
			is = kerr.FencedLeaderEpoch
		case mirror.SourceUnknownEpoch:
			is = kerr.UnknownLeaderEpoch
		case mirror.SourceOffsetRange:
			is = kerr.OffsetOutOfRange
		case mirror.SourceUnknownTopic:
			is = kerr.UnknownTopicOrPartition
		}
	}
	words := err.Error()
	return is.Code, &words
}

// leads says whether this broker leads a partition, and what the cluster says of its leader.
func (c *connection) leads(ctx context.Context, tp mirror.TopicPartition) (leader mirror.SourcePartition, err error) {
	leader, err = c.front.cluster.memory.Leader(ctx, tp)
	if err == nil && node(leader.Leader) != c.front.node {
		err = &mirror.SourceError{Code: mirror.SourceNotLeader, Operation: "broker", Partition: tp, Err: fmt.Errorf("broker %d leads it", node(leader.Leader))}
	}
	return leader, err
}

// asLeader does something with a partition that this broker leads, and returns the code for how that went.
func (c *connection) asLeader(ctx context.Context, topic string, partition int32, do func(mirror.TopicPartition) error) int16 {
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	_, err := c.leads(ctx, tp)
	if err == nil {
		err = do(tp)
	}
	failed, _ := code(err)
	return failed
}

// topicName is the name that a request means: its own, or that of the id which newer versions have instead.
func (c *connection) topicName(name string, id [16]byte) (string, bool) {
	if id == ([16]byte{}) {
		return name, name != ""
	}
	t, ok := c.front.cluster.memory.TopicByID(id)
	return t.Name, ok
}

func (c *connection) produce(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.ProduceRequest), r.ResponseKind().(*kmsg.ProduceResponse)
	failed := false
	for _, rt := range req.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		name, known := c.topicName(rt.Topic, rt.TopicID)
		for _, rp := range rt.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.BaseOffset, sp.LogStartOffset = rp.Partition, -1, -1
			tp := mirror.TopicPartition{Topic: name, Partition: rp.Partition}
			if !known && r.GetVersion() >= 13 {
				sp.ErrorCode = kerr.UnknownTopicID.Code
			} else {
				base, err := c.append(ctx, req, tp, rp.Records)
				sp.BaseOffset = base
				sp.ErrorCode, sp.ErrorMessage = code(err)
			}
			failed = failed || sp.ErrorCode != 0
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	if req.Acks == 0 {
		if failed {
			return nil, errors.New("mirrortest: a produce without acknowledgement failed") // the connection ends, which is all that such a producer notices
		}
		return nil, nil
	}
	return resp, nil
}

// append adds what a client sent to one partition.
func (c *connection) append(ctx context.Context, req *kmsg.ProduceRequest, tp mirror.TopicPartition, sent []byte) (int64, error) {
	cluster := c.front.cluster
	if _, err := c.leads(ctx, tp); err != nil {
		return -1, err
	}
	cluster.gate.RLock()
	defer cluster.gate.RUnlock()
	if cluster.fenced {
		return -1, &mirror.Error{Code: mirror.ReadOnlyTopic, Topic: tp.Topic, Partition: tp.Partition, Message: "producers are fenced here: clients move to the other cluster"}
	}
	if info, transactional := batchOf(sent); transactional {
		return cluster.transactions.produce(ctx, req, tp, info, sent)
	}
	return cluster.memory.ProduceBatch(ctx, tp.Topic, tp.Partition, sent)
}

func (c *connection) fetch(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.FetchRequest), r.ResponseKind().(*kmsg.FetchResponse)
	if req.SessionID != 0 { // none is ever given out
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return resp, nil
	}
	var tps []mirror.TopicPartition
	from := map[mirror.TopicPartition]int64{}
	for _, rt := range req.Topics {
		if name, ok := c.topicName(rt.Topic, rt.TopicID); ok {
			for _, rp := range rt.Partitions {
				tp := mirror.TopicPartition{Topic: name, Partition: rp.Partition}
				tps, from[tp] = append(tps, tp), rp.FetchOffset
			}
		}
	}
	changed, stop := c.front.cluster.memory.Watch(tps)
	defer stop()
	late := time.NewTimer(min(time.Duration(req.MaxWaitMillis)*time.Millisecond, longestWait))
	defer late.Stop()
	fresh := c.asks(from)
	for {
		size, ready := c.collect(ctx, req, resp)
		if fresh || ready || size >= int(req.MinBytes) {
			return resp, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return resp, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// asks remembers from where a connection fetches. fresh: there is a partition among it that the fetch before did not ask for at this offset. Such a fetch is answered at once, however little there is, so
// that whoever fetches learns that it has everything without waiting for somebody to write.
func (c *connection) asks(from map[mirror.TopicPartition]int64) (fresh bool) {
	for tp, at := range from {
		before, asked := c.fetched[tp]
		fresh = fresh || !asked || before != at
	}
	c.fetched = from
	return fresh
}

// longestWait is how long a fetch waits at most, however long a client would wait. Clients have one fetch under way for each broker, and a partition that they come to think of meanwhile waits for
// its end: with the client's own seconds a test would take these seconds.
const longestWait = 50 * time.Millisecond

// collect fills a reply with what there is now. ready: it has to be sent, however little there is.
func (c *connection) collect(ctx context.Context, req *kmsg.FetchRequest, resp *kmsg.FetchResponse) (size int, ready bool) {
	isolation := memlog.ReadUncommitted
	if req.IsolationLevel == 1 {
		isolation = memlog.ReadCommitted
	}
	left := int(req.MaxBytes)
	resp.Topics = resp.Topics[:0]
	for _, rt := range req.Topics {
		st := kmsg.NewFetchResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		name, known := c.topicName(rt.Topic, rt.TopicID)
		for _, rp := range rt.Partitions {
			sp := kmsg.NewFetchResponseTopicPartition()
			sp.Partition, sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = rp.Partition, -1, -1, -1
			if !known && req.Version >= 13 {
				sp.ErrorCode = kerr.UnknownTopicID.Code
			} else {
				c.read(ctx, mirror.TopicPartition{Topic: name, Partition: rp.Partition}, memlog.ReadRequest{
					Offset: rp.FetchOffset, LeaderEpoch: rp.CurrentLeaderEpoch, LastEpoch: rp.LastFetchedEpoch, Isolation: isolation,
					MaxBytes: min(int(rp.PartitionMaxBytes), left), AtLeastOne: size == 0,
				}, &sp)
			}
			ready = ready || sp.ErrorCode != 0 || sp.DivergingEpoch.EndOffset >= 0
			size += len(sp.RecordBatches)
			left -= len(sp.RecordBatches)
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return size, ready
}

// read fills in what one partition answers.
func (c *connection) read(ctx context.Context, tp mirror.TopicPartition, from memlog.ReadRequest, sp *kmsg.FetchResponseTopicPartition) {
	leader, err := c.leads(ctx, tp)
	var got memlog.ReadReply
	if err == nil {
		got, err = c.front.cluster.memory.ReadBatches(ctx, tp, from)
	}
	if err != nil {
		sp.ErrorCode, _ = code(err)
		if !errors.Is(err, mirror.ErrUnknownTopic) {
			sp.CurrentLeader.LeaderID, sp.CurrentLeader.LeaderEpoch = node(leader.Leader), leader.LeaderEpoch
		}
		return
	}
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset, sp.RecordBatches = got.HighWatermark, got.LastStable, got.LogStart, got.Records
	if got.Diverging != nil {
		sp.DivergingEpoch.Epoch, sp.DivergingEpoch.EndOffset = got.Diverging.Epoch, got.Diverging.End
	}
	for _, a := range got.Aborted {
		sa := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		sa.ProducerID, sa.FirstOffset = a.ProducerID, a.FirstOffset
		sp.AbortedTransactions = append(sp.AbortedTransactions, sa)
	}
}

func (c *connection) listOffsets(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.ListOffsetsRequest), r.ResponseKind().(*kmsg.ListOffsetsResponse)
	isolation := memlog.ReadUncommitted
	if req.IsolationLevel == 1 {
		isolation = memlog.ReadCommitted
	}
	for _, rt := range req.Topics {
		st := kmsg.NewListOffsetsResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewListOffsetsResponseTopicPartition()
			sp.Partition = rp.Partition
			tp := mirror.TopicPartition{Topic: rt.Topic, Partition: rp.Partition}
			leader, err := c.leads(ctx, tp)
			switch at := rp.Timestamp; {
			case err != nil:
			case rp.CurrentLeaderEpoch >= 0 && rp.CurrentLeaderEpoch < leader.LeaderEpoch:
				sp.ErrorCode = kerr.FencedLeaderEpoch.Code
			case rp.CurrentLeaderEpoch > leader.LeaderEpoch:
				sp.ErrorCode = kerr.UnknownLeaderEpoch.Code
			case req.Version == 0: // lists of segments, which nobody has asked for since Kafka 0.10
				sp.ErrorCode = kerr.UnsupportedVersion.Code
			default:
				if at == earliestLocal {
					at = memlog.TimeEarliest
				}
				if at >= memlog.TimeMax {
					sp.Offset, sp.Timestamp, sp.LeaderEpoch, err = c.front.cluster.memory.ListOffset(ctx, tp, at, isolation)
				}
			}
			if err != nil {
				sp.ErrorCode, _ = code(err)
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

// earliestLocal is the time by which ListOffsets means the first offset on a broker's own disk (KIP-405); there is no other storage here.
const earliestLocal = -4

func (c *connection) offsetForLeaderEpoch(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.OffsetForLeaderEpochRequest), r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition = rp.Partition
			sp.ErrorCode = c.asLeader(ctx, rt.Topic, rp.Partition, func(tp mirror.TopicPartition) error {
				end, err := c.front.cluster.memory.EndOffsetForEpoch(ctx, tp, rp.CurrentLeaderEpoch, rp.LeaderEpoch)
				sp.LeaderEpoch, sp.EndOffset = end.Epoch, end.End
				return err
			})
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

func (c *connection) deleteRecords(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.DeleteRecordsRequest), r.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewDeleteRecordsResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewDeleteRecordsResponseTopicPartition()
			sp.Partition, sp.LowWatermark = rp.Partition, -1
			sp.ErrorCode = c.asLeader(ctx, rt.Topic, rp.Partition, func(tp mirror.TopicPartition) (err error) {
				if err = c.front.cluster.memory.DeleteRecords(ctx, tp.Topic, tp.Partition, rp.Offset); err == nil {
					sp.LowWatermark, _, _, err = c.front.cluster.memory.ListOffset(ctx, tp, memlog.TimeEarliest, memlog.ReadUncommitted)
				}
				return err
			})
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

func (c *connection) describeProducers(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.DescribeProducersRequest), r.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewDescribeProducersResponseTopic()
		st.Topic = rt.Topic
		for _, p := range rt.Partitions {
			sp := kmsg.NewDescribeProducersResponseTopicPartition()
			sp.Partition = p
			known, err := c.front.cluster.memory.Producers(ctx, rt.Topic, p)
			sp.ErrorCode, sp.ErrorMessage = code(err)
			for _, k := range known {
				sa := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				sa.ProducerID, sa.ProducerEpoch, sa.LastSequence, sa.LastTimestamp = k.ID, int32(k.Epoch), k.LastSequence, k.LastTimestamp
				sa.CoordinatorEpoch, sa.CurrentTxnStartOffset = k.CoordinatorEpoch, k.OpenSince
				sp.ActiveProducers = append(sp.ActiveProducers, sa)
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}
