package memlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/producerstate"
)

// What a broker answers to a producer with a sequence.
var (
	// ErrDuplicateSequence: these sequences are in the log already. A broker tells its client that all is well; the records are not appended.
	ErrDuplicateSequence = errors.New("memlog: duplicate sequence")
	// ErrOutOfOrderSequence: sequences are missing in between.
	ErrOutOfOrderSequence = errors.New("memlog: out of order sequence")
	// ErrProducerFenced: a newer epoch of the producer id was seen.
	ErrProducerFenced = errors.New("memlog: producer is fenced")
)

// TransactionVersion is how a transaction ends.
type TransactionVersion uint8

// The versions.
const (
	// TransactionV1: the marker carries the producer's epoch.
	TransactionV1 TransactionVersion = 1
	// TransactionV2 (KIP-890): the marker carries the next epoch, under which the producer goes on.
	TransactionV2 TransactionVersion = 2
)

// ProducerID is a producer id with its epoch.
type ProducerID struct {
	ID    int64
	Epoch int16
}

// ProducerOptions say what kind of producer is wanted.
type ProducerOptions struct {
	// Transactions [TransactionV1].
	Transactions TransactionVersion
	// As is the identity to use, with sequences from 0. Nil: the cluster's allocator gives a new id out, epoch 0.
	As *ProducerID
}

// Producer is an idempotent producer: its batches have sequences, and transactions are possible. Not safe for concurrent use.
type Producer struct {
	c           *Cluster
	id          ProducerID
	version     TransactionVersion
	sequences   map[mirror.TopicPartition]int32 // next
	transaction map[mirror.TopicPartition]bool  // partitions without a marker; nil: no transaction is open
}

// NewProducer returns a producer.
func (c *Cluster) NewProducer(o ProducerOptions) *Producer {
	p := &Producer{c: c, version: cmp.Or(o.Transactions, TransactionV1), sequences: map[mirror.TopicPartition]int32{}}
	if o.As != nil {
		p.id = *o.As
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.id.ID = c.nextProducer
	c.nextProducer++
	return p
}

// ID is the identity that the next batch carries.
func (p *Producer) ID() ProducerID { return p.id }

// Begin begins a transaction.
func (p *Producer) Begin() error {
	if p.transaction != nil {
		return fmt.Errorf("memlog: producer %d has a transaction open", p.id.ID)
	}
	p.transaction = map[mirror.TopicPartition]bool{}
	return nil
}

// Produce appends records as one batch with the next sequences, inside the transaction if one is open. Errors: as Cluster.Produce, and ErrDuplicateSequence,
// ErrOutOfOrderSequence, ErrProducerFenced, with which nothing is appended.
func (p *Producer) Produce(ctx context.Context, topic string, partition int32, records ...Record) (base int64, err error) {
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	base = -1
	err = p.c.client(ctx, "Produce", topic, partition, func(l *partitionLog) error {
		if err := l.writable(); err != nil {
			return err
		}
		first := p.sequences[tp]
		if err := l.checkSequence(p.id, first, int32(len(records))); err != nil {
			return err
		}
		base, err = l.produce(batch.DataSpec{
			ProducerID: p.id.ID, ProducerEpoch: p.id.Epoch, BaseSequence: first, Transactional: p.transaction != nil,
		}, records)
		if err != nil {
			return err
		}
		p.sequences[tp] = addSequence(first, int32(len(records)))
		if p.transaction != nil {
			p.transaction[tp] = true
		}
		return nil
	})
	return base, err
}

// addSequence adds as Kafka does: after the greatest int32 comes 0.
func addSequence(sequence, n int32) int32 {
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}

// checkSequence is the check of a client's batch against what the log knows of its producer (Kafka: ProducerAppendInfo). Under mu.
func (l *partitionLog) checkSequence(id ProducerID, first, n int32) error {
	known := l.producers.Producers()
	i, ok := slices.BinarySearchFunc(known, id.ID, func(p producerstate.Producer, id int64) int { return cmp.Compare(p.ID, id) })
	if !ok {
		return nil
	}
	k := known[i]
	what := fmt.Sprintf("%s-%d: producer %d epoch %d sequence %d, the log knows epoch %d sequence %d", l.tp.Topic, l.tp.Partition, id.ID, id.Epoch, first, k.Epoch, k.LastSequence)
	switch {
	case id.Epoch < k.Epoch:
		return fmt.Errorf("%w: %s", ErrProducerFenced, what)
	case id.Epoch > k.Epoch:
		if first != 0 {
			return fmt.Errorf("%w: %s", ErrOutOfOrderSequence, what)
		}
	case k.LastSequence < 0 || first == addSequence(k.LastSequence, 1):
	case addSequence(first, n-1) <= k.LastSequence:
		return fmt.Errorf("%w: %s", ErrDuplicateSequence, what)
	default:
		return fmt.Errorf("%w: %s", ErrOutOfOrderSequence, what)
	}
	return nil
}

// Commit ends the transaction with a COMMIT in every partition of it. After an error it may be called again.
func (p *Producer) Commit(ctx context.Context) error { return p.end(ctx, batch.ControlCommit) }

// Abort ends the transaction with an ABORT in every partition of it. After an error it may be called again.
func (p *Producer) Abort(ctx context.Context) error { return p.end(ctx, batch.ControlAbort) }

func (p *Producer) end(ctx context.Context, kind batch.ControlType) error {
	if p.transaction == nil {
		return fmt.Errorf("memlog: producer %d has no transaction open", p.id.ID)
	}
	marked := p.id.Epoch
	if p.version == TransactionV2 {
		marked++
	}
	for _, tp := range sorted(p.transaction) {
		err := p.c.client(ctx, "WriteMarker", tp.Topic, tp.Partition, func(l *partitionLog) error { return l.mark(ProducerID{p.id.ID, marked}, kind) })
		if err != nil {
			return err
		}
		delete(p.transaction, tp)
	}
	p.transaction = nil
	if p.version == TransactionV2 {
		p.id.Epoch = marked
		clear(p.sequences)
	}
	return nil
}

// NextProducerID is mirror.ProducerIDTeller's.
func (c *Cluster) NextProducerID(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextProducer, nil
}
