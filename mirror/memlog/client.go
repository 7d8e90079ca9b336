package memlog

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// Record is one record as a client sees it.
type Record struct {
	Offset     int64 // set by Consume
	Key, Value []byte
	Headers    []Header
	Time       time.Time // Produce: zero is now. Milliseconds count.
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Isolation is a consumer's isolation level.
type Isolation uint8

// The isolation levels.
const (
	ReadUncommitted Isolation = iota
	ReadCommitted
)

func (c *Cluster) client(ctx context.Context, method, topic string, partition int32, f func(l *partitionLog) error) error {
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	return c.call(ctx, Call{Operation: "Client." + method, Partition: tp}, func() error {
		l, err := c.log(tp)
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.deleted {
			return unknownTopic(topic)
		}
		return f(l)
	})
}

// writable refuses a client's write while the gate is closed. Under mu.
func (l *partitionLog) writable() error {
	if l.owner == mirror.OwnerOpen {
		return nil
	}
	return &mirror.Error{
		Code: mirror.ReadOnlyTopic, Topic: l.tp.Topic, Partition: l.tp.Partition, Message: "the topic is a mirror's copy; stop the mirror of this topic to write to it",
	}
}

// Produce appends records as one batch and returns the offset of the first. It does not wait for replicas. A mirror's copy refuses with a *mirror.Error, code ReadOnlyTopic.
func (c *Cluster) Produce(ctx context.Context, topic string, partition int32, records ...Record) (base int64, err error) {
	err = c.client(ctx, "Produce", topic, partition, func(l *partitionLog) error {
		base, err = l.produce(batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, records)
		return err
	})
	return base, err
}

// produce appends one data batch of a client. Under mu.
func (l *partitionLog) produce(spec batch.DataSpec, records []Record) (int64, error) {
	if err := l.writable(); err != nil {
		return -1, err
	}
	if len(records) == 0 {
		return -1, l.errorf("produce of no records")
	}
	now := l.c.cfg.Now()
	for i, r := range records {
		at := r.Time
		if at.IsZero() {
			at = now
		}
		if i == 0 {
			spec.BaseTimestamp = at.UnixMilli()
		}
		w := batch.Record{OffsetDelta: int32(i), TimestampDelta: at.UnixMilli() - spec.BaseTimestamp, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			w.Headers = append(w.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
		}
		spec.Records = append(spec.Records, w)
	}
	spec.BaseOffset, spec.LeaderEpoch = l.end, l.leaderEpoch
	base := l.end
	if err := l.add(batch.AppendData(nil, spec)); err != nil {
		return -1, err
	}
	return base, nil
}

// Consume returns the records from offset from on: up to the high watermark, or what is committed below the last stable offset. Control records are not shown.
// from outside [Start, End]: ErrOffsetOutOfRange.
func (c *Cluster) Consume(ctx context.Context, topic string, partition int32, from int64, isolation Isolation) (records []Record, err error) {
	err = c.client(ctx, "Consume", topic, partition, func(l *partitionLog) error {
		if from < l.start || from > l.end {
			return l.errorf("consume at %d, the log is [%d, %d]: %w", from, l.start, l.end, mirror.ErrOffsetOutOfRange)
		}
		if l.c.cfg.Discard && from < l.end {
			return l.errorf("consume at %d: the bytes were discarded", from)
		}
		end := l.highWatermark
		aborted := map[int64][][2]int64{} // producer id → [first, last]
		if isolation == ReadCommitted {
			end = l.lastStable()
			for _, a := range l.producers.Aborted(from, end) {
				aborted[a.ProducerID] = append(aborted[a.ProducerID], [2]int64{a.FirstOffset, a.LastOffset})
			}
		}
	batches:
		for i := l.find(from); i < len(l.batches) && l.batches[i].base < end; i++ {
			b := l.batches[i].bytes()
			h, _, err := batch.Next(b)
			if err != nil {
				return l.errorf("consume: %w", err)
			}
			if h.Control() {
				continue
			}
			if h.Transactional() {
				for _, a := range aborted[h.ProducerID] {
					if h.BaseOffset >= a[0] && h.BaseOffset <= a[1] {
						continue batches
					}
				}
			}
			some, err := decode(b)
			if err != nil {
				return l.errorf("consume: %w", err)
			}
			for _, r := range some {
				if r.Offset >= from && r.Offset < end {
					records = append(records, r)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// decode reads the records of one batch, compressed or not. The slices of an uncompressed batch alias it.
func decode(b []byte) ([]Record, error) {
	h, n, err := batch.Next(b)
	if err != nil {
		return nil, err
	}
	b = b[:n:n]
	if codec := h.Codec(); codec != batch.CodecNone {
		plain, err := kgo.DefaultDecompressor().Decompress(b[batch.HeaderSize:], kgo.CompressionCodecType(codec))
		if err != nil {
			return nil, fmt.Errorf("batch at %d: %w", h.BaseOffset, err)
		}
		// The same batch without compression.
		b = append(append(make([]byte, 0, batch.HeaderSize+len(plain)), b[:batch.HeaderSize]...), plain...)
		h.Attributes &^= 0x7
		h.Length = int32(len(b) - 12)
	}
	read, err := batch.ReadRecords(b, &h)
	if err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(read))
	for _, r := range read {
		at := h.BaseTimestamp + r.TimestampDelta
		if h.LogAppendTime() {
			at = h.MaxTimestamp
		}
		record := Record{Offset: h.BaseOffset + int64(r.OffsetDelta), Key: r.Key, Value: r.Value, Time: time.UnixMilli(at)}
		for _, header := range r.Headers {
			record.Headers = append(record.Headers, Header{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	return records, nil
}

// DeleteRecords moves the log start offset up to offset, also into the middle of a batch; −1 is the high watermark. Above the high watermark: ErrOffsetOutOfRange.
// A mirror's copy refuses (code MirrorTopicNotStopped).
func (c *Cluster) DeleteRecords(ctx context.Context, topic string, partition int32, offset int64) error {
	return c.client(ctx, "DeleteRecords", topic, partition, func(l *partitionLog) error {
		if l.owner != mirror.OwnerOpen {
			return &mirror.Error{
				Code: mirror.MirrorTopicNotStopped, Topic: topic, Partition: partition, Message: "records of a mirror's copy go when the source's go; stop the mirror of this topic first",
			}
		}
		if offset == -1 {
			offset = l.highWatermark
		}
		if offset < 0 || offset > l.highWatermark {
			return l.errorf("delete records to %d, the high watermark is %d: %w", offset, l.highWatermark, mirror.ErrOffsetOutOfRange)
		}
		l.raiseStart(offset)
		return nil
	})
}

// Expire is retention by time: whole batches at the log's start go whose newest record is older than before. It returns the log start offset.
// It works on a mirror's copy too, as retention does.
func (c *Cluster) Expire(ctx context.Context, topic string, partition int32, before time.Time) (start int64, err error) {
	err = c.client(ctx, "Expire", topic, partition, func(l *partitionLog) error {
		to := l.start
		for i := range l.batches {
			if l.batches[i].maxTimestamp >= before.UnixMilli() {
				break
			}
			to = l.batches[i].last + 1
		}
		l.raiseStart(to)
		start = l.start
		return nil
	})
	return start, err
}
