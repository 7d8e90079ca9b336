package leaderlog

import (
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// ErrFenced: the leader epoch given is not the log's, or the log is not led by us now.
var ErrFenced = errors.New("leaderlog: fenced")

// ErrOutOfOrder: a batch's base offset is below the log's end.
var ErrOutOfOrder = errors.New("leaderlog: batch below the log's end")

// ErrOffsetOutOfRange: a read outside [Start, End].
var ErrOffsetOutOfRange = errors.New("leaderlog: offset out of range")

// ErrUnknown: what the followers hold is not known yet. Begin ends that.
var ErrUnknown = errors.New("leaderlog: content not known yet")

// ErrNoCopy: the batch is not in memory, and no follower is known to have it. A follower that comes back may have it.
var ErrNoCopy = errors.New("leaderlog: no follower is known to have the batch")

// ErrClosed: the log was closed.
var ErrClosed = errors.New("leaderlog: closed")

// Error says where something failed. Err is one of this package's errors, a context's, or one from batch or Back.
type Error struct {
	Operation string // "append", "read", "truncation" …
	Topic     string
	Partition int32
	Offset    int64
	Detail    string // for a person; may be empty
	Err       error
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("leaderlog: %s-%d: %s at %d: %v", e.Topic, e.Partition, e.Operation, e.Offset, e.Err)
	}
	return fmt.Sprintf("leaderlog: %s-%d: %s at %d: %s: %v", e.Topic, e.Partition, e.Operation, e.Offset, e.Detail, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// EpochError is a batch whose leader epoch is above the partition's: stock followers would skip it and say so in their own log only. Raise the leader epoch first.
type EpochError struct {
	Topic     string
	Partition int32
	Offset    int64 // base offset of the batch
	Epoch     int32 // of the batch
	Leader    int32 // ours
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("leaderlog: %s-%d: batch %d has leader epoch %d, the partition's is %d: raise it to at least %d first", e.Topic, e.Partition, e.Offset, e.Epoch, e.Leader, e.Epoch)
}

// PoisonError is a batch on which every stock follower would give the partition up. Nothing of the chunk was kept. The source is not stock Kafka, or the batch must be left out.
type PoisonError struct {
	Topic      string
	Partition  int32
	Offset     int64 // base offset of the batch
	ProducerID int64
	Control    bool              // a control batch
	Type       batch.ControlType // of a control batch that could be read
	Reason     string            // for a person
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("leaderlog: %s-%d: batch %d (producer id %d) would make every follower fail: %s; nothing from it on was appended", e.Topic, e.Partition, e.Offset, e.ProducerID, e.Reason)
}

// fail is an Error of this log.
func (l *Log) fail(operation string, offset int64, err error, format string, args ...any) error {
	return &Error{Operation: operation, Topic: l.topic, Partition: l.partition, Offset: offset, Detail: fmt.Sprintf(format, args...), Err: err}
}
