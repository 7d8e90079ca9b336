package memlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/producerstate"
)

// What is in this file is for whoever puts a wire protocol in front of a Cluster: clients' batches as they were sent, and logs as they are.

// ErrInvalidBatch is what a broker answers to a batch that it cannot take as a client's: damaged, more than one, or with a marker in it.
var ErrInvalidBatch = errors.New("memlog: invalid batch")

// ErrInvalidTransaction is what a broker answers to a batch that breaks its producer's open transaction.
var ErrInvalidTransaction = errors.New("memlog: invalid transaction state")

// ProduceBatch appends one batch as a client sent it, compressed or not: only its base offset and leader epoch are set. Ownership of the bytes passes to the cluster.
// A batch whose sequences are in the log already is not appended again: base is where it is, or −1 where that is not known any more. Errors: as Producer.Produce, ErrInvalidBatch,
// ErrInvalidTransaction, mirror.ErrBatchTooLarge.
func (c *Cluster) ProduceBatch(ctx context.Context, topic string, partition int32, sent []byte) (base int64, err error) {
	base = -1
	err = c.client(ctx, "Produce", topic, partition, func(l *partitionLog) error {
		if err := l.writable(); err != nil {
			return err
		}
		h, err := checkSent(sent)
		if err != nil {
			return l.errorf("%w: %w", ErrInvalidBatch, err)
		}
		if h.ProducerID >= 0 {
			err := l.checkSequence(ProducerID{h.ProducerID, h.ProducerEpoch}, h.BaseSequence, h.RecordCount)
			if errors.Is(err, ErrDuplicateSequence) {
				base = l.sequenceAt(&h)
				return nil
			}
			if err != nil {
				return err
			}
		}
		batch.SetBaseOffset(sent, l.end)
		batch.SetLeaderEpoch(sent, l.leaderEpoch)
		at := l.end
		if err := l.add(sent); err != nil {
			var broken *producerstate.TransactionError
			if errors.As(err, &broken) {
				return fmt.Errorf("%w: %w", ErrInvalidTransaction, err)
			}
			return err
		}
		base = at
		return nil
	})
	return base, err
}

// checkSent says whether the bytes are one whole batch that a client may send (Kafka: LogValidator).
func checkSent(sent []byte) (batch.Header, error) {
	h, n, err := batch.Next(sent)
	switch {
	case err != nil:
		return h, err
	case n != len(sent):
		return h, fmt.Errorf("%d bytes behind the batch", len(sent)-n)
	case h.Control():
		return h, errors.New("a client must not send markers")
	case h.RecordCount < 1 || h.LastOffsetDelta != h.RecordCount-1:
		return h, fmt.Errorf("%d records, and offsets for %d", h.RecordCount, h.LastOffsetDelta+1)
	case h.Transactional() && h.ProducerID < 0:
		return h, errors.New("a transactional batch without a producer id")
	}
	return h, batch.Check(sent, &h)
}

// sequenceAt is the offset of the batch that a producer has sent again; −1: it is not in the log any more. Under mu.
func (l *partitionLog) sequenceAt(sent *batch.Header) int64 {
	for i := len(l.batches) - 1; i >= 0; i-- {
		h, _, err := batch.Next(l.batches[i].bytes())
		if err == nil && !h.Control() && h.ProducerID == sent.ProducerID && h.ProducerEpoch == sent.ProducerEpoch && h.BaseSequence == sent.BaseSequence {
			return h.BaseOffset
		}
	}
	return -1
}

// NewProducerID gives a producer id out, epoch 0.
func (c *Cluster) NewProducerID() ProducerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := ProducerID{ID: c.nextProducer}
	c.nextProducer++
	return id
}

// WriteMarker appends the COMMIT or ABORT of a transaction, as a broker does when its coordinator says so: under the coordinator's epoch 0. A mirror's copy refuses with a
// *mirror.Error, code ReadOnlyTopic.
func (c *Cluster) WriteMarker(ctx context.Context, topic string, partition int32, id ProducerID, commit bool) error {
	kind := batch.ControlAbort
	if commit {
		kind = batch.ControlCommit
	}
	return c.client(ctx, "WriteMarker", topic, partition, func(l *partitionLog) error { return l.mark(id, kind) })
}

// mark appends a marker of a transaction. Under mu.
func (l *partitionLog) mark(id ProducerID, kind batch.ControlType) error {
	if err := l.writable(); err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
	return l.add(batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: l.end, LeaderEpoch: l.leaderEpoch, ProducerID: id.ID, ProducerEpoch: id.Epoch, BaseSequence: -1, Transactional: true,
		Timestamp: l.c.cfg.Now().UnixMilli(), Key: key, Value: make([]byte, 6), // version 0, coordinator epoch 0
	}))
}

// Producers are what a log knows of its producers, in order of their ids. The slice is the caller's.
func (c *Cluster) Producers(ctx context.Context, topic string, partition int32) (known []producerstate.Producer, err error) {
	err = c.client(ctx, "Producers", topic, partition, func(l *partitionLog) error {
		known = l.producers.Producers()
		return nil
	})
	return known, err
}

// TopicByID finds a topic by its id.
func (c *Cluster) TopicByID(id mirror.TopicID) (mirror.Topic, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.topics {
		if t.id == id {
			return t.describe(), true
		}
	}
	return mirror.Topic{}, false
}

// Leader is who leads a partition, −1: nobody, and under which leader epoch.
func (c *Cluster) Leader(ctx context.Context, tp mirror.TopicPartition) (leader mirror.SourcePartition, err error) {
	err = c.client(ctx, "Leader", tp.Topic, tp.Partition, func(l *partitionLog) error {
		leader = mirror.SourcePartition{Partition: tp.Partition, Leader: l.leader, LeaderEpoch: l.leaderEpoch}
		return nil
	})
	return leader, err
}

// ReadRequest is where a client wants to read, and how much.
type ReadRequest struct {
	Offset      int64
	LeaderEpoch int32 // that the client knows of the leader; mirror.Unknown: none
	LastEpoch   int32 // of the batch before Offset; mirror.Unknown: not given, nothing is compared
	Isolation   Isolation
	MaxBytes    int  // of whole batches
	AtLeastOne  bool // the first batch goes out whatever its size
}

// ReadReply is what a leader answers. Records below an aborted transaction's end are in Records as they are; Aborted says which to pass over (Kafka: FetchResponse).
type ReadReply struct {
	Records                             []byte // read-only
	HighWatermark, LastStable, LogStart int64
	Aborted                             []producerstate.Aborted // with ReadCommitted, in order of LastOffset
	Diverging                           *mirror.EpochEnd        // the client's log parts from this one; there are no records then
}

// ReadBatches reads as a broker answers a fetch: up to the high watermark, or with ReadCommitted up to the last stable offset. Errors are *mirror.SourceError, with the codes
// SourceOffsetRange, SourceFencedEpoch, SourceUnknownEpoch and SourceNotLeader, or wrap mirror.ErrUnknownTopic.
func (c *Cluster) ReadBatches(ctx context.Context, tp mirror.TopicPartition, r ReadRequest) (reply ReadReply, err error) {
	const operation = "fetch"
	err = c.client(ctx, "Read", tp.Topic, tp.Partition, func(l *partitionLog) error {
		if l.leader < 0 {
			return sourceError(mirror.SourceNotLeader, operation, tp, errors.New("the partition has no leader"))
		}
		if err := l.checkEpoch(operation, r.LeaderEpoch); err != nil {
			return err
		}
		reply.HighWatermark, reply.LastStable, reply.LogStart = l.highWatermark, l.lastStable(), l.start
		if r.LastEpoch >= 0 {
			epoch, end := l.epochs.EndOffsetFor(r.LastEpoch, l.end)
			if epoch >= 0 && end >= 0 && r.Offset >= l.start && (epoch < r.LastEpoch || end < r.Offset) {
				reply.Diverging = &mirror.EpochEnd{Epoch: epoch, End: end}
				return nil
			}
		}
		if r.Offset < l.start || r.Offset > l.end {
			return sourceError(mirror.SourceOffsetRange, operation, tp, fmt.Errorf("offset %d, the log is [%d, %d]", r.Offset, l.start, l.end))
		}
		limit := l.highWatermark
		if r.Isolation == ReadCommitted {
			limit = reply.LastStable
		}
		reply.Records = l.read(r.Offset, limit, r.MaxBytes, r.AtLeastOne)
		if r.Isolation == ReadCommitted && len(reply.Records) > 0 {
			reply.Aborted = l.producers.Aborted(r.Offset, limit)
		}
		return nil
	})
	return reply, err
}

// Watch tells of changes of logs: of what they hold, their high watermarks, leaders and owners. What happens while nobody receives is told once. Partitions that are not there are left out;
// stop has to be called.
func (c *Cluster) Watch(partitions []mirror.TopicPartition) (changed <-chan struct{}, stop func()) {
	wake := make(chan struct{}, 1)
	var logs []*partitionLog
	for _, tp := range partitions {
		if l, err := c.log(tp); err == nil {
			l.mu.Lock()
			l.watch(wake)
			l.mu.Unlock()
			logs = append(logs, l)
		}
	}
	return wake, func() {
		for _, l := range logs {
			l.mu.Lock()
			delete(l.watchers, wake)
			l.mu.Unlock()
		}
	}
}

// The times that ListOffset knows besides milliseconds (Kafka: ListOffsetsRequest).
const (
	TimeLatest   = -1
	TimeEarliest = -2
	TimeMax      = -3 // of the record with the greatest timestamp
)

// ListOffset looks an offset up as a broker answers ListOffsets: by milliseconds, the first record that is not earlier; or one of the Time constants. An offset of −1: there is no such record.
// timestamp is −1 where no record was looked for.
func (c *Cluster) ListOffset(ctx context.Context, tp mirror.TopicPartition, at int64, isolation Isolation) (offset, timestamp int64, epoch int32, err error) {
	offset, timestamp, epoch = -1, -1, -1
	err = c.client(ctx, "ListOffset", tp.Topic, tp.Partition, func(l *partitionLog) error {
		limit := l.highWatermark
		if isolation == ReadCommitted {
			limit = l.lastStable()
		}
		switch at {
		case TimeLatest:
			offset, epoch = limit, l.leaderEpoch
			return nil
		case TimeEarliest:
			offset, epoch = l.start, l.leaderEpoch
			if len(l.batches) > 0 {
				epoch = l.epochOf(0)
			}
			return nil
		case TimeMax:
			at = math.MinInt64
			for i := range l.batches {
				if l.batches[i].last < limit {
					at = max(at, l.batches[i].maxTimestamp)
				}
			}
			if at == math.MinInt64 {
				return nil
			}
		}
		for i := range l.batches {
			s := &l.batches[i]
			if s.maxTimestamp < at || s.last >= limit {
				continue
			}
			records, err := decode(s.bytes())
			if err != nil {
				return l.errorf("list offsets: %w", err)
			}
			for _, r := range records {
				if r.Offset >= l.start && r.Time.UnixMilli() >= at {
					offset, timestamp, epoch = r.Offset, r.Time.UnixMilli(), l.epochOf(i)
					return nil
				}
			}
		}
		return nil
	})
	return offset, timestamp, epoch, err
}

// epochOf is the leader epoch of one batch. Under mu.
func (l *partitionLog) epochOf(i int) int32 {
	h, _, err := batch.Next(l.batches[i].bytes())
	if err != nil {
		return -1
	}
	return h.LeaderEpoch
}

// DecodeRecords reads the records of whole batches, compressed or not, as clients see them; markers are left out. Slices of uncompressed batches alias them.
func DecodeRecords(batches []byte) (records []Record, err error) {
	for info, b := range mirror.Batches(batches) {
		if info.Control {
			continue
		}
		some, err := decode(b)
		if err != nil {
			return records, fmt.Errorf("memlog: batch at %d: %w", info.Base, err)
		}
		records = append(records, some...)
	}
	return records, nil
}
